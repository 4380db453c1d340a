//! From the tables of a file to settings. The machine is asked here too (PHP, accounts, folders), because defaults follow
//! from it; sockets and processes are left to `assemble`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haulier_http::Timeouts;
use haulier_server::{Address, CompressSettings, Limits, ServerSettings};
use haulier_settings::{Diagnostic, Placed, Report};

use super::file::File;
use super::settings::{AdminAddress, Mode, Pool, Settings, Site};
use super::tables::{LimitsTable, LogTable, SiteTable};
use super::value::{BODY, to_usize, value_or};
use super::{compress, images, listen_address, pool, server, site, tls};
use crate::log::{LogSettings, SiteLog};
use crate::machine::Machine;

/// The largest flow-control window of HTTP/2, bytes (RFC 9113 §6.9.1).
const MOST_WINDOW: u32 = 0x7fff_ffff;

/// Where it is without a word about it.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4870);

/// Resolves a file on this machine, and adds mistakes to `report`. The result is valid only if the report has no errors.
pub(crate) fn resolve(file: &File, mode: Mode, machine: &Machine, report: &mut Report) -> Settings {
    let threads = file
        .server
        .threads
        .as_ref()
        .map_or(machine.cores, |threads| to_usize(threads.value));
    let mut sites = site::resolve_all(file, report);
    let mut pools = pool::resolve_all(file, &mut sites, mode, machine, report);
    let user = server::resolve_user(file, report);
    if let Some(user) = &user {
        server::share_user(user, &file.pools, &mut pools, report);
    }
    let places = sites.iter().flat_map(Site::places).count();
    let workers = pools.iter().map(Pool::workers).sum();
    let allowed = machine.connections(workers, threads, places);
    let mut limits = resolve_limits(&file.limits, allowed, machine, report);
    let general = compress::resolve(&file.compress.of_sites(), &CompressSettings::default(), report);
    for (site, table) in sites.iter_mut().zip(&file.sites) {
        let compress = compress::resolve(&table.compress, &general, report);
        let of_php = site.pool.and_then(|pool| pools[pool].php.as_ref()?.post_max_size);
        (site.body_limit, site.body_limit_by) = body_limit(table, &file.limits, of_php);
        site.timeouts = timeouts(table, &limits);
        let limit = (site.body_limit, site.body_limit_by);
        for (place, _) in site.places_within() {
            (place.body_limit, place.body_limit_by) = limit;
            place.compress = compress.clone();
        }
        site.compress = compress;
        let of_images = table.images.as_ref();
        site.images = of_images.and_then(|images| images::resolve(images, table, file, machine, report));
        site.log = resolve_site_log(table, report);
    }
    if file.limits.body_spool.is_none() {
        // Whoever allows long bodies wants more than one of them at a time.
        let largest = sites.iter().map(|site| site.body_limit).max().unwrap_or_default();
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
            http2: written.http2.get(),
            reuse_port: written.reuse_port.get(),
            defer_accept: written.defer_accept.get(),
            threads,
            open_files: machine.open_files(threads, places),
            grace: written.grace.get(),
            limits,
            spool_dir: resolve_spool_dir(written.spool_dir.as_ref(), report),
            ..ServerSettings::default()
        },
        tls,
        user,
        lame_duck: written.lame_duck.get(),
        admin,
        probes,
        control: resolve_control(written.control.as_ref(), report),
        variants: file.compress.store.get(),
        log: resolve_log(&file.log, report),
        pools,
        sites,
    };
    // A file that is wrong is to be mended first.
    if mode == Mode::Run && report.errors() == 0 {
        server::check_root(file, &settings.sites, report);
    }
    settings
}

/// The longest request body of a site, and the setting that it comes from: the site's, the general one, PHP's.
fn body_limit(table: &SiteTable, limits: &LimitsTable, of_php: Option<u64>) -> (u64, &'static str) {
    let bytes = |written: &Option<Placed<u64>>| written.as_ref().map(|body| body.value);
    let of_site = bytes(&table.limits.body).map(|body| (body, "`body` in the site's `limits`"));
    let general = || bytes(&limits.body).map(|body| (body, "`body` in `[limits]`"));
    let of_php = of_php.map(|body| {
        (
            body,
            "PHP's post_max_size: raise it in the pool's `ini`, or set `body` in `[limits]`",
        )
    });
    of_site
        .or_else(general)
        .or(of_php)
        .unwrap_or((BODY, "the default: set `body` in `[limits]`"))
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

/// It says nothing that a stranger could use, so any address will do.
fn resolve_probes(written: Option<&Placed<String>>, report: &mut Report) -> AdminAddress {
    written.map_or(AdminAddress::Off, |written| resolve_told("probes", written, report))
}

/// Where something is told about the server.
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

/// Sites, the admin address and that of probes are different servers: one port cannot be two.
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

/// The longest path of a socket (unix(7)), its final zero included.
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

/// What systemd gave us as a cache, else the place for temporary files that outlive a boot: it lies on a disk.
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
        format: table.format.get(),
        access: table.access.get(),
        level: table.level.get(),
        file: server::resolve_log_file(table.file.as_ref(), &table.heading.directory, report),
    }
}

fn resolve_site_log(table: &SiteTable, report: &mut Report) -> SiteLog {
    SiteLog {
        format: table.log.format.as_ref().map(|written| written.value),
        access: table.log.access.as_ref().map(|written| written.value),
        file: server::resolve_log_file(table.log.file.as_ref(), &table.heading.directory, report),
    }
}

fn resolve_limits(table: &LimitsTable, allowed: usize, machine: &Machine, report: &mut Report) -> Limits {
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let window = |size: u64| count(size).min(MOST_WINDOW);
    Limits {
        head_timeout: table.head_timeout.get(),
        body_timeout: table.body_timeout.get(),
        idle_timeout: table.idle_timeout.get(),
        send_timeout: table.send_timeout.get(),
        header: to_usize(table.header.get()),
        header_fields: to_usize(table.header_fields.get()),
        body: value_or(table.body.as_ref(), BODY),
        keepalive_requests: count(table.keepalive_requests.get()),
        min_send_rate: table.min_send_rate.get(),
        body_spool: value_or(table.body_spool.as_ref(), Limits::default().body_spool),
        connections: resolve_connections(table.connections.as_ref(), allowed, machine, report),
        connections_per_ip: count(table.connections_per_ip.get()),
        local_per_ip: table.connections_per_ip.is_some(),
        h2_streams: count(table.h2_streams.get()),
        h2_stream_window: window(table.h2_stream_window.get()),
        h2_connection_window: window(table.h2_connection_window.get()),
        h2_resets: count(table.h2_resets.get()),
        h2_control_frames: count(table.h2_control_frames.get()),
        ..Limits::default()
    }
}

/// The deadlines of a site that says some of its own; the rest is as for all.
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
