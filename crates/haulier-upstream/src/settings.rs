//! Settings of an upstream.

use std::time::Duration;

use crate::address::Address;
use crate::health::Thresholds;

/// Servers of one kind, and the limits for requests to them.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// Name of the pool in log messages.
    pub name: String,
    /// Kind of server in log messages: `FastCGI server`.
    pub server_kind: &'static str,
    /// Addresses of the servers, at least one.
    pub addresses: Vec<Address>,
    /// Most connections to each server.
    pub connections: usize,
    /// Most requests in progress at once, of those that compute: see [`held_back`](crate::Upstream::held_back). `None` is
    /// as many as there are connections.
    pub at_once: Option<usize>,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Most requests that may wait for a connection.
    pub queue_length: usize,
    /// Longest time a request waits for a connection.
    pub queue_timeout: Duration,
    /// Most connections opened within a second; `None` is no limit.
    pub open_rate: Option<u32>,
    /// Servers are running at the start. Otherwise connections to one are opened only after
    /// [`server_started`](crate::Upstream::server_started).
    pub is_running: bool,
    /// Servers may be parked while no request needs them.
    pub may_park: bool,
    /// Thresholds of the health checks; `None` without checks, where a successful connection suffices.
    pub thresholds: Option<Thresholds>,
}
