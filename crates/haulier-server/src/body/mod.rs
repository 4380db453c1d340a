//! Bodies on their way through the server: a request's, collected; an answer's, held back, coded and spooled.
//!
//! The body of a back end's answer passes these stages, each of which reads a [`haulier_http::BodySource`]:
//! `gather` (short bodies end here) → [`resumed`] → a coder, or [`transfer::Uncoded`] → `queue` → the client. [`hold`] says how
//! long each stage may keep it back. The stages do not know which back end has answered.

mod budget;
pub(crate) mod gather;
pub(crate) mod hold;
mod queue;
pub(crate) mod request;
pub(crate) mod resumed;
pub(crate) mod spool;
pub(crate) mod transfer;

pub(crate) use budget::SpoolBudget;
pub(crate) use gather::{Gathered, gather};
pub(crate) use hold::Pacing;
pub(crate) use resumed::Resumed;
pub(crate) use spool::{Completed, Spool, SpoolRoom};
