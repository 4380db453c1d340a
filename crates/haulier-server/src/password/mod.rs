//! Files of names and passwords, as `htpasswd` writes them.

mod apr1;
pub(crate) mod base64;
mod htpasswd;

pub use htpasswd::{Htpasswd, HtpasswdError};
