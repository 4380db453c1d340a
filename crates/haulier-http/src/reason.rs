//! Reasons for failed requests, one row each. Logs, metrics, error pages and docs/operate.md repeat the text of a row.

use std::fmt;

/// The side that a failed request is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client, or an order of the administrator.
    Client,
    /// This server, PHP, a store or a disk.
    Server,
}

/// The status of a reason that has only one.
macro_rules! status {
    (_) => {
        None
    };
    ($status:literal) => {
        Some($status)
    };
}

/// Rows: name, word, fault, status (`_` if it depends on the case), cause, advice.
macro_rules! reasons {
    ($($name:ident, $word:literal, $fault:ident, $status:tt, $what:literal, $help:literal;)*) => {
        /// The cause of a failed request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $what] $name,)*
        }

        impl Reason {
            /// All reasons, in alphabetical order of their words.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word in logs and metrics.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The side at fault.
            #[must_use]
            pub const fn fault(self) -> Fault {
                match self {
                    $(Self::$name => Fault::$fault,)*
                }
            }

            /// The status of the response, if it is always the same.
            #[must_use]
            pub const fn status(self) -> Option<u16> {
                match self {
                    $(Self::$name => status!($status),)*
                }
            }

            /// Cause and advice, for developers and administrators.
            #[must_use]
            pub const fn explanation(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($what, $help),)*
                }
            }
        }
    };
}

reasons! {
    Aborted, "aborted", Server, _,
        "The response broke off because its task ended early.",
        "See the log lines before this one for a panic or a stop of the server.";
    BadBody, "bad_body", Client, 400,
        "The chunks of the request body are malformed.",
        "The client is at fault; nothing to do here.";
    BadPath, "bad_path", Client, 400,
        "The path is ambiguous, so it is refused.",
        "It contains a zero or control byte, `%2F`, a `%` without two digits, or `..` above the root.";
    BadRequest, "bad_request", Client, _,
        "The request head is malformed or beyond a limit.",
        "The client is at fault, or `header` or `header_fields` in `[limits]` is too small.";
    BadResponse, "bad_response", Server, 502,
        "PHP sent something that is not an HTTP response: its header lines are malformed or too large.",
        "Look for output of the script among its header lines.";
    BodySpoolFull, "body_spool_full", Server, 503,
        "Request bodies use up all of `body_spool` on disk.",
        "Raise `body_spool` in `[limits]`, or find the scripts that keep long bodies waiting.";
    BodyTimeout, "body_timeout", Client, 408,
        "The request body arrived too slowly.",
        "Raise `body_timeout` in `[limits]` if clients pause that long; less than 500 bytes a second is always refused.";
    BodyTooLarge, "body_too_large", Server, 413,
        "The body is longer than this site accepts.",
        "Below are its length, the limit, and the setting of the limit. For uploads PHP has upload_max_filesize as well.";
    ClientGone, "client_gone", Client, _,
        "The client closed the connection before the response was complete.",
        "Nothing, unless there are many; then look for slow pages.";
    CompressFailed, "compress_failed", Server, _,
        "A coder failed in the middle of a body.",
        "See its error in the log; memory may have run out.";
    ConnectRefused, "connect_refused", Server, 502,
        "PHP could not be reached.",
        "Check that the process at `servers` runs, and that its socket is the one in the configuration.";
    FileError, "file_error", Server, 500,
        "The file exists but cannot be read.",
        "See the system log for disk errors.";
    FrontControllerMissing, "front_controller_missing", Server, 500,
        "The script that answers for all paths does not exist, or may not run.",
        "Check `front` and `root` of the site.";
    HeadTimeout, "head_timeout", Client, 408,
        "The request head did not arrive in time.",
        "Raise `head_timeout` in `[limits]` if clients are that slow.";
    ImageQueueFull, "image_queue_full", Server, 503,
        "Every image worker was busy, and the queue was full.",
        "Give the site more `workers` or a longer `queue` in `[site.NAME.images]`, or a larger cache.";
    ImageWorkerFailed, "image_worker_failed", Server, _,
        "The process that renders images failed.",
        "See the cause in the log; the image is not at fault.";
    Maintenance, "maintenance", Client, 503,
        "The site is closed: the file of `maintenance` exists.",
        "Remove the file `maintenance.file` names, or add this address to `maintenance.allow`.";
    NoPhp, "no_php", Server, 500,
        "A script was requested, but the site has no PHP.",
        "Give the site a `pool`.";
    NoSite, "no_site", Client, 421,
        "No site has this host name.",
        "Check `hosts` of the sites.";
    OutOfDescriptors, "out_of_descriptors", Server, 503,
        "This process has no file descriptors left.",
        "Raise its limit (LimitNOFILE, ulimit -n) or lower `connections`.";
    Panic, "panic", Server, 500,
        "A bug in haulier: the code that answered this request panicked.",
        "Report the log line, which names the place.";
    ParamsTooLong, "params_too_long", Server, 431,
        "The variables of the request do not fit into FastCGI records.",
        "Lower `header` in `[limits]`, or shorten `env` of the pool.";
    PhpConnection, "php_connection", Server, 502,
        "The connection to PHP failed.",
        "See the system's error in the log.";
    PhpCrashed, "php_crashed", Server, 502,
        "The PHP worker ended before its response was complete. A new worker replaces it.",
        "Its last message is below, if there is one. Suspect an extension first, then a kill for lack of memory.";
    PhpError, "php_error", Server, _,
        "The script ended with an error and sent no page.",
        "Below is what it wrote to PHP's error log.";
    PhpTimeout, "php_timeout", Server, 504,
        "PHP did not begin to answer within `timeout` of the pool, so the worker was killed.",
        "Make the page faster, or raise `timeout` of the pool.";
    PlainHttp, "plain_http", Server, 400,
        "A client sent HTTP without TLS to a TLS port.",
        "Use a link that begins with https://.";
    PoolFull, "pool_full", Server, 503,
        "Every PHP worker was busy, and none was free in time.",
        "Look for slow pages in the log, or give the pool more `workers`.";
    PoolStopped, "pool_stopped", Server, 503,
        "The pool of PHP workers was stopped while the request waited.",
        "Nothing: it happens when the server or a pool stops.";
    ProxyHeader, "proxy_header", Server, 400,
        "A connection of a trusted proxy did not begin with a PROXY header.",
        "Let the proxy send it, or turn `proxy_protocol` off.";
    RateLimited, "rate_limited", Client, 429,
        "This address sent more requests than the site allows.",
        "Check `requests_per_ip` in `[limits]` and `rate` of the routes.";
    RedirectLoop, "redirect_loop", Server, 500,
        "Scripts of this site redirected the request to one another without end.",
        "Look for `Location:` with a path, sent without a status.";
    RequestBodyLost, "request_body_lost", Server, 500,
        "The spooled request body could not be read again.",
        "See the system's error in the log, and check the disk of `spool_dir`.";
    SendTimeout, "send_timeout", Client, _,
        "The client accepted no data for `send_timeout`.",
        "Raise `send_timeout` in `[limits]` if clients pause that long.";
    SendTooSlow, "send_too_slow", Client, _,
        "The client received less than `min_send_rate`.",
        "Lower `min_send_rate` in `[limits]` if clients are that slow.";
    SendfileDenied, "sendfile_denied", Server, 404,
        "A script named a file that may not be sent. Below is each path that was tried.",
        "`roots` and `map` in `[site.NAME.sendfile]` list where such files may be.";
    ServerStopped, "server_stopped", Server, _,
        "The server stopped before the response was complete.",
        "Raise `grace` in `[server]` if responses take longer.";
    SpoolFailed, "spool_failed", Server, 507,
        "The request body could not be stored.",
        "Check the disk of `spool_dir`: space, permissions, errors.";
    StoreDamaged, "store_damaged", Server, 502,
        "The stored image does not match its id.",
        "Upload the right file again; `haulier image verify` finds others.";
    StoreFailed, "store_failed", Server, _,
        "The store of originals failed.",
        "See its error in the log; `haulier check --live` tests it.";
    StoreFull, "store_full", Server, 507,
        "The store of originals is full.",
        "Free space there, or move `store` to a larger disk.";
}

impl Reason {
    /// True if the client or an order of the administrator is the cause.
    #[must_use]
    pub fn is_clients(self) -> bool {
        self.fault() == Fault::Client
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_in_the_order_of_their_words() {
        assert!(Reason::ALL.is_sorted_by(|one, other| one.word() < other.word()));
        for (number, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, number, "{reason}");
        }
    }

    #[test]
    fn the_documentation_lists_every_reason() {
        let docs = include_str!("../../../docs/operate.md");
        let rows: Vec<&str> = docs
            .lines()
            .filter(|line| Reason::ALL.iter().any(|reason| line.starts_with(&row_start(*reason))))
            .collect();
        for reason in Reason::ALL {
            let (what, help) = reason.explanation();
            let status = reason.status().map_or("–".to_owned(), |status| status.to_string());
            let row = format!("{} {status} | {what} | {help} |", row_start(*reason));
            assert!(rows.contains(&row.as_str()), "docs/operate.md lacks the row\n{row}");
        }
        assert_eq!(rows.len(), Reason::ALL.len(), "a row twice");
    }

    fn row_start(reason: Reason) -> String {
        format!("| `{reason}` |")
    }
}
