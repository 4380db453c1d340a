//! Finds redirects in a loop, and rewrites to missing scripts.
//!
//! It takes an example of the path of each rule, and follows the redirects as a browser would.

use std::path::{Path, PathBuf};

use haulier_server::RedirectRule;
use haulier_settings::{Diagnostic, Pairs, Placed, Report};

use super::settings::Site;
use super::tables::SiteTable;

/// More hops than a browser follows.
const MOST_HOPS: usize = 32;
/// Replaces a `*` in an example.
const EXAMPLE: &str = "example";

/// Checks the redirects and rewrites of a site.
pub(super) fn check(table: &SiteTable, site: &Site, has_files: bool, report: &mut Report) {
    if let Some(written) = &table.rules.redirects {
        check_redirects(written, site, has_files, report);
    }
    if let Some(written) = table.rules.rewrites.as_ref().filter(|_| has_files) {
        check_rewrites(written, site, report);
    }
}

/// The redirects that a client follows.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    paths: Vec<String>,
    /// A path on the way is a directory and got its slash. Without that directory there is no loop.
    needs_directory: bool,
}

fn check_redirects(written: &Pairs, site: &Site, has_files: bool, report: &mut Report) {
    for rule in &site.settings.redirects {
        let Some((from, to)) = written.iter().find(|(from, _)| from.value == rule.from.as_str()) else {
            continue;
        };
        if let Some(way) = looped(rule, site, has_files) {
            report.push(loop_found(&way, from, to));
        }
    }
}

fn loop_found(way: &Way, from: &Placed<String>, to: &Placed<String>) -> Diagnostic {
    let shown = way.paths.join(" → ");
    if way.needs_directory {
        return Diagnostic::warning(
            "site::redirect",
            "the redirect takes from directories the slash they get back",
        )
        .at(to.place.as_ref(), format!("{shown} …"))
        .beside(from.place.as_ref(), "holds for directories, too")
        .help("a directory answers with its slash; name the paths that are none");
    }
    Diagnostic::error("config::redirect", "the redirect leads back to itself")
        .at(to.place.as_ref(), format!("{shown} …"))
        .beside(
            from.place.as_ref(),
            "a client that asks for this goes round until it gives up",
        )
        .help("leave the rule out, or have it lead to a path that no rule redirects")
}

/// The redirects from an example of the rule's path, if they never end.
fn looped(rule: &RedirectRule, site: &Site, has_files: bool) -> Option<Way> {
    let root = Some(site.app.root.as_path()).filter(|_| has_files);
    examples(rule, root)
        .into_iter()
        .find_map(|path| follow(path, site, root))
}

/// Paths that the rule matches: an invented one, and one with a real directory if there is one.
fn examples(rule: &RedirectRule, root: Option<&Path>) -> Vec<String> {
    let filled = |star: &str| {
        let mut path = first_alternative(rule.from.as_str());
        path = path.replace("**", "*").replace('*', star).replace('?', "x");
        Some(path).filter(|path| rule.from.matches(path.as_bytes()))
    };
    let directories = root
        .and_then(|root| std::fs::read_dir(root).ok())
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = directories
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let directory = names.first().map(String::as_str).and_then(filled);
    [filled(EXAMPLE), filled(""), directory].into_iter().flatten().collect()
}

/// `/{a,b}/c` → `/a/c`
fn first_alternative(pattern: &str) -> String {
    let mut path = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, braces)) = rest.split_once('{') {
        let (choices, behind) = braces.split_once('}').unwrap_or((braces, ""));
        path.push_str(before);
        path.push_str(choices.split(',').next().unwrap_or_default());
        rest = behind;
    }
    path + rest
}

fn follow(path: String, site: &Site, root: Option<&Path>) -> Option<Way> {
    let mut way = Way {
        paths: vec![path],
        needs_directory: false,
    };
    while way.paths.len() < MOST_HOPS {
        let here = way.paths.last()?.clone();
        let next = match redirected(&here, site) {
            Some(next) => next?,
            None => {
                let is_directory = !here.ends_with('/') && root?.join(&here[1..]).is_dir();
                if !is_directory {
                    return None;
                }
                way.needs_directory = true;
                format!("{here}/")
            }
        };
        let is_known = way.paths.contains(&next);
        way.paths.push(next);
        if is_known {
            return Some(way);
        }
    }
    // Every redirect leads to a new address.
    way.paths.truncate(4);
    Some(way)
}

/// The target of a path: `None` without a redirect, `Some(None)` for another server.
fn redirected(path: &str, site: &Site) -> Option<Option<String>> {
    site.settings.redirects.iter().find_map(|rule| {
        let stars = rule.from.stars(path.as_bytes())?;
        let target = String::from_utf8_lossy(&rule.to.filled(&stars)).into_owned();
        Some(own_path(&target, site))
    })
}

/// The path of a target on this site.
fn own_path(target: &str, site: &Site) -> Option<String> {
    let target = target.split(['?', '#']).next()?;
    let Some((_, behind)) = target.split_once("://") else {
        return Some(target.to_owned());
    };
    let (host, path) = behind.split_once('/').unwrap_or((behind, ""));
    // The same rules answer on every port and scheme of this site.
    let is_ours = site.settings.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
    is_ours.then(|| format!("/{path}"))
}

fn check_rewrites(written: &Pairs, site: &Site, report: &mut Report) {
    let instead = match site.front {
        Some(_) => "the front controller answers instead",
        None => "requests for it are answered 404",
    };
    for (from, to) in written {
        let Some(script) = script_of(&to.value, &site.php.scripts.extensions) else {
            continue;
        };
        let file = file_of(script, site);
        if site
            .settings
            .rewrites
            .iter()
            .any(|rule| rule.from.as_str() == from.value)
            && !file.is_file()
        {
            let title = format!("the rewrite leads to a script that is not there: {}", file.display());
            report.push(
                Diagnostic::warning("site::rewrite", title)
                    .at(to.place.as_ref(), instead)
                    .help("a rewrite names a path below the document root"),
            );
        }
    }
}

/// The script that a target names, without any `*` before its end: `/index.php` of `/index.php/*` and of `/index.php?a=*`.
fn script_of<'t>(target: &'t str, extensions: &[String]) -> Option<&'t str> {
    let path = target.split(['?', '#']).next()?;
    let literal = path.find(['*', '$']).map_or(path, |at| &path[..at]);
    let ends = extensions.iter().filter_map(|extension| {
        let end = literal.find(extension.as_str())? + extension.len();
        let is_whole = matches!(path.as_bytes().get(end), None | Some(b'/'));
        is_whole.then_some(end)
    });
    ends.min().map(|end| &path[..end])
}

/// The file behind a path: of the mount that it belongs to, or of the site.
fn file_of(path: &str, site: &Site) -> PathBuf {
    let mounts = site.routes.iter().filter_map(|route| route.mount.as_ref());
    let within = mounts.filter_map(|mount| {
        let rest = path.strip_prefix(&mount.prefix)?;
        rest.starts_with('/')
            .then_some((mount.prefix.len(), &mount.site.app.root, rest))
    });
    let (_, root, rest) = within
        .max_by_key(|(length, ..)| *length)
        .unwrap_or((0, &site.app.root, path));
    root.join(rest.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_target_is_found_before_its_stars() {
        let php = [".php".to_owned()];
        let rows = [
            ("/index.php", Some("/index.php")),
            ("/index.php?a=*", Some("/index.php")),
            ("/index.php/*", Some("/index.php")),
            ("/a/b.php/c", Some("/a/b.php")),
            ("/*.php", None),
            ("/a.phps", None),
            ("/a$1.php", None),
            ("/page", None),
        ];
        for (target, expected) in rows {
            assert_eq!(script_of(target, &php), expected, "{target}");
        }
    }

    #[test]
    fn the_first_way_through_braces_is_an_example() {
        assert_eq!(first_alternative("/{a,b}/c{d,}"), "/a/cd");
        assert_eq!(first_alternative("/plain/*"), "/plain/*");
    }
}
