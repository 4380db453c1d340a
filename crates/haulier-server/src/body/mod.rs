//! Bodies on their way: request bodies are collected; response bodies are held back, coded and spooled.
//!
//! The body of a back end passes these stages, each of which reads a [`haulier_http::BodySource`]: `gather` (short
//! bodies end here) → [`resumed`] → a coder, or [`transfer::Uncoded`] → `queue` → the client. [`hold`] limits the delay
//! of each. The stages do not know the kind of back end.

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
