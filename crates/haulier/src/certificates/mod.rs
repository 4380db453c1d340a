//! The certificates of a running server: from files, from an authority of our own, from one of the internet.
//!
//! `manager` holds the certificates that are served and watches for changes. `local` is our own authority, `acme` orders
//! from others, `reach` checks whether that would work, `state` is the directory of keys and certificates.

mod acme;
mod http;
pub(crate) mod local;
mod manager;
pub(crate) mod reach;
mod settings;
mod state;

pub(crate) use manager::{CertificateError, CertificateManager, CertificateNeeds};
pub(crate) use settings::{
    Authority, CertificateMode, CertificatePlan, CertificateSource, Challenge, DIRECTORY, Tls, state_directory,
};
