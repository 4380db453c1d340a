//! The purpose of a server, which the command determines.

/// The purpose of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Full error pages, nothing cached, folders listed.
    Development,
    /// As configured.
    Production,
}
