//! Resolves `run` of a pool and `worker` of a site: who takes requests inside PHP's program, and which scripts stay booted.

use std::path::Path;

use haulier_php::Embedded;
use haulier_server::WorkerScript;
use haulier_settings::{Diagnostic, Placed, Report};

use super::file::WorkerMode;
use super::settings::{BootedScript, Pool, Site};
use super::site::without_detours;
use super::tables::PoolTable;
use crate::app::stays_booted;
use crate::own_workers::NoOwnWorkers;
use crate::php_discovery::PhpCgi;

/// Workers of our own, if the pool wants them and they run in this PHP; or why `auto` does without them.
pub(super) fn choose(table: &PoolTable, php: &PhpCgi, report: &mut Report) -> (Option<Embedded>, Option<NoOwnWorkers>) {
    let written = table.supervised.run.as_ref();
    let place = written.and_then(|run| run.place.as_ref());
    let embedded = || Embedded {
        version: php.own_workers.clone().unwrap_or_default(),
        script: None,
        release: None,
    };
    match (written.map_or("auto", |run| run.value.as_str()), &php.own_workers) {
        ("auto" | "embed", Ok(_)) => return (Some(embedded()), None),
        ("auto", Err(why)) => return (None, Some(why.clone())),
        ("cgi", _) => {}
        ("embed", Err(why)) => report.push(
            Diagnostic::error(
                "config::value",
                format!(
                    "haulier's own workers do not run in PHP {} ({})",
                    php.version,
                    php.path.display()
                ),
            )
            .at(place, why.to_string())
            .help("`run = \"auto\"` takes php-cgi's own loop where they do not run"),
        ),
        (other, _) => report.push(
            Diagnostic::error("config::value", format!("`run` knows no \"{other}\""))
                .at(place, "expected \"auto\", \"cgi\" or \"embed\""),
        ),
    }
    (None, None)
}

/// A script that stays booted, which must exist.
pub(super) fn script(written: &Placed<String>, directory: &Path, report: &mut Report) -> Option<BootedScript> {
    let path = directory.join(&written.value);
    match path.canonicalize() {
        Ok(real) if real.is_file() => Some(BootedScript {
            file: without_detours(&path, real),
            place: written.place.clone(),
            env: Vec::new(),
            is_optional: false,
        }),
        _ => {
            let title = format!("worker script {} does not exist", path.display());
            report.push(
                Diagnostic::error("site::worker", title)
                    .at(written.place.as_ref(), "expected a PHP script of the project"),
            );
            None
        }
    }
}

/// The script as a path in the document root, if it stands there.
pub(super) fn front_of(script: &BootedScript, root: &Path, extensions: &[String]) -> Option<String> {
    let (file, root) = (script.file.canonicalize().ok()?, root.canonicalize().ok()?);
    let path = format!("/{}", file.strip_prefix(root).ok()?.to_str()?);
    extensions
        .iter()
        .any(|extension| path.ends_with(extension))
        .then_some(path)
}

/// Looks for scripts that are made to stay booted, in sites that name none, and keeps them booted as `mode` says.
pub(super) fn find_scripts(mode: WorkerMode, sites: &mut [Site], report: &mut Report) {
    let runtime = std::env::var("APP_RUNTIME").ok();
    for site in sites.iter_mut().filter(|site| site.worker.is_none()) {
        let Some(project) = &site.project else { continue };
        site.bootable = stays_booted::find(project, &site.app, runtime.as_deref());
        match (&site.bootable, mode) {
            (_, WorkerMode::AsWritten) | (None, WorkerMode::Found) => {}
            (Some(found), _) => {
                site.worker = Some(BootedScript {
                    file: found.file.clone(),
                    place: None,
                    env: found.env.iter().cloned().collect(),
                    is_optional: mode == WorkerMode::Found,
                });
                let front = || front_of(site.worker.as_ref()?, &site.app.root, &site.php.scripts.extensions);
                site.front = site.front.clone().or_else(front);
            }
            (None, WorkerMode::Demanded) => report.push(
                Diagnostic::error("site::worker", format!("no script in {} is made to stay booted", project.display()))
                    .help("looked for: symfony/runtime 7.4, runtime/frankenphp-symfony, laravel/octane with public/frankenphp-worker.php, a worker.php that calls frankenphp_handle_request()")
                    .help("name one with --worker SCRIPT"),
            ),
        }
    }
}

/// Gives each script that stays booted a pool: that of its site, with workers that boot it. Parts of sites with the same
/// script share one.
pub(super) fn boot_scripts(sites: &mut [Site], pools: &mut Vec<Pool>, report: &mut Report) {
    for site in sites {
        boot_script(site, "", pools, report);
        for route in &mut site.routes {
            let path = route.rules.path.as_str().trim_end_matches(['*', '/']).to_owned();
            if let Some(mount) = &mut route.mount {
                boot_script(&mut mount.site, &path, pools, report);
            }
        }
    }
}

fn boot_script(site: &mut Site, path: &str, pools: &mut Vec<Pool>, report: &mut Report) {
    let Some(script) = &site.worker else { return };
    let found = match own_version(site, pools) {
        Ok(found) => found,
        Err(why) => {
            if !script.is_optional {
                let title = format!("{} cannot stay booted", script.file.display());
                report.push(
                    Diagnostic::error("site::worker", title)
                        .at(script.place.as_ref(), why)
                        .help("without `worker` each request boots the application"),
                );
            }
            site.worker = None;
            return;
        }
    };
    let (base, version) = (&pools[found.0], found.1);
    let embedded = Embedded {
        version,
        script: Some(script.file.clone()),
        release: None,
    };
    let mut pool = base.clone();
    let is_free = |name: &str| pools.iter().all(|pool| pool.settings.name != name);
    let name = format!("{}/{}{path}", base.settings.name, site.settings.name);
    let further = (2..).map(|number| format!("{name}-{number}"));
    if let Some(own) = pool.settings.kind.supervised_mut() {
        own.embedded = Some(embedded);
        own.env.extend(script.env.iter().cloned());
    }
    let is_same = |other: &Pool| other.table == pool.table && other.settings.kind == pool.settings.kind;
    let known = pools.iter().position(is_same);
    site.php.worker = Some(WorkerScript {
        file: script.file.clone(),
        pool: known.unwrap_or(pools.len()),
    });
    if known.is_none() {
        pool.settings.name = std::iter::once(name.clone())
            .chain(further)
            .find(|name| is_free(name))
            .unwrap_or(name);
        pools.push(pool);
    }
}

/// The pool of a site with the version of our own workers that run in it, or why its script cannot stay booted.
fn own_version(site: &Site, pools: &[Pool]) -> Result<(usize, String), String> {
    if site.front_script().is_none() {
        return Err(
            "no request leads to it: it is not in the document root, and the site has no front controller".to_owned(),
        );
    }
    let pool = site
        .pool
        .filter(|&pool| pool < pools.len())
        .ok_or("the site runs no PHP")?;
    let php = pools[pool]
        .php
        .as_ref()
        .ok_or("another program runs the PHP of its pool")?;
    let version = php.own_workers.clone().map_err(|why| why.to_string())?;
    Ok((pool, version))
}
