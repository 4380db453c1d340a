//! `[server]`.

use std::time::Duration;

use haulier_server::ServerRows;
use haulier_settings::settings_table;

settings_table! {
    /// `[server]`
    pub(crate) struct ServerTable = "server" =>

    /// The end of the process.
    #[derive(Debug, Clone)]
    pub(crate) struct StopSettings {}

    /// Address to listen on, or a list: `:80` is every address, port 0 takes a free one, `unix:/path` is a socket.
    http: TextOrTexts = ":80";
    /// Address to listen on with TLS, or a list; written alone, it gives TLS to every site.
    https: TextOrTexts else "`:443` once a site has TLS";
    /// Settings that the server takes as written.
    serving: Rows(ServerRows);
    /// Threads, each with its own event loop.
    threads: Count(1, "somebody has to do the work") else "the processors we may use";
    /// Address of `/metrics`, `/healthz` and `/api/state.json`: `host:port`, `unix:/path`, or `off`.
    admin: Text = "127.0.0.1:4870";
    /// Address of `/livez` and `/readyz` alone, for balancers and orchestrators: `:9180`, `unix:/path`, or `off`.
    probes: Text = "off";
    /// Socket on which `haulier status`, `reload` and `stop` ask.
    control: Text else "haulier-PORT.sock in the runtime directory";
    /// Time that running requests have after a stop.
    grace: Duration -> Duration = "30s";
    /// Time for which a server that is to stop serves on, while `/readyz` and its answers say that it leaves.
    lame_duck: Duration -> Duration = "0s";
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
