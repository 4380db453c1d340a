//! The certificates of a running server: from files, from an authority of our own, from one of the internet.
//!
//! `manager` holds what is served and looks for changes, `local` is our own authority, `acme` talks to others, `reach`
//! only asks whether it could, `state` is the directory in which they keep what outlives the process.

mod acme;
mod http;
pub(crate) mod local;
mod manager;
pub(crate) mod reach;
mod state;

pub(crate) use manager::{CertificateError, CertificateManager, CertificateNeeds};
