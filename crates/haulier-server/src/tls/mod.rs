//! TLS 1.2 and 1.3 for listeners (RFC 5246, RFC 8446), by rustls and aws-lc-rs.
//!
//! `certificates` maps names to certificates and is replaced at run time; `acceptor` has the common part of all
//! handshakes; `io::session` is the record layer of one connection. `listen::tls` drives the handshakes. The origin of
//! certificates is unknown here.

mod acceptor;
mod certificate;
mod certificates;
mod suite;

pub(crate) use acceptor::{ACME_TLS, HTTP_1_1, HTTP_2};
pub use acceptor::{Acceptor, AcceptorError, LeastVersion};
pub use certificate::{Certificate, CertificateError};
pub use certificates::{Certificates, Challenges, InstalledCertificate};

/// Most plain bytes in a record (RFC 8446 §5.1).
pub(crate) const RECORD: usize = 16 * 1024;
