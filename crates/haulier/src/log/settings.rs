//! Settings of the logs.

use std::path::PathBuf;

/// Settings of the logs of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) format: Format,
    pub(crate) access: Access,
    pub(crate) level: tracing::Level,
    /// The file of the access log; `None` is standard error.
    pub(crate) file: Option<PathBuf>,
}

/// Settings of the access log of a site; `None` is as the server's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SiteLog {
    pub(crate) format: Option<Format>,
    pub(crate) access: Option<Access>,
    pub(crate) file: Option<PathBuf>,
}

impl SiteLog {
    /// True if the site has no settings of its own.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            format: Format::Auto,
            access: Access::On,
            level: tracing::Level::INFO,
            file: None,
        }
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
