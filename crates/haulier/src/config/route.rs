//! Resolves the `[[site.NAME.route]]` tables.

use std::sync::Arc;

use haulier_server::pattern::glob::Glob;
use haulier_server::{Htpasswd, HtpasswdError, Login, RouteSettings, RouteTable};
use haulier_settings::{Diagnostic, Placed, Report};

use super::settings::{Mount, Route, Site};
use super::tables::SiteTable;
use super::{rules, site, workers};

/// All routes of a site. Those with a root come first: a route for a part of such a mount is one of that mount.
pub(super) fn resolve_all(table: &SiteTable, site: &Site, report: &mut Report) -> Vec<Route> {
    let (with_root, others): (Vec<_>, Vec<_>) = table.route.iter().partition(|route| route.root.is_some());
    let mut routes: Vec<Route> = Vec::with_capacity(table.route.len());
    for route in with_root.into_iter().chain(others) {
        if let Some(route) = resolve(route, table, site, &routes, report) {
            routes.push(route);
        }
    }
    routes
}

fn resolve(route: &RouteTable, table: &SiteTable, site: &Site, before: &[Route], report: &mut Report) -> Option<Route> {
    let Some(path) = &route.path else {
        report.push(
            Diagnostic::error("config::route", "a route without `path`")
                .at(route.heading.name.place.as_ref(), "needs the paths it is for")
                .help("add `path = \"/admin/*\"`"),
        );
        return None;
    };
    let allow = route.allow.as_deref();
    let rate = route.rate.as_ref();
    let rules = RouteSettings {
        path: rules::glob(path, report)?,
        allow: allow.map(|networks| rules::networks(networks, report)),
        login: route.basic_auth.as_ref().and_then(|file| login(file, table, report)),
        rate: rate.map(|rate| Arc::new(super::value::limiter(rate.value))),
        ..RouteSettings::from(route)
    };
    let mount = match &route.root {
        Some(root) => mount_root(route, root, path, table, site, report),
        None if route.pool.is_none() && route.worker.is_none() => None,
        None => {
            let mut mount = enclosing(path, before).unwrap_or_else(|| part_of(site));
            if let Some(worker) = &route.worker {
                set_worker(worker, &mut mount.site, table, report);
            }
            Some(mount)
        }
    };
    check_effect(route, path, report);
    Some(Route {
        rules,
        pool: route.pool.clone(),
        mount,
    })
}

/// Reports a route without effect, and settings that need `root`.
fn check_effect(route: &RouteTable, path: &Placed<String>, report: &mut Report) {
    let says_something = route.pool.is_some()
        || route.worker.is_some()
        || route.root.is_some()
        || route.deny.is_some()
        || route.allow.is_some()
        || route.basic_auth.is_some()
        || route.rate.is_some();
    let of_a_root = [("app", &route.app), ("front", &route.front)];
    let orphan = of_a_root
        .iter()
        .find_map(|(name, written)| Some((name, written.as_ref()?)));
    match orphan {
        Some((name, written)) if route.root.is_none() => report.push(
            Diagnostic::error("config::route", format!("`{name}` in a route without `root`"))
                .at(written.place.as_ref(), "says what another project is")
                .help("add the `root` of that project, or say it for the whole site"),
        ),
        _ if !says_something => report.push(
            Diagnostic::error("config::route", format!("the route \"{}\" says nothing", path.value))
                .at(path.place.as_ref(), "what holds for these paths?")
                .help("a route has `pool`, `worker`, `root`, `deny`, `allow`, `basic_auth` or `rate`"),
        ),
        _ => {}
    }
}

/// Another project, detected like that of a site.
fn mount_root(
    route: &RouteTable,
    root: &Placed<String>,
    path: &Placed<String>,
    table: &SiteTable,
    outer: &Site,
    report: &mut Report,
) -> Option<Mount> {
    let prefix = path.value.strip_suffix("/*").filter(|prefix| is_plain(prefix));
    let Some(prefix) = prefix else {
        report.push(
            Diagnostic::error(
                "config::route",
                format!("no place for another root: \"{}\"", path.value),
            )
            .at(path.place.as_ref(), "expected a prefix, such as \"/wiki/*\"")
            .beside(root.place.as_ref(), "what the `*` stands for is looked for here"),
        );
        return None;
    };
    let mut own = SiteTable::rooted(&table.heading.name.value, std::path::Path::new(""));
    own.heading.directory.clone_from(&table.heading.directory);
    own.root = Some(root.clone());
    if let Some(app) = &route.app {
        own.app.set_placed(app.clone());
    }
    own.front.clone_from(&route.front);
    own.worker.clone_from(&route.worker);
    own.worker.take_if(|worker| worker.value == OFF);
    let mut inner = site::resolve_site(&own, None, None, report);
    let scripts = &mut inner.php.scripts;
    scripts.extensions.clone_from(&outer.php.scripts.extensions);
    scripts.never = site::never_run(inner.app.preset.never, &scripts.extensions);
    inner.php.offload.clone_from(&outer.php.offload);
    inner
        .settings
        .filters
        .headers
        .clone_from(&outer.settings.filters.headers);
    let (files, of_outer) = (&mut inner.settings.files, &outer.settings.files);
    files.etag = of_outer.etag;
    files.charset.clone_from(&of_outer.charset);
    let rules = of_outer.cache.iter();
    let rules = rules.filter_map(|(glob, keep)| Some((inside(glob, prefix)?, keep.clone())));
    files.cache = rules.chain(std::mem::take(&mut files.cache)).collect();
    Some(Mount {
        site: Box::new(inner),
        prefix: prefix.to_owned(),
    })
}

fn is_plain(prefix: &str) -> bool {
    prefix.len() > 1 && prefix.starts_with('/') && !prefix.ends_with('/') && !prefix.contains(['*', '?', '{', '}'])
}

/// A pattern for paths of the site, as it reads within a mount; `None` if it names nothing there.
fn inside(glob: &Glob, prefix: &str) -> Option<Glob> {
    let text = glob.as_str();
    if !text.starts_with('/') {
        return Some(glob.clone());
    }
    let rest = text.strip_prefix(prefix).filter(|rest| rest.starts_with('/'))?;
    Glob::new(rest).ok()
}

/// The innermost mount with another root that this path is a part of.
fn enclosing(path: &Placed<String>, routes: &[Route]) -> Option<Mount> {
    let mounts = routes.iter().filter_map(|route| route.mount.as_ref());
    let around = mounts.filter(|mount| {
        let rest = path.value.strip_prefix(&mount.prefix);
        !mount.prefix.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
    });
    around.max_by_key(|mount| mount.prefix.len()).cloned()
}

/// The value of a setting that a wider route, or the site, has.
const OFF: &str = "off";

/// Boots this script for a part of a site, or none. Where it stands in the document root, it is the front controller of
/// that part.
fn set_worker(written: &Placed<String>, part: &mut Site, table: &SiteTable, report: &mut Report) {
    if written.value == OFF {
        part.worker = None;
        return;
    }
    part.worker = workers::script(written, &table.heading.directory, report);
    let front = || workers::front_of(part.worker.as_ref()?, &part.app.root, &part.php.scripts.extensions);
    if let Some(front) = front() {
        part.front = Some(front);
    }
}

/// The site itself, to be run by another pool or another script.
fn part_of(site: &Site) -> Mount {
    let mut site = site.clone();
    site.routes.clear();
    if let Some(worker) = &mut site.worker {
        worker.is_optional = true;
    }
    Mount {
        site: Box::new(site),
        prefix: String::new(),
    }
}

fn login(written: &Placed<String>, table: &SiteTable, report: &mut Report) -> Option<Login> {
    if written.value == OFF {
        return Some(Login::Off);
    }
    match Htpasswd::open(&table.heading.directory.join(&written.value)) {
        Ok(users) => Some(Login::Users(Arc::new(users))),
        Err(error) => {
            let why = match &error {
                HtpasswdError::Read { source, .. } => format!("{error}: {source}"),
                _ => error.to_string(),
            };
            report.push(
                Diagnostic::error("site::basic_auth", why)
                    .at(written.place.as_ref(), "named here")
                    .help("`htpasswd -B FILE NAME` makes such a file"),
            );
            None
        }
    }
}
