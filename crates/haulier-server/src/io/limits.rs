//! Limits and timeouts of a connection.

use std::time::Duration;

/// Limits and timeouts of connections and requests; docs/limits.md gives the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from the first byte of a request head to its last; then 408.
    pub head_timeout: Duration,
    /// Longest time without a byte of the request body; then 408.
    pub body_timeout: Duration,
    /// Least rate of a request body after its first ten seconds, bytes a second.
    pub body_min_rate: u64,
    /// Longest time that an idle connection stays open.
    pub idle_timeout: Duration,
    /// Longest time without progress while sending.
    pub send_timeout: Duration,
    /// Least rate at which a client takes a response, bytes a second; 0 = no limit.
    pub min_send_rate: u64,
    /// Time that this rate is averaged over; only time with data waiting counts.
    pub send_rate_over: Duration,
    /// Longest request line, bytes; then 414.
    pub request_line: usize,
    /// Longest request head without its request line, bytes; then 431.
    pub header: usize,
    /// Most field lines of a request; then 431.
    pub header_fields: usize,
    /// Longest request body, bytes; then 413. A site may have its own limit.
    pub body: u64,
    /// Most bytes of all request bodies on disk; then 503.
    pub body_spool: u64,
    /// Most requests of a connection; 1 = no keep-alive.
    pub keepalive_requests: u32,
    /// Most open connections. Then idle ones are closed; if there are none, new ones wait in the kernel's queue.
    pub connections: usize,
    /// Most open connections of one client address; 0 = no limit.
    pub connections_per_ip: u32,
    /// Apply that limit to local addresses and Unix sockets as well; undeclared proxies may be there.
    pub local_per_ip: bool,
    /// Most open streams of an HTTP/2 connection; a further one is refused.
    pub h2_streams: u32,
    /// Most bytes of a request body that a stream may have in flight.
    pub h2_stream_window: u32,
    /// The same for all streams of a connection, and so the memory of its uploads. At least 65,535.
    pub h2_connection_window: u32,
    /// Most streams of a connection reset in a minute; then it ends.
    pub h2_resets: u32,
    /// Most frames in a minute that carry nothing; then the connection ends.
    pub h2_control_frames: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            body_min_rate: 500,
            idle_timeout: Duration::from_secs(15),
            send_timeout: Duration::from_secs(30),
            min_send_rate: 100,
            send_rate_over: Duration::from_secs(60),
            request_line: 16 * 1024,
            header: 32 * 1024,
            header_fields: 100,
            body: 8 * 1024 * 1024,
            body_spool: 4 << 30,
            keepalive_requests: 1000,
            connections: usize::MAX,
            connections_per_ip: 512,
            local_per_ip: false,
            h2_streams: 100,
            h2_stream_window: 64 * 1024,
            h2_connection_window: 1024 * 1024,
            h2_resets: 200,
            h2_control_frames: 1000,
        }
    }
}
