//! What a pool needs to know. Plain values: whoever reads a configuration file fills them in.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One pool of PHP workers.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// The name used in the configuration, logs and metrics.
    pub name: String,
    /// Where the workers come from.
    pub kind: PoolKind,
    /// Longest time from the last byte of the request sent to PHP to the response head. After it the worker is
    /// ended and the client gets 504.
    pub timeout: Duration,
    /// Longest time a request waits for a worker. After it the client gets 503 with Retry-After.
    pub queue_timeout: Duration,
    /// Most requests that may wait. One more gets 503 at once.
    pub queue_length: usize,
    /// Longest head of a CGI response, bytes. A longer one is a 502.
    pub response_head: usize,
}

/// Who runs PHP.
#[derive(Debug, Clone)]
pub enum PoolKind {
    /// haulier starts php-cgi and watches it.
    Supervised(Supervised),
    /// Somebody else runs a FastCGI server, usually php-fpm.
    External(External),
}

/// A php-cgi master of our own with `workers` children on one listening socket, so that opcache is shared.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// The php-cgi program.
    pub php: PathBuf,
    /// PHP processes; at least 1.
    pub workers: usize,
    /// Requests after which a worker is replaced; 0 = never.
    pub max_requests: u64,
    /// `-d name=value` for every worker.
    pub ini: Vec<(String, String)>,
    /// Environment of the workers, beside what `env_copy` names.
    pub env: Vec<(String, String)>,
    /// Names of variables copied from our own environment.
    pub env_copy: Vec<String>,
    /// The user PHP runs as; `None` keeps ours.
    pub user: Option<User>,
    /// Directory for the listening socket; made private (0700), one socket a pool.
    pub socket_dir: PathBuf,
}

/// An account, already looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name, for messages.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
}

/// A FastCGI server that is already running.
#[derive(Debug, Clone)]
pub struct External {
    /// Where it listens; several are used least busy first.
    pub servers: Vec<Server>,
    /// Most connections to each server. Stay below its pm.max_children: an open connection occupies a child.
    pub connections: usize,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// An idle connection is closed after this long, to give its child back.
    pub idle_timeout: Duration,
}

/// The address of a FastCGI server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// `unix:/run/php/php8.2-fpm.sock`
    Unix(PathBuf),
    /// `127.0.0.1:9000`
    Tcp(SocketAddr),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}
