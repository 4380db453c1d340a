//! TLS 1.2 and 1.3 of the listeners (RFC 5246, RFC 8446), by rustls and aws-lc-rs.
//!
//! `certificates` says which certificate answers for which name and may be filled anew while connections come in;
//! `acceptor` holds what all handshakes share; `io::session` is the record layer of one connection. Handshakes are driven
//! by `listen::tls`; where certificates come from is for others to know.

mod acceptor;
mod certificate;
mod certificates;
mod suite;

pub(crate) use acceptor::{ACME_TLS, HTTP_1_1, HTTP_2};
pub use acceptor::{Acceptor, AcceptorError, LeastVersion};
pub use certificate::{Certificate, CertificateError};
pub use certificates::{Certificates, Challenges, Installed};

/// Most bytes of the application in a record (RFC 8446 §5.1).
pub(crate) const RECORD: usize = 16 * 1024;
