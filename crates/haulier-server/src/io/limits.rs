//! Limits and timeouts of a connection.

use std::time::Duration;

use haulier_settings::settings_table;

/// A browser's request head with a few cookies.
const LEAST_HEADER: u64 = 2048;
/// The window of a stream before the settings of a server arrive (RFC 9113 §6.9.2), in whole KiB: until a client has read
/// ours it may send that much.
const LEAST_STREAM_WINDOW: u64 = 64 << 10;
/// The window of an HTTP/2 connection before the settings of a server arrive (RFC 9113 §6.9.2), in whole KiB.
const LEAST_CONNECTION_WINDOW: u64 = 64 << 10;

settings_table! {
    /// `[limits]`
    pub struct LimitsTable = "limits" =>

    /// Limits and timeouts of connections and requests: docs/limits.md gives the reasons.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limits {
        /// Least rate of a request body after its first ten seconds, bytes a second.
        body_min_rate: u64 = 500;
        /// The time that `min_send_rate` is averaged over; only time in which bytes wait counts.
        send_rate_over: Duration = Duration::from_secs(60);
        /// Longest request line, bytes; 414 beyond.
        request_line: usize = 16 * 1024;
        /// Longest request body, bytes; 413 beyond. A site may have another limit.
        body: u64 = 8 * 1024 * 1024;
        /// Most bytes of all request bodies together on disk; 503 beyond.
        body_spool: u64 = 4 << 30;
        /// Most open connections. Idle ones are closed for new ones; if none is idle, new ones wait in the kernel.
        connections: usize = usize::MAX;
        /// `connections_per_ip` also holds for addresses of this machine and for Unix sockets, where an unnamed proxy may
        /// connect from.
        local_per_ip: bool = false;
    }

    /// Longest request body; 413 beyond.
    body: Size(0) else "PHP's post_max_size, else \"8MiB\"";
    /// Most bytes of all request bodies together in `spool_dir`; 503 beyond.
    body_spool: Size(0) else "\"4GiB\", or twice the largest `body`";
    /// Longest request head; 431 beyond.
    header: Size(LEAST_HEADER) -> usize = "32KiB";
    /// Most field lines of a request; 431 beyond.
    header_fields: Count(16, "browsers send more than that") -> usize = 100;
    /// From the first byte of a request head to its last.
    head_timeout: Deadline -> Duration = "10s";
    /// Longest time without a byte of the request body.
    body_timeout: Deadline -> Duration = "15s";
    /// Longest idle time of a connection.
    idle_timeout: Deadline -> Duration = "15s";
    /// Longest time without progress while sending.
    send_timeout: Deadline -> Duration = "30s";
    /// Least rate in bytes a second at which a client must read, averaged over a minute; 0 is no limit.
    min_send_rate: Count(0, "0 is no limit") -> u64 = 100;
    /// Requests on one connection; 1 turns keep-alive off.
    keepalive_requests: Count(1, "a connection carries at least one request") -> u32 = 1000;
    /// Most open connections. Idle ones are closed for new ones; if none is idle, new ones wait in the kernel.
    connections: Count(1, "nobody could connect") else "what the descriptor limit allows";
    /// Most open connections of one client address (IPv6: of a /64); 0 is no limit. Without this setting loopback is
    /// exempt.
    connections_per_ip: Count(0, "0 is no limit") -> u32 = 512;
    /// Requests of one client address over all sites without their own limit: `"20/s"`, `"100/m burst 20"`; 429 beyond.
    requests_per_ip: Rate else "none";
    /// Most open streams of an HTTP/2 connection; further ones are refused.
    h2_streams: Count(1, "nothing could be asked for") -> u32 = 100;
    /// Bytes of a request body that an HTTP/2 stream may send unread.
    h2_stream_window: Size(LEAST_STREAM_WINDOW) -> u32 = "64KiB";
    /// The same for all streams of a connection together.
    h2_connection_window: Size(LEAST_CONNECTION_WINDOW) -> u32 = "1MiB";
    /// Resets of HTTP/2 streams in a minute; more of them end the connection.
    h2_resets: Count(1, "browsers give up streams now and then") -> u32 = 200;
    /// Frames without content in a minute; more of them end the HTTP/2 connection.
    h2_control_frames: Count(16, "clients begin with some") -> u32 = 1000;
}
