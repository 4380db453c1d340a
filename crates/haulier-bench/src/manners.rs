//! What a run does by itself, and what differs where it stands in for ab: all differences, in one value.

use super::job::StatusRule;

/// How a run asks, and what it makes of the answers.
#[derive(Debug, PartialEq, Eq)]
pub struct Manners {
    /// The version in the request line.
    pub version: &'static str,
    /// The line that says that a kept connection is meant to be kept; HTTP/1.1 keeps it without.
    pub keep_alive_line: &'static str,
    /// The line that says that a connection is used once; HTTP/1.0 needs none.
    pub close_line: &'static str,
    /// User-Agent.
    pub agent: &'static str,
    /// Ask every target before the run, to compare the answers.
    pub probes: bool,
    /// Warm up before the first slice that counts.
    pub warms_up: bool,
    /// Which statuses are good, where no probe and no list says otherwise.
    pub status: StatusRule,
    /// Failed answers count in the latency.
    pub times_failures: bool,
    /// Keep the time after the connecting apart.
    pub times_processing: bool,
    /// Warn of a server that closes connections.
    pub expects_keep_alive: bool,
}

impl Manners {
    /// Those of `haulier bench`.
    pub const OWN: Self = Self {
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

    /// Those of ab 2.3.
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
