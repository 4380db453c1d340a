//! `[server]`, `[log]` and `[limits]`.

use haulier_settings::settings_table;

use crate::log::{Access, Format};

/// A browser's request head with a few cookies.
const LEAST_HEADER: u64 = 2048;
/// The window of a stream before the settings of a server arrive (RFC 9113 §6.9.2), in whole KiB: until a client has read
/// ours it may send that much.
const LEAST_STREAM_WINDOW: u64 = 64 << 10;
/// The window of an HTTP/2 connection before the settings of a server arrive (RFC 9113 §6.9.2), in whole KiB.
const LEAST_CONNECTION_WINDOW: u64 = 64 << 10;

pub(super) const FORMATS: [(&str, Format); 4] = [
    ("auto", Format::Auto),
    ("text", Format::Text),
    ("json", Format::Json),
    ("combined", Format::Combined),
];
pub(super) const ACCESSES: [(&str, Access); 3] = [("on", Access::On), ("off", Access::Off), ("errors", Access::Errors)];
const LEVELS: [(&str, tracing::Level); 5] = [
    ("error", tracing::Level::ERROR),
    ("warn", tracing::Level::WARN),
    ("info", tracing::Level::INFO),
    ("debug", tracing::Level::DEBUG),
    ("trace", tracing::Level::TRACE),
];

settings_table! {
    /// `[server]`
    pub(crate) struct ServerTable = "server";

    /// Address to listen on, or a list: `:80` is every address, port 0 takes a free one, `unix:/path` is a socket.
    http: TextOrTexts = ":80";
    /// Address to listen on with TLS, or a list; written alone, it gives TLS to every site.
    https: TextOrTexts else "`:443` once a site has TLS";
    /// Speak HTTP/2 with clients that begin with it, and over TLS with those that can.
    http2: Flag = true;
    /// Let a second haulier serve the same port, for more connections than one process may hold.
    reuse_port: Flag = false;
    /// Take a connection when its first bytes are there; silent ones wait in the kernel.
    defer_accept: Flag = true;
    /// Threads, each with its own event loop.
    threads: Count(1, "somebody has to do the work") else "the processors we may use";
    /// Address of `/metrics`, `/healthz` and `/api/state.json`: `host:port`, `unix:/path`, or `off`.
    admin: Text = "127.0.0.1:4870";
    /// Address of `/livez` and `/readyz` alone, for balancers and orchestrators: `:9180`, `unix:/path`, or `off`.
    probes: Text = "off";
    /// Socket on which `haulier status`, `reload` and `stop` ask.
    control: Text else "haulier-PORT.sock in the runtime directory";
    /// How long running requests may go on after a stop.
    grace: Duration = "30s";
    /// How long a server that is to stop serves on, while `/readyz` and its answers say that it leaves.
    lame_duck: Duration = "0s";
    /// Directory of the nameless files that hold bodies; not a tmpfs.
    spool_dir: Text = "/var/tmp";
    /// Permissions of the Unix sockets in `http`.
    socket_mode: Text = "0666";
    /// Addresses and networks of the proxies whose word about a client counts.
    trusted_proxies: Texts = [];
    /// Connections of those proxies begin with a PROXY header, version 1 or 2.
    proxy_protocol: Flag = false;
    /// Root listens, then becomes this account for good; PHP runs as it too.
    user: Text else "the account that starts it";
}

settings_table! {
    /// `[log]`
    pub(crate) struct LogTable = "log";

    /// `text`, `json`, `combined` (requests only), or `auto`: text on a terminal, JSON otherwise.
    format: Choice(Format, FORMATS) = "auto";
    /// The access log: `on`, `off`, or `errors` (4xx and 5xx).
    access: Choice(Access, ACCESSES) = "on";
    /// `error`, `warn`, `info`, `debug` or `trace`.
    level: Choice(tracing::Level, LEVELS) = "info";
    /// File of the access log; opened anew on SIGUSR1.
    file: Path else "standard error";
}

settings_table! {
    /// `[limits]`
    pub(crate) struct LimitsTable = "limits";

    /// Longest request body; 413 beyond.
    body: Size(0) else "PHP's post_max_size, else \"8MiB\"";
    /// What all request bodies together may take in `spool_dir`; 503 beyond.
    body_spool: Size(0) else "\"4GiB\", or twice the largest `body`";
    /// Longest request head; 431 beyond.
    header: Size(LEAST_HEADER) = "32KiB";
    /// Most field lines of a request; 431 beyond.
    header_fields: Count(16, "browsers send more than that") = 100;
    /// From the first byte of a request head to its last.
    head_timeout: Deadline = "10s";
    /// Longest time without a byte of the request body.
    body_timeout: Deadline = "15s";
    /// How long an idle connection is kept.
    idle_timeout: Deadline = "15s";
    /// Longest time without progress while sending.
    send_timeout: Deadline = "30s";
    /// Bytes a second a client must take of what waits for it, averaged over a minute; 0 is no limit.
    min_send_rate: Count(0, "0 is no limit") = 100;
    /// Requests a connection may carry; 1 turns keep-alive off.
    keepalive_requests: Count(1,
            "a connection carries at least one request") = 1000;
    /// Most open connections; idle ones are closed for new ones, and where none is idle those wait in the kernel.
    connections: Count(1, "nobody could connect") else "what the descriptor limit allows";
    /// Most open connections of one client address (IPv6: of a /64); 0 is no limit. Unless it is written, loopback is
    /// exempt.
    connections_per_ip: Count(0, "0 is no limit") = 512;
    /// Requests of one client address, over all sites that do not say their own: `"20/s"`, `"100/m burst 20"`; 429
    /// beyond.
    requests_per_ip: Rate else "none";
    /// Streams an HTTP/2 connection may have open; a further one is refused.
    h2_streams: Count(1, "nothing could be asked for") = 100;
    /// Bytes of a request body an HTTP/2 stream may have under way unread.
    h2_stream_window: Size(LEAST_STREAM_WINDOW) = "64KiB";
    /// The same for all streams of a connection together.
    h2_connection_window: Size(LEAST_CONNECTION_WINDOW) = "1MiB";
    /// Streams of an HTTP/2 connection that may be reset in a minute; more ends it.
    h2_resets: Count(1, "browsers give up streams now and then") = 200;
    /// Frames in a minute that carry nothing; more ends the HTTP/2 connection.
    h2_control_frames: Count(16, "clients begin with some") = 1000;
}
