//! Which site answers, and what is known of it.

pub mod glob;
mod router;
mod site;

pub use router::Router;
pub use site::Site;
