//! Resolves the tables of a file to settings. Defaults may depend on the machine (PHP, accounts, folders); sockets and
//! processes are left to `assemble`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haulier_http::Timeouts;
use haulier_server::{Address, Limits, LimitsTable, ServerSettings, SiteLimits};
use haulier_settings::{Diagnostic, Placed, Report};

use super::file::File;
use super::settings::{AdminAddress, Mode, Pool, Settings, Site};
use super::tables::{SiteTable, StopSettings};
use super::value::{BODY, to_usize, value_or};
use super::{compress, images, listen_address, pool, server, site, tls, workers};
use crate::log::{LogSettings, LogTable, SiteLog, SiteLogTable};
use crate::machine::Machine;

/// The largest flow-control window of HTTP/2, bytes (RFC 9113 §6.9.1).
const MOST_WINDOW: u32 = 0x7fff_ffff;

/// Default of `admin`.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4870);

/// Resolves a file on this machine, and adds mistakes to `report`. The result is valid only if the report has no errors.
pub(crate) fn resolve(file: &File, mode: Mode, machine: &Machine, report: &mut Report) -> Settings {
    let threads = file
        .server
        .threads
        .as_ref()
        .map_or(machine.cores, |threads| to_usize(threads.value));
    let mut sites = site::resolve_all(file, report);
    workers::find_scripts(file.worker_mode, &mut sites, report);
    let mut pools = pool::resolve_all(file, &mut sites, mode, machine, report);
    let user = server::resolve_user(file, report);
    if let Some(user) = &user {
        server::share_user(user, &file.pools, &mut pools, report);
    }
    let mounts = sites.iter().flat_map(Site::mounts).count();
    let workers = pools.iter().map(Pool::workers).sum();
    let allowed = machine.connections(workers, threads, mounts);
    let mut limits = resolve_limits(&file.limits, allowed, machine, report);
    let general = compress::resolve(&file.compress, report);
    for (site, table) in sites.iter_mut().zip(&file.sites) {
        let compress = compress::resolve_site(&table.compress, &general, report);
        let of_php = site.pool.and_then(|pool| pools[pool].php.as_ref()?.post_max_size);
        let limits = SiteLimits {
            timeouts: timeouts(table, &limits),
            ..body_limit(table, &file.limits, of_php)
        };
        for (mounted, _) in site.mounted_mut() {
            mounted.settings.limits = SiteLimits {
                timeouts: None,
                ..limits.clone()
            };
            mounted.settings.compress = compress.clone();
        }
        site.settings.limits = limits;
        site.settings.compress = compress;
        let of_images = table.images.as_ref();
        site.images = of_images.and_then(|images| images::resolve(images, table, file, machine, report));
        site.log = resolve_site_log(&table.log, report);
    }
    if file.limits.body_spool.is_none() {
        // If a site allows long bodies, two of them must fit at a time.
        let largest = sites
            .iter()
            .map(|site| site.settings.limits.body)
            .max()
            .unwrap_or_default();
        limits.body_spool = limits.body_spool.max(largest.saturating_mul(2));
    }
    let tls = tls::resolve(file, mode, &mut sites, report);
    let listen = server::resolve_listen(file, report);
    let admin = resolve_admin(file.server.admin.as_ref(), report);
    let secure = tls.iter().flat_map(|tls| &tls.listen);
    let probes = resolve_probes(file.server.probes.as_ref(), report);
    let own: Option<Address> = admin.internet().map(Address::Internet);
    check_is_apart(
        "probes",
        &probes,
        listen.iter().chain(secure.clone()).chain(&own),
        file,
        report,
    );
    check_is_apart("admin", &admin, listen.iter().chain(secure), file, report);
    let written = &file.server;
    let settings = Settings {
        config: None,
        server: ServerSettings {
            listen,
            socket_mode: server::resolve_socket_mode(written.socket_mode.as_ref(), report),
            trusted_proxies: server::resolve_proxies(file, report),
            proxy_protocol: written.proxy_protocol.get(),
            threads,
            open_files: machine.open_files(threads, mounts),
            limits,
            spool_dir: resolve_spool_dir(written.spool_dir.as_ref(), report),
            ..ServerSettings::from(&written.serving)
        },
        tls,
        user,
        stop: StopSettings::from(written),
        admin,
        probes,
        control: resolve_control(written.control.as_ref(), report),
        variants: file.compress.store.get(),
        log: resolve_log(&file.log, report),
        pools,
        sites,
    };
    // Errors in the file come first.
    if mode == Mode::Run && report.errors() == 0 {
        server::check_root(file, &settings.sites, report);
    }
    settings
}

/// The longest request body of a site: as the site says, else `[limits]`, else PHP.
fn body_limit(table: &SiteTable, limits: &LimitsTable, of_php: Option<u64>) -> SiteLimits {
    let written = |body: &Option<Placed<u64>>| body.as_ref().map(|body| body.value);
    let (body, body_setting) = match (written(&table.limits.body), written(&limits.body), of_php) {
        (Some(body), ..) => (body, "`body` in the site's `limits`"),
        (None, Some(body), _) => (body, "`body` in `[limits]`"),
        (None, None, Some(body)) => (
            body,
            "PHP's post_max_size: raise it in the pool's `ini`, or set `body` in `[limits]`",
        ),
        (None, None, None) => (BODY, "the default: set `body` in `[limits]`"),
    };
    SiteLimits {
        body,
        body_setting,
        timeouts: None,
    }
}

fn resolve_admin(written: Option<&Placed<String>>, report: &mut Report) -> AdminAddress {
    let Some(written) = written else {
        return AdminAddress::Tcp(ADMIN);
    };
    let admin = resolve_told("admin", written, report);
    if let Some(address) = admin.internet().filter(|address| !address.ip().is_loopback()) {
        report.push(
            Diagnostic::warning(
                "server::admin",
                format!("metrics are open to whoever reaches {address}"),
            )
            .at(written.place.as_ref(), "this is no loopback address")
            .help("127.0.0.1 is for this machine alone"),
        );
    }
    admin
}

/// The address of probes. Any address is allowed: the answers are of no use to strangers.
fn resolve_probes(written: Option<&Placed<String>>, report: &mut Report) -> AdminAddress {
    written.map_or(AdminAddress::Off, |written| resolve_told("probes", written, report))
}

/// An address for reports about the server.
fn resolve_told(key: &str, written: &Placed<String>, report: &mut Report) -> AdminAddress {
    if written.value == "off" {
        return AdminAddress::Off;
    }
    if let Some(path) = written.value.strip_prefix("unix:") {
        check_socket_path(key, Path::new(path), written, report);
        return AdminAddress::Unix(PathBuf::from(path));
    }
    let Some(address) = listen_address::parse(&written.value) else {
        let title = format!("not an address for `{key}`: \"{}\"", written.value);
        report.push(Diagnostic::error("config::listen", title).at(
            written.place.as_ref(),
            "expected an address such as \"127.0.0.1:4870\", \"unix:/run/haulier/admin.sock\", or \"off\"",
        ));
        return AdminAddress::Off;
    };
    AdminAddress::Tcp(address)
}

/// Checks that sites, the admin address and that of probes have different ports.
fn check_is_apart<'a>(
    key: &str,
    told: &AdminAddress,
    mut listen: impl Iterator<Item = &'a Address>,
    file: &File,
    report: &mut Report,
) {
    let &AdminAddress::Tcp(admin) = told else { return };
    let is_taken = |address: SocketAddr| {
        let same_host = address.ip() == admin.ip() || address.ip().is_unspecified() || admin.ip().is_unspecified();
        address.port() != 0 && address.port() == admin.port() && same_host
    };
    if listen.any(|address| address.internet().is_some_and(is_taken)) {
        let (written, others) = match key {
            "probes" => (file.server.probes.as_ref(), "sites or `admin`"),
            _ => (file.server.admin.as_ref(), "sites"),
        };
        let title = format!("{others} and `{key}` cannot both listen on port {}", admin.port());
        report.push(
            Diagnostic::error("server::admin", title)
                .at(
                    written.and_then(|written| written.place.as_ref()),
                    "a port of its own, or \"off\"",
                )
                .help(format!("`admin` is {ADMIN} where nothing is said")),
        );
    }
}

fn resolve_control(written: Option<&Placed<String>>, report: &mut Report) -> Option<PathBuf> {
    let written = written?;
    let path = PathBuf::from(&written.value);
    check_socket_path("control", &path, written, report);
    Some(path)
}

/// Longest path of a socket (unix(7)), with its final NUL.
const LONGEST_SOCKET_PATH: usize = 108;

fn check_socket_path(key: &str, path: &Path, written: &Placed<String>, report: &mut Report) {
    let wrong = |code, title: String, label: &str| Diagnostic::error(code, title).at(written.place.as_ref(), label);
    if !path.is_absolute() {
        let title = format!("the socket of `{key}` must have an absolute path");
        let label = "write the whole path, such as \"/run/haulier/control.sock\"";
        report.push(wrong("config::value", title, label));
    } else if path.as_os_str().len() >= LONGEST_SOCKET_PATH {
        let title = format!("the socket of `{key}` has too long a path");
        report.push(wrong("config::value", title, "107 bytes are allowed"));
    } else if !path.parent().is_some_and(Path::is_dir) {
        let title = format!("there is no directory for the socket of `{key}`");
        report.push(wrong("server::socket", title, "make it, or choose another place"));
    }
}

/// The directory of spooled bodies: by default systemd's cache directory, else `/var/tmp`, which lies on a disk.
fn resolve_spool_dir(written: Option<&Placed<String>>, report: &mut Report) -> PathBuf {
    let Some(written) = written else {
        return std::env::var_os("CACHE_DIRECTORY").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    };
    let path = PathBuf::from(&written.value);
    if !path.is_absolute() {
        report.push(Diagnostic::error("config::value", "`spool_dir` must be absolute").at(
            written.place.as_ref(),
            "write the whole path, such as \"/var/cache/haulier\"",
        ));
    } else if !path.is_dir() {
        let title = format!("spool directory {} does not exist", path.display());
        report.push(Diagnostic::error("config::value", title).at(written.place.as_ref(), "named here"));
    }
    path
}

fn resolve_log(table: &LogTable, report: &mut Report) -> LogSettings {
    LogSettings {
        file: server::resolve_log_file(table.file.as_ref(), &table.heading.directory, report),
        ..LogSettings::from(table)
    }
}

fn resolve_site_log(table: &SiteLogTable, report: &mut Report) -> SiteLog {
    SiteLog {
        file: server::resolve_log_file(table.file.as_ref(), &table.heading.directory, report),
        ..SiteLog::from(table)
    }
}

fn resolve_limits(table: &LimitsTable, allowed: usize, machine: &Machine, report: &mut Report) -> Limits {
    let limits = Limits::from(table);
    Limits {
        body: value_or(table.body.as_ref(), BODY),
        body_spool: value_or(table.body_spool.as_ref(), limits.body_spool),
        connections: resolve_connections(table.connections.as_ref(), allowed, machine, report),
        local_per_ip: table.connections_per_ip.is_some(),
        h2_stream_window: limits.h2_stream_window.min(MOST_WINDOW),
        h2_connection_window: limits.h2_connection_window.min(MOST_WINDOW),
        ..limits
    }
}

/// The timeouts of a site that sets some itself; the others are the general ones.
fn timeouts(table: &SiteTable, limits: &Limits) -> Option<Arc<Timeouts>> {
    let own = [
        &table.limits.body_timeout,
        &table.limits.idle_timeout,
        &table.limits.send_timeout,
    ];
    own.iter().any(|written| written.is_some()).then(|| {
        Arc::new(Timeouts {
            body: value_or(table.limits.body_timeout.as_ref(), limits.body_timeout),
            idle: value_or(table.limits.idle_timeout.as_ref(), limits.idle_timeout),
            send: value_or(table.limits.send_timeout.as_ref(), limits.send_timeout),
        })
    })
}

fn resolve_connections(written: Option<&Placed<u64>>, allowed: usize, machine: &Machine, report: &mut Report) -> usize {
    let Some(written) = written else { return allowed };
    let wanted = to_usize(written.value);
    if wanted > allowed {
        let title = format!(
            "{wanted} connections need more than the {} descriptors allowed",
            machine.descriptors
        );
        report.push(
            Diagnostic::warning("limits::connections", title)
                .at(written.place.as_ref(), format!("{allowed} are used"))
                .help("raise it with `ulimit -Hn`, or LimitNOFILE= in the unit"),
        );
    }
    wanted.min(allowed)
}
