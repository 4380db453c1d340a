//! `haulier check`: is the configuration right, is the machine ready?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use haulier_php::User;
use haulier_server::Address;
use haulier_settings::value::show_size;
use haulier_settings::{Diagnostic, Report};
use rustix::fs::{Access, Mode as Bits, stat};

use super::configuration;
use super::live;
use crate::account;
use crate::certificates::{CertificateSource, Tls};
use crate::cli::{CheckArgs, Console};
use crate::config;
use crate::config::settings::{AdminAddress, Mode, Pool, Settings, Site};
use crate::lifecycle::cannot_listen;
use crate::machine::Machine;
use crate::outcome::CommandOutcome;
use crate::port_holder;
use crate::quantity::{self, plural};

pub(super) fn run(arguments: &CheckArgs, console: &Console) -> CommandOutcome {
    let mut report = Report::default();
    let (path, file) = match configuration::find_and_load(arguments.config.as_deref(), &mut report) {
        Ok(loaded) => loaded,
        Err(diagnostic) => {
            report.push(diagnostic);
            return answer(Path::new("haulier"), &report, None, arguments, console);
        }
    };
    let machine = Machine::look();
    let settings = config::resolve(&file, Mode::Run, &machine, &mut report);
    if report.errors() > 0 {
        return answer(&path, &report, None, arguments, console);
    }
    check_machine(&settings, &mut report);
    if arguments.live {
        live::check(&settings, &mut report);
    }
    answer(&path, &report, Some((&settings, &machine)), arguments, console)
}

/// Prints the findings on standard output: they are the result of the command.
fn answer(
    path: &Path,
    report: &Report,
    understood: Option<(&Settings, &Machine)>,
    arguments: &CheckArgs,
    console: &Console,
) -> CommandOutcome {
    let mut output = io::stdout().lock();
    // A closed standard output is not a failure.
    let _ = if arguments.json {
        writeln!(output, "{}", as_json(path, report, understood))
    } else {
        let facts = understood
            .map(|(settings, machine)| facts(settings, machine))
            .unwrap_or_default();
        let verdict = verdict(report, understood.map(|(settings, _)| settings));
        writeln!(
            output,
            "{}{facts}{}: {verdict}",
            report.render(console.colors_stdout()),
            path.display()
        )
    };
    if report.errors() > 0 {
        CommandOutcome::Misused
    } else {
        CommandOutcome::Done
    }
}

/// `2 errors, 1 warning`, or `ok — 2 sites, 1 pool of 8`
fn verdict(report: &Report, settings: Option<&Settings>) -> String {
    let counts = quantity::findings(report);
    let Some(settings) = settings.filter(|_| report.errors() == 0) else {
        return counts;
    };
    let sites = plural(settings.sites.len(), "site");
    let workers: Vec<String> = settings.pools.iter().map(|pool| pool.workers().to_string()).collect();
    let mut text = format!("ok — {sites}");
    if !workers.is_empty() {
        text.push_str(&format!(
            ", {} of {}",
            plural(workers.len(), "pool"),
            workers.join(" and ")
        ));
    }
    if !counts.is_empty() {
        text.push_str(&format!(", {counts}"));
    }
    text
}

/// A line for each site, pool and address.
fn facts(settings: &Settings, machine: &Machine) -> String {
    let mut text = String::new();
    for site in &settings.sites {
        text.push_str(&format!(
            "site {}: {}\n",
            site.settings.name,
            describe_site(site, &settings.pools)
        ));
        if let Some(remark) = &site.htaccess {
            text.push_str(&format!("site {}: {remark}\n", site.settings.name));
        }
        if let Some(remark) = site.booted_remark(Mode::Run, &settings.pools) {
            text.push_str(&format!("{remark}\n"));
        }
        if let Some(sent) = describe_sent(site, settings) {
            text.push_str(&format!(
                "scripts of {} may have files sent {sent}\n",
                site.settings.name
            ));
        }
    }
    for pool in &settings.pools {
        text.push_str(&format!("pool {}: {}\n", pool.settings.name, describe_pool(pool)));
        if let Some(remark) = pool.remark() {
            text.push_str(&format!("{remark}\n"));
        }
    }
    let addresses = |addresses: &[Address]| {
        let addresses: Vec<String> = addresses.iter().map(Address::to_string).collect();
        addresses.join(", ")
    };
    let secure = settings
        .tls
        .as_ref()
        .map_or_else(String::new, |tls| format!(", with TLS on {}", addresses(&tls.listen)));
    text.push_str(&format!(
        "listens on {}{secure} with {}\n",
        addresses(&settings.server.listen),
        plural(settings.server.threads, "thread")
    ));
    for plan in settings.tls.iter().flat_map(|tls| &tls.certificates) {
        text.push_str(&format!("certificate for {}: {}\n", plan.hosts.join(", "), plan.source));
    }
    text.push_str(&format!(
        "{} at once: {} descriptors are allowed, the others are kept for open files, PHP and logs\n\n",
        plural(settings.server.limits.connections, "connection"),
        machine.descriptors
    ));
    text
}

fn describe_site(site: &Site, pools: &[Pool]) -> String {
    let front = site
        .front
        .as_ref()
        .map_or_else(String::new, |front| format!(" ({front})"));
    let pool = site
        .pool
        .map_or_else(String::new, |pool| format!(", pool {}", pools[pool].settings.name));
    let what = site
        .images_alone()
        .unwrap_or_else(|| format!("{} in {}{front}", site.app.preset.title, site.app.root.display()));
    let worker = site.php.worker.as_ref().map_or_else(String::new, |worker| {
        let pool = &pools[worker.pool].settings.name;
        format!(", {} stays booted in pool {pool}", worker.file.display())
    });
    format!(
        "{what} for {}{pool}{worker}, request bodies up to {}",
        site.settings.hosts.join(", "),
        show_size(site.settings.limits.body)
    )
}

/// The directories of files that scripts may name, and the account that opens them; `None` if no such files are sent.
fn describe_sent(site: &Site, settings: &Settings) -> Option<String> {
    let pool = &settings.pools[site.pool?];
    let roots = site
        .php
        .sendfile
        .roots
        .iter()
        .map(|root| format!("from {}", root.display()));
    let map = site.php.sendfile.map.iter();
    let mapped = map.map(|(prefix, directory)| format!("as {prefix} from {}", directory.display()));
    let places: Vec<String> = roots.chain(mapped).collect();
    if places.is_empty() {
        return None;
    }
    let mut text = places.join(", ");
    // haulier opens them as its own account: as root that is more than PHP may open.
    let opens_as_root = account::is_root() && settings.user.as_ref().is_none_or(|user| user.uid == 0);
    let reader = match pool.settings.kind.supervised() {
        Some(own) => {
            let user = own.user.as_ref().filter(|user| user.uid != 0);
            user.map(|user| user.name.as_str())
        }
        // The account of PHP is not known here.
        None => Some("PHP"),
    };
    if let Some(reader) = reader.filter(|_| opens_as_root) {
        text.push_str(&format!(
            "; they are opened as root, also those that {reader} may not read"
        ));
    }
    Some(text)
}

fn describe_pool(pool: &Pool) -> String {
    match (pool.settings.kind.supervised(), &pool.php) {
        (Some(supervised), Some(php)) => {
            let user = supervised
                .user
                .as_ref()
                .map_or_else(String::new, |user| format!(" as {}", user.name));
            let memory = php.memory_limit.map_or_else(
                || "no memory_limit".to_owned(),
                |limit| format!("memory_limit {}", show_size(limit)),
            );
            format!(
                "{} of PHP {} ({}){user}, {memory}",
                plural(supervised.workers, pool.worker_kind()),
                php.version,
                php.path.display()
            )
        }
        _ => format!(
            "{} to FastCGI servers that are already running",
            plural(pool.workers(), "connection")
        ),
    }
}

fn as_json(path: &Path, report: &Report, understood: Option<(&Settings, &Machine)>) -> serde_json::Value {
    let sites = |settings: &Settings| -> Vec<serde_json::Value> {
        let one = |site: &Site| {
            serde_json::json!({
                "name": site.settings.name,
                "hosts": site.settings.hosts,
                "app": site.app.preset.name,
                "root": (!site.is_rootless).then_some(&site.app.root),
                "images": site.images.as_ref().and_then(|images| images.store.as_ref()).map(|store| store.location.to_string()),
                "front": site.front,
                "worker": site.worker.as_ref().map(|worker| &worker.file),
                "pool": site.pool.map(|pool| settings.pools[pool].settings.name.as_str()),
                "body": site.settings.limits.body,
                "htaccess": site.htaccess,
                "sendfile": {
                    "roots": site.php.sendfile.roots,
                    "map": site.php.sendfile.map.iter().cloned().collect::<BTreeMap<_, _>>(),
                },
            })
        };
        settings.sites.iter().map(one).collect()
    };
    let pools = |settings: &Settings| -> Vec<serde_json::Value> {
        let version = |pool: &Pool| pool.php.as_ref().map(|php| php.version.clone());
        let one = |pool: &Pool| serde_json::json!({"name": pool.settings.name, "workers": pool.workers(), "php": version(pool), "run": pool.run(), "remark": pool.remark()});
        settings.pools.iter().map(one).collect()
    };
    serde_json::json!({
        "file": path,
        "errors": report.errors(),
        "warnings": report.warnings(),
        "findings": report.to_json(),
        "sites": understood.map(|(settings, _)| sites(settings)),
        "pools": understood.map(|(settings, _)| pools(settings)),
        "listen": understood.map(|(settings, _)| settings.server.listen.iter().map(Address::to_string).collect::<Vec<_>>()),
        "connections": understood.map(|(settings, _)| settings.server.limits.connections),
        "descriptors": understood.map(|(_, machine)| machine.descriptors),
    })
}

fn check_machine(settings: &Settings, report: &mut Report) {
    let secure = settings.tls.iter().flat_map(|tls| &tls.listen);
    let mut holders = Vec::new();
    for address in settings.server.listen.iter().chain(secure) {
        holders.extend(check_listen(address, settings.server.reuse_port, report));
    }
    check_admin("admin", &settings.admin, &holders, report);
    check_admin("probes", &settings.probes, &holders, report);
    for site in settings.sites.iter().filter(|site| !site.is_rootless) {
        check_readable(site, settings, report);
    }
    check_send_roots(settings, report);
    check_writable("spool_dir", &settings.server.spool_dir, settings, report);
    if let Some(tls) = &settings.tls {
        check_keys(tls, settings, report);
    }
    let of_sites = settings.sites.iter().map(|site| &site.log.file);
    let logs: BTreeSet<&Path> = of_sites
        .chain([&settings.log.file])
        .flatten()
        .map(PathBuf::as_path)
        .collect();
    for log in logs {
        let place = if log.exists() { log } else { log.parent().unwrap_or(log) };
        check_writable("log::file", place, settings, report);
    }
}

/// The serving account must be able to create files there, or to write to the one.
fn check_writable(code: &'static str, path: &Path, settings: &Settings, report: &mut Report) {
    let Ok(found) = stat(path) else { return }; // reported already
    let bits = Bits::from_raw_mode(found.st_mode);
    let (may, who) = match &settings.user {
        Some(user) => (may(user, found.st_uid, found.st_gid, bits, WRITE), user.name.as_str()),
        None => (rustix::fs::access(path, Access::WRITE_OK).is_ok(), "us"),
    };
    if !may {
        let mode = found.st_mode & 0o7777;
        let title = format!("{} is not writable by `{who}` (mode {mode:04o})", path.display());
        report.push(Diagnostic::warning(code, title));
    }
}

/// A key that only root may read is read when haulier starts, and not again once it has become another account.
fn check_keys(tls: &Tls, settings: &Settings, report: &mut Report) {
    let Some(user) = &settings.user else { return };
    for plan in &tls.certificates {
        let CertificateSource::Files { key, .. } = &plan.source else {
            continue;
        };
        let Ok(found) = stat(key) else { continue };
        let bits = Bits::from_raw_mode(found.st_mode);
        if !may(user, found.st_uid, found.st_gid, bits, READ) {
            let title = format!("{} is not readable by `{}`", key.display(), user.name);
            report.push(
                Diagnostic::warning("tls::key", title).help("a renewed certificate is served only after a restart"),
            );
        }
    }
}

/// Checks an address; returns the pid of its holder if it is known. A running haulier may hold it: `check` runs while the
/// server does.
fn check_listen(address: &Address, reuse_port: bool, report: &mut Report) -> Option<u32> {
    let tried = match address {
        Address::Internet(address) => TcpListener::bind(address).map(drop),
        Address::Unix(path) => try_socket(path),
    };
    let error = tried.err()?;
    let holder = address.internet().and_then(port_holder::find);
    // The holder of a Unix socket is unknown; another program would hardly choose our path.
    let is_unix = address.internet().is_none();
    let is_ours = is_unix || holder.as_ref().is_some_and(|holder| holder.name == "haulier");
    if error.kind() == ErrorKind::AddrInUse && (reuse_port || is_ours) {
        report.push(Diagnostic::warning(
            "bind",
            format!("a running haulier listens on {address}"),
        ));
    } else {
        report.push(cannot_listen(address, &error));
    }
    holder.map(|holder| holder.pid)
}

/// Checks an admin address. The haulier that holds our ports (`ours`) may hold it. Another haulier gives a warning, as it
/// may be the same server before a change of its port; another program gives an error.
fn check_admin(key: &str, address: &AdminAddress, ours: &[u32], report: &mut Report) {
    let AdminAddress::Tcp(address) = address else { return };
    let Err(error) = TcpListener::bind(address) else { return };
    let Some(holder) = port_holder::find(*address).filter(|holder| !ours.contains(&holder.pid)) else {
        return;
    };
    report.push(if holder.name == "haulier" {
        let title = format!("another {holder} has the address of `{key}`, {address}");
        let help = format!("to run beside it, set `{key}` in `[server]` to another address or to \"off\"");
        Diagnostic::warning("bind", title).help(help)
    } else {
        cannot_listen(&(*address).into(), &error).help(format!("this is `{key}` in `[server]`"))
    });
}

/// Checks whether a socket could be created at `path`.
fn try_socket(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::access(directory, Access::WRITE_OK)?;
    match UnixStream::connect(path) {
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound) => Ok(()),
        Err(_) if fs::symlink_metadata(path)?.file_type().is_socket() => Ok(()),
        Err(_) => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "a file that is no socket is in the way",
        )),
    }
}

/// The front controller, or the document root itself, must be readable by the account that serves, and by the one PHP
/// runs as.
fn check_readable(site: &Site, settings: &Settings, report: &mut Report) {
    let of_pool = site.pool.and_then(|pool| settings.pools[pool].settings.kind.user());
    let path = match &site.front {
        Some(front) => site.app.root.join(front.trim_start_matches('/')),
        None => site.app.root.clone(),
    };
    let found = match stat(&path) {
        Ok(found) => found,
        Err(error) => {
            let title = format!("{} cannot be read: {error}", path.display());
            report.push(Diagnostic::error("site::root", title));
            return;
        }
    };
    let bits = Bits::from_raw_mode(found.st_mode);
    let serving = settings.user.as_ref().filter(|user| of_pool != Some(user));
    for user in of_pool.into_iter().chain(serving) {
        if let Some(shut) = shut_to(user, &path) {
            report.push(shut);
        } else if !may(user, found.st_uid, found.st_gid, bits, READ) {
            let title = format!(
                "{} is not readable by user `{}` (mode {:04o})",
                path.display(),
                user.name,
                found.st_mode & 0o7777
            );
            // Access lists and further groups may allow what the mode does not show.
            report.push(Diagnostic::warning("site::root", title));
        }
    }
}

/// The serving account opens the files that scripts name.
fn check_send_roots(settings: &Settings, report: &mut Report) {
    let Some(user) = &settings.user else { return };
    for sendfile in settings.sites.iter().map(|site| &site.php.sendfile) {
        let mapped = sendfile.map.iter().map(|(_, directory)| directory);
        let roots: BTreeSet<&PathBuf> = sendfile.roots.iter().chain(mapped).collect();
        for shut in roots.into_iter().filter_map(|root| shut_to(user, &root.join("a file"))) {
            report.push(shut);
        }
    }
}

/// The first directory on the way to `path` that `user` may not enter.
fn shut_to(user: &User, path: &Path) -> Option<Diagnostic> {
    let path = std::path::absolute(path).ok()?;
    let mut directories: Vec<&Path> = path.ancestors().skip(1).collect();
    directories.reverse();
    directories.into_iter().find_map(|directory| {
        let found = stat(directory).ok()?;
        let bits = Bits::from_raw_mode(found.st_mode);
        let title = format!(
            "user `{}` may not enter {} (mode {:04o}) on the way to {}",
            user.name,
            directory.display(),
            found.st_mode & 0o7777,
            path.display()
        );
        let help = format!("chmod o+x {}, or put it elsewhere", directory.display());
        let is_shut = !may(user, found.st_uid, found.st_gid, bits, ENTER);
        // Access lists and further groups may allow what the mode does not show.
        is_shut.then(|| Diagnostic::warning("site::root", title).help(help))
    })
}

/// The bits of owner, group and others for reading.
const READ: [Bits; 3] = [Bits::RUSR, Bits::RGRP, Bits::ROTH];
/// The bits of owner, group and others for writing.
const WRITE: [Bits; 3] = [Bits::WUSR, Bits::WGRP, Bits::WOTH];

/// The bits of owner, group and others for entering a directory.
const ENTER: [Bits; 3] = [Bits::XUSR, Bits::XGRP, Bits::XOTH];

fn may(user: &User, owner: u32, group: u32, bits: Bits, wanted: [Bits; 3]) -> bool {
    if user.uid == 0 {
        return true;
    }
    let [of_owner, of_group, of_others] = wanted;
    bits.contains(match () {
        () if user.uid == owner => of_owner,
        () if user.gid == group => of_group,
        () => of_others,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_on_the_way_that_is_shut_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let (home, file) = (place.path().join("home"), place.path().join("home/shop/index.php"));
        fs::create_dir_all(home.join("shop")).expect("the directory is ours");
        let chmod =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        chmod(place.path(), 0o711);
        let nobody = User {
            name: "nobody".to_owned(),
            uid: 65534,
            gid: 65534,
        };
        for (mode, is_shut) in [(0o700, true), (0o750, true), (0o701, false), (0o755, false)] {
            chmod(&home, mode);
            let shut = shut_to(&nobody, &file).map(|shut| shut.title().to_owned());
            assert_eq!(shut.is_some(), is_shut, "{mode:o}: {shut:?}");
            assert!(shut.is_none_or(|title| title.contains(&format!("{} (mode {mode:04o})", home.display()))));
        }
    }

    #[test]
    fn the_first_class_that_fits_decides_who_may_read() {
        let user = User {
            name: "web".to_owned(),
            uid: 33,
            gid: 33,
        };
        let reads = |owner, group, mode| may(&user, owner, group, Bits::from_raw_mode(mode), READ);
        assert!(reads(33, 0, 0o600));
        assert!(!reads(33, 33, 0o044), "the owner has no bit, whatever others have");
        assert!(reads(0, 33, 0o640));
        assert!(!reads(0, 33, 0o604));
        assert!(reads(0, 0, 0o644));
        assert!(!reads(0, 0, 0o640));
    }
}
