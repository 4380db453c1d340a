//! What the `[site.NAME]` tables mean: the project found, its application recognised, its rules checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haulier_server::route::glob::Glob;
use haulier_server::settings::{CompressSettings, Maintenance, RateLimiter};

use super::diagnostic::{Diagnostic, Report};
use super::file::{File, MaintenanceTable, SiteTable};
use super::settings::{BODY, Site, SiteLog, value_or};
use super::source::Placed;
use super::{dictionary, downloads, reader, route, rules, value};
use crate::app::{self, App, DetectError, PRESETS, Preset};

/// Spooled responses of one site.
const SPOOL: u64 = 2 << 30;
/// When clients come back to a site that is closed.
const RETRY_AFTER: Duration = Duration::from_secs(300);

pub(super) fn resolve_all(file: &File, report: &mut Report) -> Vec<Site> {
    if file.sites.is_empty() && report.errors() == 0 {
        report.push(
            Diagnostic::error("config::site", "no site: there is nothing to serve")
                .help("the smallest configuration is `[site.NAME]` with `root = \"/path/of/the/project\"`"),
        );
    }
    let limiter = file.limits.requests_per_ip.as_ref();
    let limiter = limiter.map(|rate| Arc::new(RateLimiter::new(rate.value)));
    let resolve = |table| resolve_site(table, limiter.as_ref(), report);
    let sites: Vec<Site> = file.sites.iter().map(resolve).collect();
    check_hosts(&file.sites, report);
    sites
}

/// A site with no usable root still gets its other rules checked: all errors are reported at once.
pub(super) fn resolve_site(table: &SiteTable, limiter: Option<&Arc<RateLimiter>>, report: &mut Report) -> Site {
    let project = resolve_root(table, report);
    let app = project.as_ref().and_then(|project| resolve_app(table, project, report));
    let app = app.unwrap_or_else(|| nothing_found(project.as_deref()));
    let preset = app.preset;
    let hosts = match &table.hosts {
        Some(hosts) => hosts.iter().filter_map(|host| rules::host(host, report)).collect(),
        None => vec!["*".to_owned()],
    };
    let front = resolve_front(table, &app, report);
    let mut deny = rules::globs(table.deny.as_deref().unwrap_or(&[]), report);
    deny.extend(preset_globs(preset.deny));
    let mut cache = table
        .cache
        .as_ref()
        .map(|pairs| rules::cache(pairs, report))
        .unwrap_or_default();
    cache.extend(preset_cache(preset));
    let canonical = table
        .canonical
        .as_ref()
        .and_then(|written| rules::canonical(written, &hosts, report));
    let error_pages = table
        .errors
        .as_ref()
        .map(|pairs| rules::error_pages(pairs, &app.root, report))
        .unwrap_or_default();
    let maintenance = table
        .maintenance
        .as_ref()
        .and_then(|maintenance| resolve_maintenance(maintenance, &table.directory, &app.root, report));
    let mut site = Site {
        name: table.name.value.clone(),
        hosts,
        pool: None,
        front,
        scripts: preset_globs(preset.scripts).collect(),
        never: preset_globs(preset.never).collect(),
        deny,
        headers: table
            .headers
            .as_ref()
            .map(|pairs| rules::headers(pairs, report))
            .unwrap_or_default(),
        redirects: table
            .redirects
            .as_ref()
            .map(|pairs| rules::redirects(pairs, report))
            .unwrap_or_default(),
        cache,
        rewrites: table
            .rewrites
            .as_ref()
            .map(|pairs| rules::rewrites(pairs, report))
            .unwrap_or_default(),
        canonical,
        error_pages,
        maintenance,
        requests_per_ip: match &table.requests_per_ip {
            Some(rate) => Some(Arc::new(RateLimiter::new(rate.value))),
            None => limiter.cloned(),
        },
        routes: Vec::new(),
        body_limit: BODY,
        spool_limit: table.offload.spool.as_ref().map_or(SPOOL, |spool| spool.value),
        sendfile: downloads::sendfile(table, project.as_deref(), report),
        offload: downloads::offload(&table.offload, report),
        log: SiteLog::default(),
        compress: CompressSettings::default(),
        dictionary: dictionary::resolve(&table.dictionary, report),
        without_tls: None,
        app,
    };
    site.routes = route::resolve_all(table, &site, report);
    site
}

/// Whether the file exists is asked when requests come; that somebody could make it is enough.
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
                    table.place.as_ref(),
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
        retry_after: value_or(table.retry_after.as_ref(), RETRY_AFTER),
    })
}

/// What a site without a usable root counts as, so that its other rules are still checked.
fn nothing_found(project: Option<&Path>) -> App {
    let preset = PRESETS.last().expect("the table is not empty");
    App {
        preset,
        root: project.unwrap_or(Path::new("/")).to_owned(),
        front: None,
    }
}

/// The project directory, absolute and without symbolic links.
fn resolve_root(table: &SiteTable, report: &mut Report) -> Option<PathBuf> {
    let Some(root) = &table.root else {
        // A root that is there but is no text has had its error already.
        if !table.root_written {
            report.push(
                Diagnostic::error("config::site", format!("site `{}` has no `root`", table.name.value))
                    .at(table.name.place.as_ref(), "needs the directory of its project")
                    .help("add `root = \"/path/of/the/project\"`"),
            );
        }
        return None;
    };
    let path = table.directory.join(&root.value);
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Some(path),
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

fn resolve_app(table: &SiteTable, project: &Path, report: &mut Report) -> Option<App> {
    let name = table.app.as_ref().map_or("auto", |app| app.value.as_str());
    let place = table.app.as_ref().and_then(|app| app.place.as_ref());
    let found = match (app::detect(project, name), &table.document_root) {
        // A document root that is named may hold what its project does not show.
        (Err(DetectError::NotThere { .. }), Some(root)) => app::detect(root, name),
        (found, _) => found,
    };
    match found {
        Ok(mut app) => {
            if let Some(root) = &table.document_root {
                app.root.clone_from(root);
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

/// The front controller: as the site says, else as its application says; it has to be there.
fn resolve_front(table: &SiteTable, app: &App, report: &mut Report) -> Option<String> {
    let Some(written) = &table.front else {
        return app.front.clone();
    };
    let path = written.value.trim_start_matches('/');
    let climbs = path.split('/').any(|part| part == "..");
    if path.is_empty() || climbs || !app.root.join(path).is_file() {
        let title = format!("front controller {} is not in {}", written.value, app.root.display());
        report.push(Diagnostic::error("site::front", title).at(
            written.place.as_ref(),
            "expected a script in the document root, such as \"/index.php\"",
        ));
    }
    Some(format!("/{path}"))
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

/// A host name belongs to one site.
fn check_hosts(tables: &[SiteTable], report: &mut Report) {
    let mut owners: HashMap<String, Placed<String>> = HashMap::new();
    for table in tables {
        let every = [table.name.with("*".to_owned())];
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
