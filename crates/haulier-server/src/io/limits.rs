//! Limits and deadlines of a connection.

use std::time::Duration;

/// Every limit and deadline of a connection and a request: docs/limits.md gives the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a request head to its last; then 408.
    pub head_timeout: Duration,
    /// Longest time without a byte of the request body; then 408.
    pub body_timeout: Duration,
    /// Least rate of a request body after its first ten seconds, bytes a second.
    pub body_min_rate: u64,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Longest time without progress while sending.
    pub send_timeout: Duration,
    /// Least rate at which a client takes what waits for it, bytes a second; 0 = no limit.
    pub min_send_rate: u64,
    /// What that rate is the average of: so much time in which something waited.
    pub send_rate_over: Duration,
    /// Request line, bytes; longer is 414.
    pub request_line: usize,
    /// Request head without its request line, bytes; longer is 431.
    pub header: usize,
    /// Field lines of a request; more is 431.
    pub header_fields: usize,
    /// Request body, bytes; longer is 413. A site may say otherwise.
    pub body: u64,
    /// Bytes all request bodies together may take on disk; then 503.
    pub body_spool: u64,
    /// Requests a connection may carry; 1 = no keep-alive.
    pub keepalive_requests: u32,
    /// Open connections; then idle ones are closed, and where there are none the rest waits in the kernel's queue.
    pub connections: usize,
    /// Open connections of one client address; 0 = no limit.
    pub connections_per_ip: u32,
    /// Whether that holds for this machine's own addresses and for Unix sockets as well, behind which proxies are that
    /// nobody has named.
    pub local_per_ip: bool,
    /// Streams of an HTTP/2 connection open at once; a further one is refused.
    pub h2_streams: u32,
    /// Bytes of a request body a stream may have under way unread.
    pub h2_stream_window: u32,
    /// The same for all streams of a connection: what uploads may hold in memory. At least 65,535.
    pub h2_connection_window: u32,
    /// Streams of a connection reset in a minute; more ends it.
    pub h2_resets: u32,
    /// Frames in a minute that carry nothing; more ends the connection.
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
