//! Who makes the response.

pub(crate) mod error_document;
pub(crate) mod error_page;
pub(crate) mod image;
pub(crate) mod listing;
mod page;
pub(crate) mod php;
pub(crate) mod redirect;
pub(crate) mod static_files;
