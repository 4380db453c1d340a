//! Handlers: they make the response.

pub(crate) mod error_document;
pub(crate) mod image;
pub(crate) mod listing;
pub(crate) mod php;
