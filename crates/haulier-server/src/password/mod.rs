//! Password files of `htpasswd`, and the credentials of requests.

mod apr1;
mod base64;
mod credentials;
mod htpasswd;

pub(crate) use credentials::{Credentials, credentials, user};
pub use htpasswd::{Htpasswd, HtpasswdError};
