//! Resolves the `[pool.NAME]` tables, and finds the pool of each site.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haulier_php::{
    Address, Balance, External, ExternalRows, Health, HealthTable, PoolKind, PoolSettings, Recycle, Resource, Rlimit,
    Shrink, Slow, Supervised, SupervisedRows, User,
};
use haulier_settings::declare::Declared;
use haulier_settings::value::show_size;
use haulier_settings::{Diagnostic, Pairs, Placed, Report, SourcePlace, reader};

use super::file::File;
use super::settings::{Mode, Pool, Site};
use super::tables::PoolTable;
use super::value::{to_usize, value_or};
use super::{environment, workers};
use crate::account;
use crate::machine::Machine;
use crate::php_discovery::{self, PhpCgi, PhpError};
use crate::privileges;

/// True for settings of a pool that haulier runs. `env` is for external pools, too.
pub(super) fn is_of_supervised(name: &str) -> bool {
    name != "env" && SupervisedRows::TABLE.knows(name)
}

/// True for settings of a pool that another program runs.
pub(super) fn is_of_external(name: &str) -> bool {
    ExternalRows::TABLE.knows(name)
}

/// Timeout in `serve`, where a debugger may hold a script for as long as the user likes: practically none, but the clock
/// can still count to it.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Time after which the terminal says in `serve` that a script still runs.
const LONG: Duration = Duration::from_secs(60);
/// Settings in `serve` that show PHP every edit at the next request: of a file, an included file, a symbolic link.
const FRESH: [(&str, &str); 3] = [
    ("opcache.validate_timestamps", "1"),
    ("opcache.revalidate_freq", "0"),
    ("realpath_cache_size", "0"),
];
/// The account of PHP if haulier is root and no other account is set.
const WEB_USER: &str = "www-data";

/// Resolves the pools that sites use, and gives each site its pool. Without a `[pool.…]` there is one named `php`.
pub(super) fn resolve_all(
    file: &File,
    sites: &mut [Site],
    mode: Mode,
    machine: &Machine,
    report: &mut Report,
) -> Vec<Pool> {
    let wanted = sites.iter().flat_map(Site::mounts).any(Site::runs_php);
    let default = [PoolTable::named("php")];
    let tables = if file.pools.is_empty() && wanted {
        &default[..]
    } else {
        &file.pools[..]
    };
    for table in tables {
        check_kind(table, report);
    }
    choose_pools(file, tables, sites, report);
    warn_unused(file, sites, report);
    let used = |index: usize| sites.iter().flat_map(Site::mounts).any(|site| site.pool == Some(index));
    let mut pools = Vec::new();
    let mut new_index = vec![None; tables.len()];
    for (index, table) in tables.iter().enumerate() {
        // A pool without a site is checked like the others, but no PHP is looked for or started.
        let pool = resolve_pool(table, mode, machine, used(index), report);
        if used(index) {
            new_index[index] = Some(pools.len());
            pools.extend(pool);
        }
    }
    let started = |pool: Option<usize>| pool.and_then(|pool| new_index[pool]).filter(|pool| *pool < pools.len());
    for site in sites.iter_mut() {
        site.pool = started(site.pool);
        for (mounted, _) in site.mounted_mut() {
            mounted.pool = started(mounted.pool);
        }
    }
    workers::boot_scripts(sites, &mut pools, report);
    pools
}

/// Checks that a pool is either supervised or external.
fn check_kind(table: &PoolTable, report: &mut Report) {
    let find = |is_meant: fn(&str) -> bool| table.heading.written.iter().find(|written| is_meant(written.value));
    let name = &table.heading.name.value;
    match (
        find(|name| name == "servers"),
        find(is_of_supervised),
        find(is_of_external),
    ) {
        (Some(servers), Some(own), _) => report.push(
            Diagnostic::error("config::pool", format!("pool `{name}` is both supervised and external"))
                .at(
                    own.place.as_ref(),
                    format!("`{}` is for PHP that haulier runs", own.value),
                )
                .beside(servers.place.as_ref(), "but these are already running elsewhere")
                .help(format!(
                    "keep `{}` to let haulier run PHP, or `servers` to use running FastCGI servers",
                    own.value
                )),
        ),
        (None, _, Some(external)) => report.push(
            Diagnostic::error(
                "config::pool",
                format!("`{}` is for a pool with `servers`", external.value),
            )
            .at(external.place.as_ref(), "this pool is run by haulier")
            .help("remove the line, or name the running FastCGI servers: `servers = [\"unix:/run/php/php-fpm.sock\"]`"),
        ),
        _ => (),
    }
}

fn choose_pools(file: &File, tables: &[PoolTable], sites: &mut [Site], report: &mut Report) {
    for (site, table) in sites.iter_mut().zip(&file.sites) {
        site.pool = match &table.pool {
            Some(written) => by_name(written, tables, report),
            None if !site.runs_php() => None,
            None if tables.len() > 1 => {
                report.push(ambiguous(site, table.heading.name.place.as_ref(), tables));
                None
            }
            None => Some(0),
        }
        .filter(|_| site.runs_php());
        choose_for_mounts(site, table.heading.name.place.as_ref(), tables, report);
    }
}

/// A mount runs its PHP in the pool that its route names, else in that of the site.
fn choose_for_mounts(site: &mut Site, name: Option<&SourcePlace>, tables: &[PoolTable], report: &mut Report) {
    let of_site = site.pool.or((tables.len() == 1).then_some(0));
    for (mounted, written) in site.mounted_mut() {
        mounted.pool = match written {
            Some(written) => by_name(written, tables, report),
            None if mounted.runs_php() && of_site.is_none() => {
                report.push(ambiguous(mounted, name, tables));
                None
            }
            None => of_site,
        }
        .filter(|_| mounted.runs_php());
    }
}

fn by_name(written: &Placed<String>, tables: &[PoolTable], report: &mut Report) -> Option<usize> {
    let found = tables
        .iter()
        .position(|table| table.heading.name.value == written.value);
    if found.is_none() {
        report.push(no_such_pool(written, tables));
    }
    found
}

fn no_such_pool(written: &Placed<String>, tables: &[PoolTable]) -> Diagnostic {
    let names: Vec<String> = tables
        .iter()
        .map(|table| format!("`{}`", table.heading.name.value))
        .collect();
    let mut error = Diagnostic::error("config::pool", format!("no pool named `{}`", written.value))
        .at(written.place.as_ref(), "named here");
    if let Some(first) = tables.first() {
        error = error.beside(
            first.heading.name.place.as_ref(),
            format!("the pools of this file: {}", names.join(", ")),
        );
    }
    let near = reader::nearest(
        &written.value,
        tables.iter().map(|table| table.heading.name.value.as_str()),
    );
    match (near, tables) {
        (Some(near), [_]) => error.help(format!(
            "did you mean `{near}`? With a single pool this line can go: it is the default"
        )),
        (Some(near), _) => error.help(format!("did you mean `{near}`?")),
        (None, _) => error.help(format!("add `[pool.{}]`, or name one that is there", written.value)),
    }
}

fn ambiguous(site: &Site, place: Option<&SourcePlace>, tables: &[PoolTable]) -> Diagnostic {
    let names: Vec<String> = tables
        .iter()
        .map(|table| format!("`{}`", table.heading.name.value))
        .collect();
    Diagnostic::error(
        "config::pool",
        format!("site `{}` does not say which pool runs its PHP", site.settings.name),
    )
    .at(place, format!("add `pool = \"{}\"`", tables[0].heading.name.value))
    .help(format!("the pools of this configuration: {}", names.join(", ")))
}

/// Warns of a pool that no site uses: it is not started.
fn warn_unused(file: &File, sites: &[Site], report: &mut Report) {
    // A site with an error may have meant one of them.
    let pools = if report.errors() == 0 { &file.pools[..] } else { &[] };
    for (index, table) in pools.iter().enumerate() {
        if !sites.iter().flat_map(Site::mounts).any(|site| site.pool == Some(index)) {
            report.push(
                Diagnostic::warning(
                    "config::pool",
                    format!("pool `{}` is used by no site", table.heading.name.value),
                )
                .at(table.heading.name.place.as_ref(), "not started"),
            );
        }
    }
}

/// Resolves a pool; `None` after an error that leaves nothing to build.
fn resolve_pool(table: &PoolTable, mode: Mode, machine: &Machine, used: bool, report: &mut Report) -> Option<Pool> {
    let env = pairs(table.supervised.env.as_ref());
    let (kind, php, no_own_workers) = match &table.external.servers {
        Some(servers) => (PoolKind::External(external(table, servers, report)), None, None),
        None => {
            let (mut supervised, php) = supervised(table, env.clone(), mode, machine, used, report)?;
            let (embedded, lacks) = workers::choose(table, &php, report);
            supervised.embedded = embedded;
            (PoolKind::Supervised(supervised), Some(php), lacks)
        }
    };
    let settings = PoolSettings::from(&table.pool);
    let timeout = match (&*table.pool.timeout, mode) {
        (None, Mode::Serve) => NEVER,
        _ => settings.timeout,
    };
    Some(Pool {
        params: if php.is_some() { Vec::new() } else { env },
        remote_root: table
            .external
            .remote_root
            .as_ref()
            .map(|root| PathBuf::from(&root.value)),
        php,
        no_own_workers,
        table: table.heading.name.value.clone(),
        settings: PoolSettings {
            name: table.heading.name.value.clone(),
            kind,
            timeout,
            body_timeout: value_or(table.pool.body_timeout.as_ref(), timeout),
            slow: slow(table, mode),
            ..settings
        },
    })
}

fn pairs(written: Option<&Pairs>) -> Vec<(String, String)> {
    let pairs = written.into_iter().flatten();
    pairs
        .map(|(name, value)| (name.value.clone(), value.value.clone()))
        .collect()
}

fn supervised(
    table: &PoolTable,
    env: Vec<(String, String)>,
    mode: Mode,
    machine: &Machine,
    used: bool,
    report: &mut Report,
) -> Option<(Supervised, PhpCgi)> {
    check_lines(table, report);
    let user = resolve_user(table, mode, report);
    let user = resolve_group(table, user, report);
    let recycle = recycle(table, report);
    check_niceness(table, report);
    if !account::is_root() && !privileges::has_left_root() {
        check_rlimits(table, report);
    }
    if !used {
        return None;
    }
    let (mut ini, ini_admin) = (
        pairs(table.supervised.ini.as_ref()),
        pairs(table.supervised.ini_admin.as_ref()),
    );
    let env_copy = env_copy(table, mode);
    if mode == Mode::Serve {
        // First, so that the pool's own settings win.
        ini.splice(..0, FRESH.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let asked = [&ini[..], &ini_admin[..]].concat();
    let php = find_php(table, &asked, &ini_places(&env_copy, &env), report)?;
    let workers = table
        .supervised
        .workers
        .as_ref()
        .and_then(|workers| workers.max.as_ref())
        .map_or_else(|| machine.workers(php.memory_limit), |workers| to_usize(workers.value));
    let shrink = shrink(table, workers, report);
    warn_memory(table, workers, &php, machine, report);
    warn_opcache(&php, report);
    let supervised = Supervised {
        php: php.path.clone(),
        workers,
        computing: computing(table, machine),
        shrink,
        spawn_rate: spawn_rate(table),
        recycle,
        ini,
        ini_admin,
        env,
        env_copy,
        user,
        rlimits: rlimits(table),
        // Without the directory of the sockets: one for all pools is made when they start.
        ..Supervised::from(&table.supervised)
    };
    Some((supervised, php))
}

/// Scripts that may compute at once; `None` is no limit.
fn computing(table: &PoolTable, machine: &Machine) -> Option<usize> {
    let written = table.supervised.computing.as_ref();
    let most = written.map_or(machine.cores, |computing| to_usize(computing.value));
    Some(most).filter(|&most| most > 0)
}

/// The workers that give their memory back.
fn shrink(table: &PoolTable, workers: usize, report: &mut Report) -> Option<Shrink> {
    let written = table
        .supervised
        .workers
        .as_ref()
        .filter(|workers| workers.heading.is_written())?;
    let least = to_usize(written.min.get()).min(workers);
    if let Some(min) = written.min.as_ref().filter(|min| to_usize(min.value) > workers) {
        report.push(
            Diagnostic::error("config::value", "`min` is more than `max`")
                .at(min.place.as_ref(), format!("the pool has {workers} workers"))
                .beside(written.max.as_ref().and_then(|max| max.place.as_ref()), "as said here"),
        );
    }
    Some(Shrink {
        least,
        ..Shrink::from(written)
    })
}

fn spawn_rate(table: &PoolTable) -> Option<u32> {
    let rate = table.supervised.workers.as_ref()?.spawn_rate.as_ref()?;
    Some(u32::try_from(rate.value).unwrap_or(u32::MAX))
}

fn recycle(table: &PoolTable, report: &mut Report) -> Recycle {
    let written = &table.supervised.recycle;
    if let (Some(short), Some(long)) = (table.supervised.max_requests.as_ref(), written.requests.as_ref()) {
        report.push(
            Diagnostic::error(
                "config::pool",
                "`max_requests` and `requests` of `recycle` are the same setting",
            )
            .at(short.place.as_ref(), "once here")
            .beside(long.place.as_ref(), "and again here")
            .help("keep one of them"),
        );
    }
    let requests = written.requests.as_ref().or(table.supervised.max_requests.as_ref());
    Recycle {
        requests: requests.map_or_else(|| table.supervised.max_requests.get(), |requests| requests.value),
        memory: value_or(written.memory.as_ref(), 0),
        age: value_or(written.age.as_ref(), Duration::ZERO),
    }
}

fn rlimits(table: &PoolTable) -> Vec<Rlimit> {
    let limits = rlimit_entries(table).into_iter().map(|(_, resource, limit)| Rlimit {
        resource,
        limit: Some(limit.value),
    });
    limits.collect()
}

/// The written `rlimits`: setting, resource and limit.
fn rlimit_entries(table: &PoolTable) -> Vec<(&'static str, Resource, &Placed<u64>)> {
    let written = &table.supervised.rlimits;
    let all = [
        ("files", Resource::Nofile, &written.files),
        ("processes", Resource::Nproc, &written.processes),
        ("memory", Resource::As, &written.memory),
        ("file_size", Resource::Fsize, &written.file_size),
        ("core", Resource::Core, &written.core),
    ];
    let written = all
        .into_iter()
        .map(|(key, resource, limit)| Some((key, resource, limit.as_ref()?)));
    written.flatten().collect()
}

/// Checks the rights that a pool needs: once haulier has become `user`, it cannot give PHP more than it has itself.
pub(super) fn check_without_root(table: &PoolTable, user: &User, report: &mut Report) {
    if let Some(nice) = table.supervised.nice.as_ref().filter(|nice| nice.value < 0) {
        let title = format!("`nice` of pool `{}` needs root", table.heading.name.value);
        report.push(
            Diagnostic::error("config::user", title)
                .at(nice.place.as_ref(), format!("haulier is `{}` by then", user.name))
                .help("remove the line, or give the pool a `user` of its own"),
        );
    }
    check_rlimits(table, report);
}

/// Checks `rlimits`: only root may give more than it has.
fn check_rlimits(table: &PoolTable, report: &mut Report) {
    for (key, resource, written) in rlimit_entries(table) {
        let most = rustix::process::getrlimit(resource).maximum;
        if most.is_some_and(|most| written.value > most) {
            report.push(
                Diagnostic::error(
                    "config::value",
                    format!("`{key}` of `rlimits` is more than haulier has itself"),
                )
                .at(written.place.as_ref(), format!("at most {}", most.unwrap_or_default())),
            );
        }
    }
}

fn check_niceness(table: &PoolTable, report: &mut Report) {
    let first = table
        .supervised
        .nice
        .as_ref()
        .filter(|nice| nice.value < 0 && !account::is_root() && !privileges::has_left_root());
    if let Some(nice) = first {
        let title = "only root can run PHP with a niceness below 0";
        report
            .push(Diagnostic::error("config::user", title).at(nice.place.as_ref(), "haulier was not started as root"));
    }
}

fn slow(table: &PoolTable, mode: Mode) -> Option<Slow> {
    let Some(written) = &table.pool.slow else {
        return (mode == Mode::Serve).then_some(Slow { after: LONG, log: None });
    };
    Some(Slow {
        log: written.log.as_ref().map(|log| table.heading.directory.join(&log.value)),
        ..Slow::from(written)
    })
}

/// Checks that no text for a command line or an environment has a NUL or a line break.
fn check_lines(table: &PoolTable, report: &mut Report) {
    for (key, written) in [
        ("ini", &table.supervised.ini),
        ("ini_admin", &table.supervised.ini_admin),
        ("env", &table.supervised.env),
    ] {
        for (name, value) in written.iter().flatten() {
            let bad_name = name.value.is_empty() || name.value.contains(['=', '\0', '\n', '\r']);
            let bad_value = value.value.contains(['\0', '\n', '\r']);
            if bad_name || bad_value {
                let place = if bad_name { &name.place } else { &value.place };
                report.push(
                    Diagnostic::error("config::value", format!("`{key}` holds what cannot be passed to PHP"))
                        .at(place.as_ref(), "one line, and no `=` in a name"),
                );
            }
        }
    }
}

/// Names of the variables that PHP gets from our environment: in `serve`, which its user runs, nearly all.
fn env_copy(table: &PoolTable, mode: Mode) -> Vec<String> {
    match &table.supervised.env_copy {
        Some(names) => names.iter().map(|name| name.value.clone()).collect(),
        None if mode == Mode::Serve => environment::names_for_php(),
        None => ["PATH", "TZ", "LANG"].map(str::to_owned).to_vec(),
    }
}

/// The environment of the pool, which names the places of php.ini: set in `env`, or copied from ours.
fn ini_places(copied: &[String], env: &[(String, String)]) -> Vec<(String, String)> {
    let copied = copied.iter();
    let copied = copied.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    copied.chain(env.iter().cloned()).collect()
}

fn find_php(
    table: &PoolTable,
    ini: &[(String, String)],
    env: &[(String, String)],
    report: &mut Report,
) -> Option<PhpCgi> {
    let written = table.supervised.php.as_ref().filter(|php| php.value != "auto");
    let path = written.map(|php| program(&php.value, &table.heading.directory));
    match php_discovery::find(path.as_deref(), ini, env) {
        Ok(php) => Some(php),
        Err(error) => {
            let title = match error {
                PhpError::Missing => format!("there are PHP files, but {error}"),
                PhpError::Unusable { .. } => error.to_string(),
            };
            let mut diagnostic = Diagnostic::error("php::missing", title);
            diagnostic = diagnostic.at(written.and_then(|php| php.place.as_ref()), "named here");
            for line in error.advice() {
                diagnostic = diagnostic.help(line);
            }
            report.push(diagnostic);
            None
        }
    }
}

/// The program: the system looks a bare name up in PATH; a path starts at the file that names it.
fn program(written: &str, directory: &Path) -> PathBuf {
    if written.contains('/') {
        directory.join(written)
    } else {
        PathBuf::from(written)
    }
}

fn warn_memory(table: &PoolTable, workers: usize, php: &PhpCgi, machine: &Machine, report: &mut Report) {
    let Some(limit) = php.memory_limit else { return };
    let all = limit.saturating_mul(workers as u64);
    if all > machine.memory {
        let show = show_size;
        let title = format!(
            "{workers} workers × memory_limit {} could need {}; this machine has {}",
            show(limit),
            show(all),
            show(machine.memory)
        );
        let place = table
            .supervised
            .workers
            .as_ref()
            .and_then(|workers| workers.max.as_ref()?.place.as_ref());
        report.push(Diagnostic::warning("php::memory", title).at(place, "fewer workers, or a lower memory_limit"));
    }
}

fn warn_opcache(php: &PhpCgi, report: &mut Report) {
    if !php.opcache {
        let ini = php
            .ini_file
            .as_ref()
            .map_or_else(String::new, |file| format!(" ({})", file.display()));
        let title = format!(
            "opcache is off for php-cgi {}{ini}: pages will be 2-5 times slower",
            php.version
        );
        report.push(Diagnostic::warning("php::opcache", title));
    }
}

/// The account of PHP: the named one. By default root runs it as www-data, except in `serve`, which keeps the caller.
fn resolve_user(table: &PoolTable, mode: Mode, report: &mut Report) -> Option<User> {
    let Some(written) = &table.supervised.user else {
        let leave_root = mode == Mode::Run && account::is_root() && table.external.servers.is_none();
        return leave_root.then(|| web_user(table, report)).flatten();
    };
    let Some(user) = account::look_up(&written.value) else {
        let title = format!("no account named `{}` on this machine", written.value);
        report.push(Diagnostic::error("config::user", title).at(written.place.as_ref(), "named here"));
        return None;
    };
    // After root was left, the start of the pool checks that the account was agreed on before.
    if account::is_root() || privileges::has_left_root() {
        return Some(user);
    }
    if user.uid != rustix::process::geteuid().as_raw() {
        report.push(
            Diagnostic::error("config::user", format!("only root can run PHP as `{}`", written.value))
                .at(written.place.as_ref(), "haulier was not started as root")
                .help("remove the line: PHP then runs as the user who starts haulier"),
        );
    }
    None
}

/// The group of that account; its own, if the pool names none.
fn resolve_group(table: &PoolTable, user: Option<User>, report: &mut Report) -> Option<User> {
    let Some(written) = &table.supervised.group else {
        return user;
    };
    let Some(gid) = account::group(&written.value) else {
        let title = format!("no group named `{}` on this machine", written.value);
        report.push(Diagnostic::error("config::user", title).at(written.place.as_ref(), "named here"));
        return user;
    };
    if let Some(user) = user {
        return Some(User { gid, ..user });
    }
    if gid != rustix::process::getegid().as_raw() {
        report.push(
            Diagnostic::error("config::user", format!("PHP cannot run as group `{}`", written.value))
                .at(written.place.as_ref(), "PHP keeps the account that starts haulier")
                .help("start haulier as root and name a `user` as well, or remove the line"),
        );
    }
    None
}

fn web_user(table: &PoolTable, report: &mut Report) -> Option<User> {
    let user = account::look_up(WEB_USER);
    if user.is_none() {
        report.push(
            Diagnostic::warning(
                "php::user",
                format!("pool `{}` runs PHP as root", table.heading.name.value),
            )
            .at(
                table.heading.name.place.as_ref(),
                format!("there is no account {WEB_USER}"),
            )
            .help("name an account for it: `user = \"…\"`"),
        );
    }
    user
}

fn external(table: &PoolTable, servers: &[Placed<String>], report: &mut Report) -> External {
    if servers.is_empty() {
        let place = table
            .heading
            .written
            .iter()
            .find(|written| written.value == "servers")
            .and_then(|key| key.place.as_ref());
        report.push(
            Diagnostic::error(
                "config::pool",
                format!("pool `{}` names no server", table.heading.name.value),
            )
            .at(place, "needs at least one, such as \"unix:/run/php/php-fpm.sock\""),
        );
    }
    External {
        servers: servers
            .iter()
            .filter_map(|server| resolve_server(server, report))
            .collect(),
        balance: balance(table.external.balance.as_ref(), report),
        health: table
            .external
            .health
            .as_ref()
            .and_then(|written| health(written, report)),
        ..External::from(&table.external)
    }
}

/// The session cookie of PHP.
const SESSION_COOKIE: &str = "PHPSESSID";

fn balance(written: Option<&Placed<String>>, report: &mut Report) -> Balance {
    let Some(written) = written else {
        return Balance::LeastBusy;
    };
    let cookie = match written.value.as_str() {
        "least_busy" => return Balance::LeastBusy,
        "hash:cookie" => Some(SESSION_COOKIE),
        other => other
            .strip_prefix("hash:cookie:")
            .filter(|name| haulier_proto::field::is_name(name.as_bytes())),
    };
    if cookie.is_none() {
        report.push(
            Diagnostic::error("config::value", format!("`balance` knows no \"{}\"", written.value))
                .at(
                    written.place.as_ref(),
                    "expected \"least_busy\", \"hash:cookie\" or \"hash:cookie:NAME\"",
                )
                .help("`hash:cookie` sends everybody with the same PHPSESSID to the same server"),
        );
    }
    cookie.map_or(Balance::LeastBusy, |name| Balance::Cookie(name.to_owned()))
}

fn health(written: &HealthTable, report: &mut Report) -> Option<Health> {
    let path = written.path.as_ref().filter(|path| path.value.starts_with('/'));
    let Some(path) = path else {
        let place = written
            .path
            .as_ref()
            .map_or(written.heading.name.place.as_ref(), |path| path.place.as_ref());
        report.push(
            Diagnostic::error("config::pool", "`health` needs the path that php-fpm answers")
                .at(place, "such as `path = \"/ping\"`, the `ping.path` of its pool"),
        );
        return None;
    };
    let status = written.status.as_ref();
    if let Some(wrong) = status.filter(|status| !status.value.starts_with('/')) {
        report.push(
            Diagnostic::error("config::pool", "`status` is a path that php-fpm answers").at(
                wrong.place.as_ref(),
                "such as `status = \"/status\"`, the `pm.status_path` of its pool",
            ),
        );
    }
    Some(Health {
        path: path.value.clone(),
        ..Health::from(written)
    })
}

fn resolve_server(written: &Placed<String>, report: &mut Report) -> Option<Address> {
    if let Some(path) = written.value.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
        return Some(Address::Unix(PathBuf::from(path)));
    }
    let named = !written.value.starts_with("unix:") && !written.value.contains('/');
    match written.value.to_socket_addrs() {
        Ok(mut addresses) if named => addresses.next().map(Address::Tcp),
        Err(error) if named && has_port(&written.value) => {
            let title = format!("cannot look up {}: {error}", written.value);
            report.push(Diagnostic::error("config::pool", title).at(written.place.as_ref(), "named here"));
            None
        }
        _ => {
            report.push(
                Diagnostic::error("config::pool", format!("not a FastCGI server: \"{}\"", written.value)).at(
                    written.place.as_ref(),
                    "expected \"host:port\" or \"unix:/path/of.sock\"",
                ),
            );
            None
        }
    }
}

fn has_port(server: &str) -> bool {
    server
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
