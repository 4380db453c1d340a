//! Responses that need no handler: error pages and redirects.

pub(crate) mod error_page;
pub(crate) mod page;
pub(crate) mod redirect;
