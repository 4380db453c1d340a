//! What a path's name alone decides: what never leaves, and what is a script.
//!
//! A name that looks like a script's to anybody is one here or nothing: its source never goes out as a file.

use super::settings::ScriptSettings;
use super::site_files::SiteFiles;
use crate::pattern::glob::Glob;

/// Endings of editors' and packagers' leavings; the file they were made from may be a script or a configuration.
const BACKUPS: [&[u8]; 6] = [b"~", b".bak", b".swp", b".orig", b".save", b".swo"];

/// Files that list what a site is made of, version by version.
const MANIFESTS: [&[u8]; 4] = [
    b"composer.json",
    b"composer.lock",
    b"package.json",
    b"package-lock.json",
];

/// Extensions PHP or its distributions know for source, whatever the site runs.
const SOURCES: [&[u8]; 12] = [
    b".php", b".phps", b".phtml", b".pht", b".phar", b".inc", b".php3", b".php4", b".php5", b".php6", b".php7",
    b".php8",
];

/// What a name says about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sent as it is.
    Plain,
    /// Run by PHP.
    Script,
    /// A script's source that is not run here, or a spelling some system would read as one: `.PHP`, `.php.`.
    Source,
}

/// What the last name of this path is on this site.
pub(super) fn kind(site: &SiteFiles, path: &[u8]) -> Kind {
    let scripts = site.scripts.as_ref();
    if scripts.is_some_and(|scripts| is_script(scripts, path)) {
        return Kind::Script;
    }
    let trailing = path.iter().rev().take_while(|byte| matches!(byte, b'.' | b' ')).count();
    let name = &path[..path.len() - trailing];
    let own = scripts.map_or(&[][..], |scripts| &scripts.extensions);
    let looks_like_script = is_source(name)
        || own
            .iter()
            .any(|extension| ends_with_any_case(name, extension.as_bytes()));
    if looks_like_script { Kind::Source } else { Kind::Plain }
}

/// Whether this is the name of a script to PHP or its distributions: run or not, it is never sent as a file.
pub fn is_source(name: &[u8]) -> bool {
    SOURCES.iter().any(|source| ends_with_any_case(name, source))
}

/// Whether the path ends in an extension PHP runs, exactly as configured: rules for scripts are patterns that tell
/// upper from lower case, so another spelling would slip past them.
fn is_script(scripts: &ScriptSettings, path: &[u8]) -> bool {
    scripts
        .extensions
        .iter()
        .any(|extension| path.ends_with(extension.as_bytes()))
}

/// Whether `scripts` and `never` let this script run.
pub(super) fn may_run(scripts: &ScriptSettings, name: &[u8]) -> bool {
    (scripts.allow.is_empty() || any_matches(&scripts.allow, name)) && !any_matches(&scripts.never, name)
}

/// The places, behind a script's extension, where PATH_INFO may begin: `/a.php/x` gives 6.
pub(super) fn script_ends<'a>(site: &'a SiteFiles, path: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let scripts = site.scripts.as_ref();
    let slashes = path
        .iter()
        .enumerate()
        .filter(|&(at, &byte)| byte == b'/' && at > 0)
        .map(|(at, _)| at);
    slashes.filter(move |&at| scripts.is_some_and(|scripts| is_script(scripts, &path[..at])))
}

/// Whether the site's `deny` names this path.
pub(crate) fn is_denied(site: &SiteFiles, path: &[u8]) -> bool {
    any_matches(&site.settings.deny, path)
}

/// Whether a segment of this path is one that never leaves any site: dotfiles, backups, manifests. What `.well-known`
/// at the root holds is meant to be found (RFC 8615).
pub(crate) fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|&byte| byte == b'/').skip(1);
    let first = segments.next().unwrap_or_default();
    (first != b".well-known" && is_hidden_name(first)) || segments.any(is_hidden_name)
}

/// The same for one name.
pub(super) fn is_hidden_name(name: &[u8]) -> bool {
    name.first() == Some(&b'.')
        || BACKUPS.iter().any(|backup| ends_with_any_case(name, backup))
        || MANIFESTS.iter().any(|manifest| name.eq_ignore_ascii_case(manifest))
}

fn any_matches(globs: &[Glob], path: &[u8]) -> bool {
    globs.iter().any(|glob| glob.matches(path))
}

fn ends_with_any_case(name: &[u8], ending: &[u8]) -> bool {
    name.len() >= ending.len() && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotfiles_backups_and_manifests_are_hidden_at_every_depth() {
        let hidden = [
            "/.env",
            "/.git/config",
            "/a/.htaccess",
            "/a.php~",
            "/a.bak",
            "/a.BAK",
            "/a.swp",
            "/a.orig",
            "/a.save",
            "/composer.json",
            "/sub/package-lock.json",
            "/Composer.JSON",
            "/.well-known/.env",
            "/a/.well-known/x",
            "/...",
        ];
        for path in hidden {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        let shown = [
            "/",
            "/a.txt",
            "/.well-known/acme-challenge/x",
            "/.well-known",
            "/a/",
            "/my-composer.json",
            "/bak",
            "/a.b",
        ];
        for path in shown {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }
}
