//! Settings of the logs.

use std::path::PathBuf;

use haulier_settings::settings_table;
use tracing::Level;

const FORMATS: [(&str, Format); 4] = [
    ("auto", Format::Auto),
    ("text", Format::Text),
    ("json", Format::Json),
    ("combined", Format::Combined),
];
const ACCESSES: [(&str, Access); 3] = [("on", Access::On), ("off", Access::Off), ("errors", Access::Errors)];
const LEVELS: [(&str, Level); 5] = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

settings_table! {
    /// `[log]`
    pub(crate) struct LogTable = "log" =>

    /// Settings of the logs of the server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct LogSettings {
        /// The file of the access log; `None` is standard error.
        file: Option<PathBuf> = None;
    }

    /// `text`, `json`, `combined` (requests only), or `auto`: text on a terminal, JSON otherwise.
    format: Choice(Format, FORMATS) -> Format = "auto";
    /// The access log: `on`, `off`, or `errors` (4xx and 5xx).
    access: Choice(Access, ACCESSES) -> Access = "on";
    /// `error`, `warn`, `info`, `debug` or `trace`.
    level: Choice(Level, LEVELS) -> Level = "info";
    /// File of the access log; opened anew on SIGUSR1.
    file: Path else "standard error";
}

settings_table! {
    /// `[site.NAME.log]`
    pub(crate) struct SiteLogTable = "site.NAME.log" =>

    /// Settings of the access log of a site; `None` is as the server's.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SiteLog {
        /// The file.
        file: Option<PathBuf> = None;
    }

    /// `text`, `json`, `combined` or `auto`: JSON in a file.
    format: Choice(Format, FORMATS) -> Format else "as in `[log]`";
    /// `on`, `off` or `errors`.
    access: Choice(Access, ACCESSES) -> Access else "as in `[log]`";
    /// File of this site's access log; several sites may share one.
    file: Path else "as in `[log]`";
}

impl SiteLog {
    /// True if the site has no settings of its own.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Apache's combined form for requests; everything else as `Auto`.
    Combined,
}

/// The requests that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All.
    On,
    /// None.
    Off,
    /// Those answered with 4xx and 5xx.
    Errors,
}
