//! Settings of a pool, and their declaration in a configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use haulier_settings::settings_table;
use haulier_upstream::Address;
use rustix::process::Resource;

/// PHP does not start with less.
const LEAST_MEMORY: u64 = 16 << 20;

settings_table! {
    /// The rows of `[pool.NAME]` about requests.
    pub struct PoolRows = "pool.NAME" =>

    /// One pool of PHP workers.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PoolSettings {
        /// The name used in the configuration, logs and metrics.
        name: String = String::new();
        /// Supervised or external PHP.
        kind: PoolKind = PoolKind::External(External::default());
        /// Longest pause of PHP within a response body. After it the worker is ended and the response is cut. Event
        /// streams and responses with `X-Accel-Buffering: no` may pause without limit.
        body_timeout: Duration = Duration::from_secs(60);
        /// Longest head of a CGI response, bytes. A longer one is a 502.
        response_head: usize = 64 * 1024;
        /// The log of slow requests; `None` logs none.
        slow: Option<Slow> = None;
    }

    /// Longest time to the response head; then 504.
    timeout: Deadline -> Duration = "60s";
    /// Longest pause of PHP within a response body; event streams have no limit.
    body_timeout: Deadline else "as `timeout`";
    /// Longest wait for a free worker; then 503 with Retry-After.
    queue_timeout as "queue": Duration -> Duration = "10s";
    /// Most waiting requests; one more gets 503 at once.
    queue_length: Count(0, "0 refuses each request that would wait") -> usize = 512;
    /// Time that running requests have when the pool ends, if shorter.
    grace: Duration -> Duration else "as in `[server]`";
    /// `[pool.NAME.slow]`: the log of slow requests.
    slow: Table(SlowTable) else "none";
}

impl PoolSettings {
    /// A pool of this kind with the default limits.
    pub fn new(name: &str, kind: PoolKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            ..Self::default()
        }
    }
}

settings_table! {
    /// `[pool.NAME.slow]`
    pub struct SlowTable = "pool.NAME.slow" =>

    /// The log of slow requests.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Slow {
        /// The file that lines are appended to; `None` is the server's log.
        log: Option<PathBuf> = None;
    }

    /// Time after which a request is logged.
    after: Deadline -> Duration = "5s";
    /// A file for these lines, one JSON object each.
    log: Path else "the server's log";
}

/// The kind of a pool. Other modules use its methods and do not match on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolKind {
    /// haulier starts php-cgi and supervises it.
    Supervised(Supervised),
    /// Another program runs a FastCGI server, usually php-fpm.
    External(External),
}

impl PoolKind {
    /// The settings of supervised PHP.
    pub fn supervised(&self) -> Option<&Supervised> {
        match self {
            Self::Supervised(own) => Some(own),
            Self::External(_) => None,
        }
    }

    /// The settings of supervised PHP, mutable.
    pub fn supervised_mut(&mut self) -> Option<&mut Supervised> {
        match self {
            Self::Supervised(own) => Some(own),
            Self::External(_) => None,
        }
    }

    /// The settings of external servers.
    pub fn external(&self) -> Option<&External> {
        match self {
            Self::Supervised(_) => None,
            Self::External(external) => Some(external),
        }
    }

    /// True if its workers are haulier's own inside PHP's program.
    pub fn is_embedded(&self) -> bool {
        self.supervised().is_some_and(|own| own.embedded.is_some())
    }

    /// The script that every worker boots, if there is one.
    pub fn booted_script(&self) -> Option<&Path> {
        self.supervised()?.embedded.as_ref()?.script.as_deref()
    }

    /// The account that PHP runs as, if it is not haulier's own.
    pub fn user(&self) -> Option<&User> {
        self.supervised()?.user.as_ref()
    }

    /// Most requests that PHP processes at a time.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Supervised(own) => own.workers,
            Self::External(external) => external.connections * external.servers.len(),
        }
    }

    /// The process manager in php-fpm's terms: `static`, `dynamic`, `ondemand`; or `external`.
    pub fn process_manager(&self) -> &'static str {
        match self {
            Self::Supervised(own) => own.process_manager(),
            Self::External(_) => "external",
        }
    }

    /// The cookie whose values each belong to one of the servers.
    pub(crate) fn affinity_cookie(&self) -> Option<&str> {
        match self.external().map(|external| &external.balance) {
            Some(Balance::Cookie(name)) => Some(name),
            _ => None,
        }
    }

    /// True if connections serve more than one request. php-cgi always keeps them, since it cannot finish a response
    /// before its script ends.
    pub(crate) fn keeps_connections(&self) -> bool {
        match self {
            Self::Supervised(_) => true,
            Self::External(external) => external.keep_conn,
        }
    }
}

settings_table! {
    /// The rows of `[pool.NAME]` about PHP that haulier starts.
    pub struct SupervisedRows = "pool.NAME" =>

    /// A supervised php-cgi master with `workers` children on one listening socket, which share opcache. By default one
    /// process of the installed PHP, which is never replaced and has an empty environment.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Supervised {
        /// The php-cgi program.
        php: PathBuf = "php-cgi".into();
        /// Workers of our own inside this PHP; `None` are those of php-cgi.
        embedded: Option<Embedded> = None;
        /// PHP processes that may work at a time, at least 1.
        workers: usize = 1;
        /// Scripts that may compute at once; further ones begin where some wait for something, or have worked for long.
        /// `None` lets all workers.
        computing: Option<usize> = None;
        /// Replacement of idle workers, which frees their memory; `None` keeps them.
        shrink: Option<Shrink> = None;
        /// Most unused workers that get their first request within a second; `None` is no limit.
        spawn_rate: Option<u32> = None;
        /// Limits after which a worker is replaced.
        recycle: Recycle = Recycle::default();
        /// `-d name=value` for every worker.
        ini: Vec<(String, String)> = Vec::new();
        /// The same, but scripts and `.user.ini` cannot change them.
        ini_admin: Vec<(String, String)> = Vec::new();
        /// Environment of the workers, besides the variables of `env_copy`.
        env: Vec<(String, String)> = Vec::new();
        /// Names of variables copied from haulier's environment.
        env_copy: Vec<String> = Vec::new();
        /// The account that PHP runs as; `None` is haulier's own.
        user: Option<User> = None;
        /// Limits of every PHP process.
        rlimits: Vec<Rlimit> = Vec::new();
        /// Every worker is a separate php-cgi with its own socket instead of a child of one master, and opcache uses
        /// its file cache instead of shared memory. The pool does so in any case if it cannot tell the children of a
        /// master apart: it reads their open descriptors in /proc to signal the right one, which takes CAP_SYS_PTRACE
        /// for another user.
        separate: bool = false;
        /// Directory of the listening sockets; made private (0700).
        socket_dir: PathBuf = PathBuf::new();
    }

    /// PHP processes of the whole pool: a number, or `{ min, max, idle, spawn_rate }`.
    workers: TableOr(WorkersTable, max, 1, "a pool needs one PHP process") else "max(4, 2 × cores), less on a small machine";
    // Scripts that share a processor all end later, and so do those that wait behind them.
    /// Scripts that compute at once. Others wait until one ends, waits for something itself, or has worked for 100 ms.
    computing: Count(0, "0 lets all workers compute at once") else "as many as there are processors";
    /// `[pool.NAME.recycle]`: when a worker is replaced, always between two requests.
    recycle: Table(RecycleTable) = {};
    /// Short for `requests` of `recycle`; 0 is never.
    max_requests: Count(0, "0 is no limit") = 1000;
    /// The php-cgi program; `auto` takes the newest one found.
    php: Path = "auto";
    /// The loop in it: `cgi` is php-cgi's own, `embed` haulier's workers, `auto` these if haulier was built for that PHP.
    run: Text = "auto";
    /// php.ini settings of this pool.
    ini: Pairs = {};
    /// The same, but scripts and .user.ini cannot change them.
    ini_admin: Pairs = {};
    /// Environment variables of PHP.
    env: Pairs = {};
    /// Variables copied from haulier's own environment.
    env_copy: Texts = ["PATH", "TZ", "LANG"];
    /// The account that PHP runs as.
    user: Text else "\"www-data\" when started as root";
    /// The group that PHP runs as.
    group: Text else "the account's own";
    /// Added to haulier's niceness, up to 19; a value below 0 needs root.
    nice: Niceness -> i32 = 0;
    /// `[pool.NAME.rlimits]`: resource limits of each PHP process.
    rlimits: Table(RlimitsTable) = {};
}

impl Supervised {
    /// This php-cgi program with sockets in this directory; all else by default.
    pub fn new(php: PathBuf, socket_dir: PathBuf) -> Self {
        Self {
            php,
            socket_dir,
            ..Self::default()
        }
    }

    /// True if its workers boot a script before they take requests.
    pub fn boots_script(&self) -> bool {
        self.embedded.as_ref().is_some_and(|embedded| embedded.script.is_some())
    }

    /// Time without a request after which all of PHP ends; `None` if it always runs.
    pub(crate) fn parks_after(&self) -> Option<Duration> {
        self.shrink.filter(|shrink| shrink.least == 0).map(|shrink| shrink.idle)
    }

    fn process_manager(&self) -> &'static str {
        match self.shrink {
            None => "static",
            Some(shrink) if shrink.least == 0 => "ondemand",
            Some(_) => "dynamic",
        }
    }

    /// True if it runs as an account other than this user and group.
    pub fn is_foreign_to(&self, uid: u32, gid: u32) -> bool {
        self.user
            .as_ref()
            .is_some_and(|user| (user.uid, user.gid) != (uid, gid))
    }
}

/// Workers of our own inside PHP's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embedded {
    /// Version of PHP, such as `8.2`: one of [`crate::embedded_versions`].
    pub version: String,
    /// The script that every worker boots and that takes one request after the other; `None`: a request runs its own script.
    pub script: Option<PathBuf>,
    /// The script without symbolic links: another one after a deployment.
    pub release: Option<PathBuf>,
}

settings_table! {
    /// `[pool.NAME.workers]`
    pub struct WorkersTable = "pool.NAME.workers" =>

    /// Replacement of idle workers. Those beyond `least` that have had no request for `idle` are replaced by fresh forks
    /// of the master, which take little memory; the number of processes stays. If `least` is 0, all of PHP ends after
    /// `idle` without a request, and the next request starts it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Shrink {
        /// Workers that are never replaced for idleness.
        least: usize = 1;
    }

    /// Workers that are never replaced for idleness; 0 ends PHP until the next request.
    min: Count(0, "0 ends PHP when no request comes") = 1;
    /// PHP processes that may work at a time.
    max: Count(1, "a pool needs one PHP process") else "max(4, 2 × cores), less on a small machine";
    /// Time after which another idle worker is replaced, which frees its memory.
    idle: Deadline -> Duration = "10s";
    /// Most unused workers that get their first request within a second; other requests wait for busy ones.
    spawn_rate: Count(1, "without any no request is answered") else "no limit";
}

settings_table! {
    /// `[pool.NAME.recycle]`
    pub struct RecycleTable = "pool.NAME.recycle";

    /// Limit of answered requests; 0 is none.
    requests: Count(0, "0 is no limit") = 1000;
    /// Limit of its unshared memory after a request.
    memory: Size(LEAST_MEMORY) else "never";
    /// Limit of the time since its first request.
    age: Deadline else "never";
}

/// Limits after which a worker is replaced, always between two requests; 0 is no limit. Each worker's limits of
/// requests and age are up to a tenth lower, so that not all are replaced at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recycle {
    /// Answered requests.
    pub requests: u64,
    /// Unshared memory after a request, bytes.
    pub memory: u64,
    /// Time since the first request.
    pub age: Duration,
}

impl Recycle {
    /// True if any limit is set.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

settings_table! {
    /// `[pool.NAME.rlimits]`
    pub struct RlimitsTable = "pool.NAME.rlimits";

    /// Open files and connections of each process.
    files: Count(16, "PHP opens more than that") else "as haulier's";
    /// Processes of the account PHP runs as, all together.
    processes: Count(1, "PHP is one already") else "as haulier's";
    /// Address space of each process; keep it well above memory_limit.
    memory: Size(LEAST_MEMORY) else "as haulier's";
    /// Longest file a script may write.
    file_size: Size(0) else "as haulier's";
    /// Longest core dump.
    core: Size(0) else "as haulier's";
}

/// A resource limit of a process (setrlimit(2)), soft and hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// The limited resource.
    pub resource: Resource,
    /// Bytes, seconds or a number, depending on the resource; `None` is no limit.
    pub limit: Option<u64>,
}

/// An account, already looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name, for messages.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id: the primary group, or the one that the pool names.
    pub gid: u32,
}

settings_table! {
    /// The rows of `[pool.NAME]` about servers that another program runs.
    pub struct ExternalRows = "pool.NAME" =>

    /// FastCGI servers that another program runs.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct External {
        /// Their addresses.
        servers: Vec<Address> = Vec::new();
        /// Balancing between the servers.
        balance: Balance = Balance::LeastBusy;
        /// The health checks. Without them a server is out from a refused connection to the next accepted one.
        health: Option<Health> = None;
    }

    /// Running FastCGI servers instead: `host:port` or `unix:/path`.
    servers: Texts else "none: haulier runs PHP";
    /// Balancing: `least_busy`, or `hash:cookie` (PHPSESSID) or `hash:cookie:NAME` for the same one.
    balance: Text = "least_busy";
    // An open connection occupies a child.
    /// Requests to each server at a time: its pm.max_children; one less with `keep_conn` or `health`.
    connections: Count(1, "PHP is reached over connections") -> usize = 32;
    /// The document root on those servers.
    remote_root: Text else "the site's document root";
    /// Longest time to connect to a server.
    connect_timeout: Deadline -> Duration = "1s";
    // FCGI_KEEP_CONN. A child of php-fpm that has called `fastcgi_finish_request()` reads the next request from a kept
    // connection only when its script has ended; without this setting, another child gets that request.
    /// Keep connections for further requests, where no script calls fastcgi_finish_request().
    keep_conn: Flag -> bool = false;
    /// With `keep_conn`, an idle connection to a server is closed after this time.
    idle_timeout: Deadline -> Duration = "5s";
    /// `[pool.NAME.health]`: health checks by php-fpm's ping.
    health: Table(HealthTable) else "none: by refused connections";
}

impl External {
    /// These servers with the default limits.
    pub fn new(servers: Vec<Address>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }
}

/// Balancing between several servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    /// The server with the fewest requests.
    LeastBusy,
    /// The same server for each value of this cookie while it is up; without the cookie the least busy one.
    Cookie(String),
}

settings_table! {
    /// `[pool.NAME.health]`
    pub struct HealthTable = "pool.NAME.health" =>

    /// Health checks: FastCGI requests for php-fpm's own `ping.path`. Each occupies a child of the server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Health {
        /// php-fpm's `ping.path`.
        path: String = String::new();
    }

    /// The `ping.path` of the php-fpm pools.
    path: Text else "required";
    /// Their `pm.status_path`, which reports the requests of other clients; read with every ping.
    status: Text -> String else "none";
    /// Time between two pings, and the longest time for an answer.
    every: Deadline -> Duration = "5s";
    /// Failures in a row that take a server out; a refused connection does at once.
    fail: Count(1, "a server cannot be out without a failure") -> u32 = 3;
    /// Successes in a row that bring it back.
    recover: Count(1, "a server cannot be back without an answer") -> u32 = 2;
}
