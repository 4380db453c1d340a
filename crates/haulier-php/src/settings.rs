//! Settings of a pool: plain values that the reader of a configuration fills in.

use std::path::PathBuf;
use std::time::Duration;

use haulier_upstream::Address;
use rustix::process::Resource;

/// One pool of PHP workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// The name used in the configuration, logs and metrics.
    pub name: String,
    /// The origin of the workers.
    pub kind: PoolKind,
    /// Longest time from the last byte of the request sent to PHP to the response head. After it the worker is
    /// ended and the client gets 504.
    pub timeout: Duration,
    /// Longest time a request waits for a worker. After it the client gets 503 with Retry-After.
    pub queue_timeout: Duration,
    /// Most requests that may wait. One more gets 503 at once.
    pub queue_length: usize,
    /// Longest silence of PHP in the middle of a response body. After it the worker is ended and the response breaks
    /// off. Event streams and what is sent with `X-Accel-Buffering: no` may be silent for ever.
    pub body_timeout: Duration,
    /// Longest head of a CGI response, bytes. A longer one is a 502.
    pub response_head: usize,
    /// The log of requests that keep PHP busy for long.
    pub slow: Option<Slow>,
    /// Time that running requests have when the pool ends, if that is shorter than elsewhere.
    pub grace: Option<Duration>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: PoolKind::External(External::default()),
            timeout: Duration::from_secs(60),
            queue_timeout: Duration::from_secs(10),
            queue_length: 512,
            body_timeout: Duration::from_secs(60),
            response_head: 64 * 1024,
            slow: None,
            grace: None,
        }
    }
}

impl PoolSettings {
    /// A pool of this kind with the usual limits.
    pub fn new(name: &str, kind: PoolKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            ..Self::default()
        }
    }
}

/// The log of slow requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slow {
    /// Time after which a request is logged.
    pub after: Duration,
    /// The file the lines are appended to; `None` is the log of the server.
    pub log: Option<PathBuf>,
}

/// The origin of PHP's processes. Other modules ask its methods, and do not match on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolKind {
    /// haulier starts php-cgi and watches it.
    Supervised(Supervised),
    /// Another program runs a FastCGI server, usually php-fpm.
    External(External),
}

impl PoolKind {
    /// The settings of processes that haulier starts; `None` if another program runs PHP.
    pub fn supervised(&self) -> Option<&Supervised> {
        match self {
            Self::Supervised(own) => Some(own),
            Self::External(_) => None,
        }
    }

    /// The same to change.
    pub fn supervised_mut(&mut self) -> Option<&mut Supervised> {
        match self {
            Self::Supervised(own) => Some(own),
            Self::External(_) => None,
        }
    }

    /// The settings of servers that another program runs.
    pub fn external(&self) -> Option<&External> {
        match self {
            Self::Supervised(_) => None,
            Self::External(external) => Some(external),
        }
    }

    /// The account that PHP runs as, if haulier starts it as another one than its own.
    pub fn user(&self) -> Option<&User> {
        self.supervised()?.user.as_ref()
    }

    /// Most requests PHP works on at a time.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Supervised(own) => own.workers,
            Self::External(external) => external.connections * external.servers.len(),
        }
    }

    /// How the number of processes changes, in php-fpm's terms.
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

    /// Whether connections serve more than one request. php-cgi has no way to answer before its script ends.
    pub(crate) fn keeps_connections(&self) -> bool {
        match self {
            Self::Supervised(_) => true,
            Self::External(external) => external.keep_conn,
        }
    }
}

/// A php-cgi master of our own with `workers` children on one listening socket, so that opcache is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervised {
    /// The php-cgi program.
    pub php: PathBuf,
    /// PHP processes that may work at a time; at least 1.
    pub workers: usize,
    /// When an idle worker gives its memory back.
    pub shrink: Option<Shrink>,
    /// Most cold workers that get their first request within a second; `None` is no limit.
    pub spawn_rate: Option<u32>,
    /// When a worker is replaced.
    pub recycle: Recycle,
    /// `-d name=value` for every worker.
    pub ini: Vec<(String, String)>,
    /// The same, but no script and no `.user.ini` can change them.
    pub ini_admin: Vec<(String, String)>,
    /// Environment of the workers, besides the variables of `env_copy`.
    pub env: Vec<(String, String)>,
    /// Names of variables copied from our own environment.
    pub env_copy: Vec<String>,
    /// The account PHP runs as; `None` is ours.
    pub user: Option<User>,
    /// Added to the niceness of our own process; below 0 needs root.
    pub nice: i32,
    /// Limits of every PHP process.
    pub rlimits: Vec<Rlimit>,
    /// Every worker is a php-cgi of its own instead of a child of one master, with a socket of its own and opcache's file
    /// cache instead of its shared memory. The pool does so anyway where it cannot tell the children of a master apart: to
    /// end the right one it reads their open descriptors in /proc, which takes CAP_SYS_PTRACE for another user.
    pub separate: bool,
    /// Directory for the listening sockets; made private (0700), one socket a pool.
    pub socket_dir: PathBuf,
}

impl Default for Supervised {
    /// One php-cgi process that is never replaced, as PHP is installed, with nothing in its environment.
    fn default() -> Self {
        Self {
            php: "php-cgi".into(),
            workers: 1,
            shrink: None,
            spawn_rate: None,
            recycle: Recycle::default(),
            ini: Vec::new(),
            ini_admin: Vec::new(),
            env: Vec::new(),
            env_copy: Vec::new(),
            user: None,
            nice: 0,
            rlimits: Vec::new(),
            separate: false,
            socket_dir: PathBuf::new(),
        }
    }
}

impl Supervised {
    /// This php-cgi with sockets in this directory, otherwise as by default.
    pub fn new(php: PathBuf, socket_dir: PathBuf) -> Self {
        Self {
            php,
            socket_dir,
            ..Self::default()
        }
    }

    /// Time without a request after which PHP ends altogether; `None` if it runs for ever.
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

    /// Whether it is to run as another account than this user with this group.
    pub fn is_foreign_to(&self, uid: u32, gid: u32) -> bool {
        self.user
            .as_ref()
            .is_some_and(|user| (user.uid, user.gid) != (uid, gid))
    }
}

/// Workers beyond `least` that have had no request for `idle` are replaced by fresh ones. A fresh one is a fork of the
/// master that has run nothing, and costs next to no memory; the number of processes stays. If `least` is 0, PHP ends
/// altogether when no request has come for `idle`, and the next request starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shrink {
    /// Workers that stay warm for ever.
    pub least: usize,
    /// Time that the others stay warm.
    pub idle: Duration,
}

/// Limits after which a worker is replaced, always between two requests; 0 is no limit. Each worker has up to a tenth less
/// of requests and age, so that not all are replaced at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recycle {
    /// Requests it has answered.
    pub requests: u64,
    /// Memory of its own after a request, bytes.
    pub memory: u64,
    /// Time since it was first used.
    pub age: Duration,
}

impl Recycle {
    /// True if workers are replaced at all.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

/// A limit of the system for a process (setrlimit(2)), soft and hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// The limited resource.
    pub resource: Resource,
    /// Bytes, seconds or a number, as the resource has it; `None` is no limit.
    pub limit: Option<u64>,
}

/// An account, already looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name, for messages.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id: its primary group, or the one the pool names instead.
    pub gid: u32,
}

/// FastCGI servers that another program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// Their addresses.
    pub servers: Vec<Address>,
    /// Which server gets a request.
    pub balance: Balance,
    /// Most connections to each server. Stay below its pm.max_children: an open connection occupies a child.
    pub connections: usize,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Whether connections stay open for the next request (FCGI_KEEP_CONN). A child of php-fpm that has called
    /// `fastcgi_finish_request()` goes on with its script, and takes nothing from a connection that was kept until it is
    /// done: without it the next request finds another child.
    pub keep_conn: bool,
    /// An idle connection is closed after this long, to give its child back.
    pub idle_timeout: Duration,
    /// The health checks. Without them a server is left out from a refused connection to the next one it takes.
    pub health: Option<Health>,
}

impl Default for External {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            balance: Balance::LeastBusy,
            connections: 32,
            connect_timeout: Duration::from_secs(1),
            keep_conn: false,
            idle_timeout: Duration::from_secs(5),
            health: None,
        }
    }
}

impl External {
    /// These servers with the usual limits.
    pub fn new(servers: Vec<Address>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }
}

/// Which of several servers gets a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests.
    LeastBusy,
    /// Always the same one for a value of this cookie while it is up; without the cookie the least busy one.
    Cookie(String),
}

/// Health checks: FastCGI requests for php-fpm's own `ping.path`. Each takes a child of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The `ping.path` of its pool.
    pub path: String,
    /// Its `pm.status_path`, which tells how many requests it has from other clients.
    pub status: Option<String>,
    /// Time between two requests, and the longest time for an answer.
    pub every: Duration,
    /// Failures in a row that take a server out. A refused connection does so at once.
    pub fail: u32,
    /// Answers in a row that take it in again.
    pub recover: u32,
}
