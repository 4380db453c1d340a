//! The purpose of a server, which its command decides.

/// The purpose of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Full error pages, nothing cached, folders listed.
    Development,
    /// As configured.
    Production,
}
