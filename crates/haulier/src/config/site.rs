//! Resolves the `[site.NAME]` tables: finds the project, detects its application, checks its rules.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use haulier_server::pattern::glob::Glob;
use haulier_server::pattern::target::Target;
use haulier_server::{
    CHARSET, FileSettings, FilterSettings, Maintenance, MaintenanceTable, PhpSettings, RateLimiter, RedirectRule,
    ScriptSettings, SiteSettings, SpoolSettings,
};
use haulier_settings::{Diagnostic, Pairs, Placed, Report, reader};

use super::file::File;
use super::settings::Site;
use super::tables::SiteTable;
use super::{dictionary, downloads, loops, route, rules, value, workers};
use crate::account;
use crate::app::{self, App, DetectError, PRESETS, Preset, htaccess};
use crate::log::SiteLog;

pub(super) fn resolve_all(file: &File, report: &mut Report) -> Vec<Site> {
    if file.sites.is_empty() && report.errors() == 0 {
        report.push(
            Diagnostic::error("config::site", "no site: there is nothing to serve")
                .help("the smallest configuration is `[site.NAME]` with `root = \"/path/of/the/project\"`"),
        );
    }
    let limiter = file.limits.requests_per_ip.as_ref();
    let limiter = limiter.map(|rate| Arc::new(value::limiter(rate.value)));
    let resolve = |table| resolve_site(table, limiter.as_ref(), file.document_root.as_deref(), report);
    let sites: Vec<Site> = file.sites.iter().map(resolve).collect();
    check_hosts(&file.sites, report);
    sites
}

/// Resolves a site. Its rules are checked even without a usable root: all errors are reported at once.
pub(super) fn resolve_site(
    table: &SiteTable,
    limiter: Option<&Arc<RateLimiter>>,
    document_root: Option<&Path>,
    report: &mut Report,
) -> Site {
    let project = resolve_root(table, report);
    let found = project
        .as_ref()
        .and_then(|project| resolve_app(table, project, document_root, report));
    let mut app = found.clone().unwrap_or_else(|| nothing_found(project.as_deref()));
    if let Some(root) = document_root {
        app.root = root.to_owned();
    }
    let has_files = found.is_some();
    let looked_at = project.clone().zip(found).filter(|_| app_name(table) == app::AUTO);
    let preset = app.preset;
    let hosts = match &table.hosts {
        Some(hosts) => hosts.iter().filter_map(|host| rules::host(host, report)).collect(),
        None => vec!["*".to_owned()],
    };
    let extensions = resolve_extensions(table, report);
    let worker = table.worker.as_ref();
    let worker = worker.and_then(|worker| workers::script(worker, &table.heading.directory, report));
    let front = resolve_front(table, &app, &extensions, report);
    let front = front.or_else(|| workers::front_of(worker.as_ref()?, &app.root, &extensions));
    let filters = resolve_filters(table, &hosts, &app.root, limiter, report);
    let (files, rules) = (resolve_files(table, &app, report), &table.rules);
    let mut redirects = resolve_pairs(rules.redirects.as_ref(), rules::redirects, report);
    redirects.extend(preset_redirects(preset));
    let mut site = Site {
        settings: SiteSettings {
            name: table.heading.name.value.clone(),
            hosts,
            files,
            dictionary: dictionary::resolve(&table.dictionary, report),
            spool: SpoolSettings::from(&table.offload),
            filters,
            redirects,
            rewrites: resolve_pairs(rules.rewrites.as_ref(), rules::rewrites, report),
            error_pages: resolve_pairs(
                rules.errors.as_ref(),
                |pairs, report| rules::error_pages(pairs, &app.root, report),
                report,
            ),
            ..SiteSettings::from(rules)
        },
        looked_at,
        htaccess: project.as_deref().and_then(|project| htaccess::remark(&app, project)),
        front,
        bootable: None,
        project: project.clone(),
        worker,
        pool: None,
        php: PhpSettings {
            scripts: ScriptSettings {
                allow: preset_globs(preset.scripts).collect(),
                never: never_run(preset.never, &extensions),
                extensions,
            },
            sendfile: downloads::sendfile(table, project.as_deref(), report),
            offload: downloads::offload(&table.offload, report),
            ..PhpSettings::default()
        },
        routes: Vec::new(),
        log: SiteLog::default(),
        images: None,
        is_rootless: table.root.is_none(),
        app,
    };
    site.routes = route::resolve_all(table, &site, report);
    loops::check(table, &site, has_files, report);
    site
}

/// The rules of a table of the user's own names, none if it is not there.
fn resolve_pairs<T>(
    written: Option<&Pairs>,
    resolve: impl FnOnce(&Pairs, &mut Report) -> Vec<T>,
    report: &mut Report,
) -> Vec<T> {
    written.map_or_else(Vec::new, |pairs| resolve(pairs, report))
}

/// The rules of the site for its files come before those of its application.
fn resolve_files(table: &SiteTable, app: &App, report: &mut Report) -> FileSettings {
    let mut deny = rules::globs(table.files.deny.as_deref().unwrap_or(&[]), report);
    deny.extend(preset_globs(app.preset.deny));
    let mut cache = resolve_pairs(table.files.cache.as_ref(), rules::cache, report);
    cache.extend(preset_cache(app.preset));
    FileSettings {
        root: app.root.clone(),
        index: app.preset.index.iter().map(|&name| name.to_owned()).collect(),
        deny,
        cache,
        charset: resolve_charset(table.files.charset.as_ref(), report),
        ..FileSettings::from(&table.files)
    }
}

fn resolve_filters(
    table: &SiteTable,
    hosts: &[String],
    root: &Path,
    limiter: Option<&Arc<RateLimiter>>,
    report: &mut Report,
) -> FilterSettings {
    let canonical = table.rules.canonical.as_ref();
    let maintenance = table.maintenance.as_ref();
    FilterSettings {
        canonical: canonical.and_then(|written| rules::canonical(written, hosts, report)),
        headers: resolve_pairs(table.rules.headers.as_ref(), rules::headers, report),
        maintenance: maintenance
            .and_then(|maintenance| resolve_maintenance(maintenance, &table.heading.directory, root, report)),
        requests_per_ip: match &table.limits.requests_per_ip {
            Some(rate) => Some(Arc::new(value::limiter(rate.value))),
            None => limiter.cloned(),
        },
        // Known once all certificates are.
        without_tls: None,
    }
}

/// The charset, a name as IANA registers them. A `;` or a space would start something else in the field.
fn resolve_charset(written: Option<&Placed<String>>, report: &mut Report) -> Option<String> {
    let Some(written) = written else {
        return Some(CHARSET.to_owned());
    };
    if written.value == "off" {
        return None;
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    if written.value.is_empty() || !written.value.bytes().all(is_name) {
        let title = format!("not a charset: \"{}\"", written.value);
        let label = "expected a name such as \"utf-8\" or \"windows-1252\", or \"off\"";
        report.push(Diagnostic::error("config::value", title).at(written.place.as_ref(), label));
    }
    Some(written.value.to_ascii_lowercase())
}

/// The file of `maintenance` is not looked for: requests do that.
fn resolve_maintenance(
    table: &MaintenanceTable,
    directory: &Path,
    root: &Path,
    report: &mut Report,
) -> Option<Maintenance> {
    let page = table.page.as_ref().and_then(|page| rules::page(page, root, report));
    let allow = rules::networks(table.allow.as_deref().unwrap_or(&[]), report);
    let Some(file) = &table.file else {
        report.push(
            Diagnostic::error("config::maintenance", "`maintenance` without `file`")
                .at(
                    table.heading.name.place.as_ref(),
                    "needs the file that closes the site by being there",
                )
                .help("add `file = \"/run/site-is-closed\"`"),
        );
        return None;
    };
    Some(Maintenance {
        file: directory.join(&file.value),
        page,
        allow,
        ..Maintenance::from(table)
    })
}

/// The written path, absolute, and without `.` and `..` if that is the same directory as `real`.
pub(super) fn without_detours(written: &Path, real: PathBuf) -> PathBuf {
    let Ok(absolute) = std::path::absolute(written) else {
        return real;
    };
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            part => plain.push(part),
        }
    }
    // `link/..` is the parent of the link's target.
    if plain.canonicalize().is_ok_and(|found| found == real) {
        plain
    } else {
        absolute
    }
}

/// The application of a site without a usable root, whose rules are checked nevertheless.
fn nothing_found(project: Option<&Path>) -> App {
    let preset = PRESETS.last().expect("the table is not empty");
    App {
        preset,
        root: project.unwrap_or(Path::new("/")).to_owned(),
        front: None,
        unread: None,
    }
}

/// The project directory, absolute. A symbolic link in it stays one: deployments make it point elsewhere.
fn resolve_root(table: &SiteTable, report: &mut Report) -> Option<PathBuf> {
    let Some(root) = &table.root else {
        // A root that is no text has its error already; images of a store need none.
        let has_store = table.images.as_ref().is_some_and(|images| images.store.is_some());
        if !table.means_root() && !has_store {
            report.push(
                Diagnostic::error(
                    "config::site",
                    format!("site `{}` has no `root`", table.heading.name.value),
                )
                .at(table.heading.name.place.as_ref(), "needs the directory of its project")
                .help("add `root = \"/path/of/the/project\"`"),
            );
        }
        return None;
    };
    let path = table.heading.directory.join(&root.value);
    match path.canonicalize() {
        Ok(real) if real.is_dir() => Some(without_detours(&path, real)),
        Ok(path) => {
            let title = format!("root {} is a file", path.display());
            report.push(Diagnostic::error("site::root", title).at(root.place.as_ref(), "expected a directory"));
            None
        }
        Err(error) => {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                std::io::ErrorKind::PermissionDenied => "may not be entered by this user".to_owned(),
                _ => error.to_string(),
            };
            let title = format!("root {} {why}", path.display());
            report.push(Diagnostic::error("site::root", title).at(root.place.as_ref(), "named here"));
            None
        }
    }
}

/// The finding for an unreadable folder that might hold scripts.
fn unreadable(folder: &Path, project: &Path, table: &SiteTable) -> Diagnostic {
    let us = account::own_name();
    let title = format!("{} cannot be read by `{us}`", folder.display());
    let place = table.root.as_ref().and_then(|root| root.place.as_ref());
    let diagnostic = if folder == project {
        Diagnostic::error("site::root", format!("{title}: nobody knows what it holds"))
    } else {
        Diagnostic::warning("site::root", format!("{title}: PHP files in it would not be found"))
    };
    let folder = folder.display();
    diagnostic
        .at(place, "in this project")
        .help(format!(
            "let that account read it: `setfacl -m u:{us}:rx {folder}` or `chmod o+rx {folder}`"
        ))
        .help("or start haulier as the account that it belongs to")
}

fn app_name(table: &SiteTable) -> &str {
    table.app.as_ref().map_or(app::AUTO, |app| app.value.as_str())
}

fn resolve_app(table: &SiteTable, project: &Path, document_root: Option<&Path>, report: &mut Report) -> Option<App> {
    let name = app_name(table);
    let place = table.app.as_ref().and_then(|app| app.place.as_ref());
    let found = match (app::detect(project, name), document_root) {
        // An explicit document root may hold files that the project does not show.
        (Err(DetectError::NotThere { .. }), Some(root)) => app::detect(root, name),
        (found, _) => found,
    };
    match found {
        Ok(app) => {
            if let Some(folder) = &app.unread {
                report.push(unreadable(folder, project, table));
            }
            Some(app)
        }
        Err(DetectError::UnknownName(name)) => {
            let names = || std::iter::once("auto").chain(PRESETS.iter().map(|preset| preset.name));
            let label = reader::nearest(&name, names()).map(|near| format!("did you mean \"{near}\"?"));
            let known: Vec<&str> = names().collect();
            report.push(
                Diagnostic::error("config::app", format!("no application is called \"{name}\""))
                    .at(place, label.unwrap_or_else(|| "no such name".to_owned()))
                    .help(format!("known: {}", known.join(", "))),
            );
            None
        }
        Err(error @ DetectError::NotThere { .. }) => {
            report.push(
                Diagnostic::error("site::app", error.to_string())
                    .at(place, "named here")
                    .help("`root` is the project directory, the one with composer.json"),
            );
            None
        }
    }
}

/// The script or page that answers for every path without a file: of the site, else of its application. It must exist.
fn resolve_front(table: &SiteTable, app: &App, extensions: &[String], report: &mut Report) -> Option<String> {
    let Some(written) = &table.front else {
        return app.front.clone();
    };
    let path = written.value.trim_start_matches('/');
    let climbs = path.split('/').any(|part| part == "..");
    if path.is_empty() || climbs || !app.root.join(path).is_file() {
        let title = format!("front controller {} is not in {}", written.value, app.root.display());
        report.push(Diagnostic::error("site::front", title).at(
            written.place.as_ref(),
            "expected a script or a page in the document root, such as \"/index.php\" or \"/index.html\"",
        ));
    }
    let runs = extensions.iter().any(|extension| path.ends_with(extension));
    if !runs && haulier_server::is_script_source(path.as_bytes()) {
        let title = format!(
            "front controller {} is a script that this site does not run",
            written.value
        );
        let own = format!("`script_extensions` of this site: {}", extensions.join(", "));
        report.push(
            Diagnostic::error("site::front", title)
                .at(written.place.as_ref(), own)
                .help("add its extension to `script_extensions`, or name another script"),
        );
    }
    Some(format!("/{path}"))
}

/// Default of `script_extensions`.
const SCRIPT_EXTENSION: &str = ".php";

fn resolve_extensions(table: &SiteTable, report: &mut Report) -> Vec<String> {
    let Some(written) = &table.rules.script_extensions else {
        return vec![SCRIPT_EXTENSION.to_owned()];
    };
    if written.is_empty() {
        report.push(
            Diagnostic::error("config::value", "`script_extensions` names none")
                .at(table.heading.name.place.as_ref(), "in this site")
                .help("a site that runs no PHP says `app = \"static\"`"),
        );
    }
    let is_extension = |text: &str| {
        let rest = text.strip_prefix('.').unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    for one in written.iter().filter(|one| !is_extension(&one.value)) {
        let title = format!("not an extension: \"{}\"", one.value);
        let label = "expected a dot and letters, such as \".php\" or \".phtml\"";
        report.push(Diagnostic::error("config::value", title).at(one.place.as_ref(), label));
    }
    written.iter().map(|one| one.value.clone()).collect()
}

/// The patterns of an application that name scripts which never run, for all extensions of the site.
pub(super) fn never_run(patterns: &[&str], extensions: &[String]) -> Vec<Glob> {
    let of_all = patterns.iter().flat_map(|pattern| {
        let stem = pattern.strip_suffix(SCRIPT_EXTENSION);
        let others = extensions.iter().filter(|&extension| extension != SCRIPT_EXTENSION);
        let others = others.filter_map(move |extension| Some(format!("{}{extension}", stem?)));
        std::iter::once((*pattern).to_owned()).chain(others)
    });
    of_all
        .map(|pattern| Glob::new(&pattern).expect("patterns of the table are tested, extensions are letters"))
        .collect()
}

fn preset_globs(patterns: &[&str]) -> impl Iterator<Item = Glob> {
    patterns
        .iter()
        .map(|pattern| Glob::new(pattern).expect("patterns of the table are tested"))
}

fn preset_cache(preset: &Preset) -> impl Iterator<Item = (Glob, String)> {
    let glob = |pattern| Glob::new(pattern).expect("patterns of the table are tested");
    let control = |keep| value::cache_control(keep).expect("cache rules of the table are tested");
    preset
        .cache
        .iter()
        .map(move |(pattern, keep)| (glob(pattern), control(keep)))
}

fn preset_redirects(preset: &Preset) -> impl Iterator<Item = RedirectRule> {
    preset.redirects.iter().map(|&(from, to)| {
        let from = Glob::new(from).expect("patterns of the table are tested");
        let to = Target::new(&from, to).expect("targets of the table are tested");
        RedirectRule { from, to, status: 301 }
    })
}

/// Checks that each host name belongs to one site.
fn check_hosts(tables: &[SiteTable], report: &mut Report) {
    let mut owners: HashMap<String, Placed<String>> = HashMap::new();
    for table in tables {
        let every = [table.heading.name.with("*".to_owned())];
        let hosts = table.hosts.as_deref().unwrap_or(&every);
        for host in hosts {
            let name = host.value.to_ascii_lowercase();
            let Some(first) = owners.get(&name) else {
                owners.insert(name, host.clone());
                continue;
            };
            report.push(two_owners(host, first));
        }
    }
}

fn two_owners(again: &Placed<String>, first: &Placed<String>) -> Diagnostic {
    let (title, help) = match again.value.as_str() {
        "*" => {
            let help = "give each its `hosts`; one of them may keep \"*\" for the rest";
            ("two sites answer to every host".to_owned(), help)
        }
        name => (
            format!("two sites answer to `{name}`"),
            "a host name belongs to one site",
        ),
    };
    Diagnostic::error("config::host", title)
        .at(again.place.as_ref(), "again here")
        .beside(first.place.as_ref(), "first here")
        .help(help)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_root_keeps_the_links_in_it_and_loses_its_detours() {
        let place = tempfile::tempdir().expect("a directory");
        let place = place.path().canonicalize().expect("it is there");
        std::fs::create_dir_all(place.join("releases/1/public")).expect("directories");
        std::fs::create_dir(place.join("conf")).expect("a directory");
        symlink("releases/1", place.join("current")).expect("a link");
        let plain = |written: &str| {
            let path = place.join(written);
            let real = path.canonicalize().expect("it is there");
            let plain = without_detours(&path, real);
            plain.strip_prefix(&place).expect("inside").display().to_string()
        };
        let rows = [
            ("current/public", "current/public"),
            ("conf/../current", "current"),
            ("conf/./../releases/1", "releases/1"),
            ("current/../1/public", "current/../1/public"),
        ];
        for (written, expected) in rows {
            assert_eq!(plain(written), expected);
        }
    }
}
