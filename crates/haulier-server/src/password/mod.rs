//! Files of names and passwords, as `htpasswd` writes them.

mod apr1;
mod base64;
mod credentials;
mod htpasswd;

pub(crate) use credentials::{Credentials, credentials, user};
pub use htpasswd::{Htpasswd, HtpasswdError};
