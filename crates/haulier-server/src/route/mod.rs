//! Which site answers, what is known of it, and what holds for a path of it.

pub mod glob;
pub(crate) mod host_map;
pub(crate) mod rewrite;
mod router;
mod routes;
mod site;
pub mod target;
mod visit;

pub use router::Router;
pub(crate) use routes::{Matched, Routes};
pub use site::Site;
pub(crate) use visit::{Round, Visit};
