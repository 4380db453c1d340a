//! Who makes the response.

pub mod error_page;
pub mod listing;
mod page;
pub mod php;
pub mod redirect;
pub mod static_files;
