//! The sites: which one answers to a host, what is known of it, and what holds for a path of it.

pub(crate) mod rewrite;
mod router;
mod routes;
#[allow(clippy::module_inception, reason = "the file of `Site`")]
mod site;

pub(crate) use router::Router;
pub(crate) use routes::{Matched, Routes};
pub(crate) use site::Site;
