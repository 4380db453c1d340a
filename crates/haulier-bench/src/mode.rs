//! Modes of `haulier bench`: its own, and that of ab. All their differences are in one value.

use super::job::StatusRule;

/// The form of requests, and the judgement of answers.
#[derive(Debug, PartialEq, Eq)]
pub struct RunMode {
    /// The version in the request line.
    pub version: &'static str,
    /// The field line of a kept connection; HTTP/1.1 needs none.
    pub keep_alive_line: &'static str,
    /// The field line of a connection that is used once; HTTP/1.0 needs none.
    pub close_line: &'static str,
    /// User-Agent.
    pub agent: &'static str,
    /// Requests every target before the run, to compare the answers.
    pub probes: bool,
    /// Warms up before the first slice that counts.
    pub warms_up: bool,
    /// Good statuses, if the answers before the run do not decide.
    pub status: StatusRule,
    /// Failed answers count in the latency.
    pub times_failures: bool,
    /// Records the time after connecting separately.
    pub times_processing: bool,
    /// Warns of a server that closes connections.
    pub expects_keep_alive: bool,
}

impl RunMode {
    /// The mode of `haulier bench`.
    pub const HAULIER: Self = Self {
        version: "1.1",
        keep_alive_line: "",
        close_line: "Connection: close\r\n",
        agent: concat!("haulier/", env!("CARGO_PKG_VERSION")),
        probes: true,
        warms_up: true,
        status: StatusRule::NoError,
        times_failures: false,
        times_processing: false,
        expects_keep_alive: true,
    };

    /// The mode of ab 2.3.
    pub const AB: Self = Self {
        version: "1.0",
        keep_alive_line: "Connection: Keep-Alive\r\n",
        close_line: "",
        agent: "ApacheBench/2.3",
        probes: false,
        warms_up: false,
        status: StatusRule::Any,
        times_failures: true,
        times_processing: true,
        expects_keep_alive: false,
    };
}
