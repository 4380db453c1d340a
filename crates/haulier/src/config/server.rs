//! Resolves `[server]`: addresses, proxies, the account that serves.

use std::path::{Path, PathBuf};

use haulier_http::Network;
use haulier_php::User;
use haulier_server::Address;
use haulier_settings::{Diagnostic, Placed, Report};

use super::file::File;
use super::listen_address;
use super::settings::{Pool, Site};
use super::tables::PoolTable;
use crate::account;

/// Default permissions of Unix sockets: every account may connect, as to a port.
const SOCKET_MODE: u32 = 0o666;

/// The addresses of `http`, each once.
pub(super) fn resolve_listen(file: &File, report: &mut Report) -> Vec<Address> {
    resolve_addresses("http", file.server.http.as_deref(), ":80", report)
}

/// The addresses of `https`, each once.
pub(super) fn resolve_listen_tls(file: &File, report: &mut Report) -> Vec<Address> {
    resolve_addresses("https", file.server.https.as_deref(), ":443", report)
}

fn resolve_addresses(
    key: &str,
    written: Option<&[Placed<String>]>,
    default: &str,
    report: &mut Report,
) -> Vec<Address> {
    let default = [Placed::unplaced(default.to_owned())];
    let written = written.unwrap_or(&default);
    let mut addresses: Vec<Address> = Vec::new();
    for one in written {
        match listen_address::parse_any(&one.value) {
            Some(address) if !takes_a_free_port(&address) && addresses.contains(&address) => report.push(
                Diagnostic::error("config::listen", format!("{} stands twice in `{key}`", one.value))
                    .at(one.place.as_ref(), "again here"),
            ),
            Some(address) => addresses.push(address),
            None => report.push(not_an_address(one)),
        }
    }
    addresses
}

fn takes_a_free_port(address: &Address) -> bool {
    address.internet().is_some_and(|address| address.port() == 0)
}

fn not_an_address(written: &Placed<String>) -> Diagnostic {
    let title = format!("not an address to listen on: \"{}\"", written.value);
    let error = Diagnostic::error("config::listen", title);
    if written.value.starts_with("unix:") {
        return error
            .at(written.place.as_ref(), "the path must be absolute")
            .help("write the whole path, such as \"unix:/run/haulier/http.sock\"");
    }
    error
        .at(
            written.place.as_ref(),
            "expected an address and a port, such as \":80\" or \"127.0.0.1:8080\"",
        )
        .help("an IPv6 address stands in brackets: \"[::1]:8080\"; host names are not looked up")
}

/// Permissions of Unix sockets, from their octal digits.
pub(super) fn resolve_socket_mode(written: Option<&Placed<String>>, report: &mut Report) -> u32 {
    let Some(written) = written else { return SOCKET_MODE };
    let digits = written.value.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(&written.value, 8)
        .ok()
        .filter(|&mode| digits && mode <= 0o777);
    if mode.is_none() {
        report.push(
            Diagnostic::error("config::value", format!("not permissions: \"{}\"", written.value)).at(
                written.place.as_ref(),
                "expected octal digits, such as \"0660\" for owner and group",
            ),
        );
    }
    mode.unwrap_or(SOCKET_MODE)
}

/// The networks of `trusted_proxies`.
pub(super) fn resolve_proxies(file: &File, report: &mut Report) -> Vec<Network> {
    let written = file.server.trusted_proxies.as_deref().unwrap_or_default();
    let mut networks = Vec::with_capacity(written.len());
    for one in written {
        match one.value.parse() {
            Ok(network) => networks.push(network),
            Err(_) => report.push(
                Diagnostic::error("config::network", format!("not a network: \"{}\"", one.value))
                    .at(
                        one.place.as_ref(),
                        "expected an address or a network, such as \"10.0.0.0/8\"",
                    )
                    .help("host names are not looked up; a Unix socket counts as \"127.0.0.1\""),
            ),
        }
    }
    let protocol = file.server.proxy_protocol.as_ref();
    if written.is_empty()
        && let Some(protocol) = protocol.filter(|protocol| protocol.value)
    {
        report.push(
            Diagnostic::error("config::proxy", "`proxy_protocol` without `trusted_proxies`")
                .at(protocol.place.as_ref(), "nobody is trusted to say who the client is")
                .help("name the proxies: trusted_proxies = [\"10.0.0.0/8\"]"),
        );
    }
    networks
}

/// The account that serves, if it is not ours.
pub(super) fn resolve_user(file: &File, report: &mut Report) -> Option<User> {
    let written = file.server.user.as_ref()?;
    let Some(user) = account::look_up(&written.value) else {
        let title = format!("no account `{}` on this machine", written.value);
        report.push(Diagnostic::error("config::user", title).at(written.place.as_ref(), "named here"));
        return None;
    };
    if user.uid == rustix::process::geteuid().as_raw() {
        return None;
    }
    if !account::is_root() {
        report.push(
            Diagnostic::error("config::user", format!("only root can serve as `{}`", written.value))
                .at(written.place.as_ref(), "named here")
                .help("remove the line: haulier then serves as the user who starts it"),
        );
        return None;
    }
    Some(user)
}

/// Warns if root serves: it reads every file, so modes protect none in a document root. `user = "root"` silences it.
pub(super) fn check_root(file: &File, sites: &[Site], report: &mut Report) {
    if !account::is_root() || file.server.user.is_some() || sites.iter().all(|site| site.is_rootless) {
        return;
    }
    report.push(
        Diagnostic::warning(
            "server::user",
            "as root haulier sends every file of a document root, those of mode 0600 too",
        )
        .help(
            "add `user = \"www-data\"` to `[server]`: root binds the ports, that account serves. A service that starts as \
             its account needs nothing",
        ),
    );
}

/// PHP runs as the account that serves, unless its pool names another one.
pub(super) fn share_user(user: &User, tables: &[PoolTable], pools: &mut [Pool], report: &mut Report) {
    for pool in pools {
        let Some(supervised) = pool.settings.kind.supervised_mut() else {
            continue;
        };
        let table = tables.iter().find(|table| table.heading.name.value == pool.table);
        let named = table.and_then(|table| table.supervised.user.as_ref());
        if let (Some(named), Some(User { uid: 0, .. })) = (named, &supervised.user) {
            let title = format!("pool `{}` cannot run as `{}`", pool.settings.name, named.value);
            report.push(
                Diagnostic::error("config::user", title)
                    .at(named.place.as_ref(), format!("haulier is `{}` by then", user.name))
                    .help("what runs scripts is never root where haulier itself is not"),
            );
        }
        if let (None, Some(table)) = (named, table) {
            check_lone_group(table, user, report);
        }
        if named.is_none() {
            supervised.user = Some(user.clone());
        }
        if let (Some(table), false) = (table, supervised.is_foreign_to(user.uid, user.gid)) {
            super::pool::check_without_root(table, user, report);
        }
    }
}

/// Checks that a pool with a `group` names its account, too.
fn check_lone_group(table: &PoolTable, user: &User, report: &mut Report) {
    let group = table.supervised.group.as_ref();
    if let Some(group) = group.filter(|group| account::group(&group.value) != Some(user.gid)) {
        let title = format!("`group` of pool `{}` without `user`", table.heading.name.value);
        report.push(
            Diagnostic::error("config::user", title)
                .at(
                    group.place.as_ref(),
                    format!("PHP runs as `{}`, with its groups", user.name),
                )
                .help(format!("name the account too: `user = \"{}\"`", user.name)),
        );
    }
}

/// An absolute path of a log file, from the directory of the file that names it.
pub(super) fn resolve_log_file(
    written: Option<&Placed<String>>,
    directory: &Path,
    report: &mut Report,
) -> Option<PathBuf> {
    let written = written?;
    let joined = directory.join(&written.value);
    let path = std::path::absolute(&joined).unwrap_or(joined);
    let parent = path.parent().unwrap_or(Path::new("/"));
    if written.value.is_empty() || written.value.ends_with('/') || path.is_dir() {
        report
            .push(Diagnostic::error("log::file", "`file` names a directory").at(written.place.as_ref(), "named here"));
    } else if !parent.is_dir() {
        let title = format!("log directory {} does not exist", parent.display());
        report.push(Diagnostic::error("log::file", title).at(written.place.as_ref(), "named here"));
    }
    Some(path)
}
