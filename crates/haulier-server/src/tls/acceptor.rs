//! The common part of all handshakes: versions, ciphers, tickets, ALPN protocols.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer, cipher_suite};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedCipherSuite};

use super::{Certificates, suite};

/// ALPN of HTTP/2 (RFC 9113 §3.1).
pub(crate) const HTTP_2: &[u8] = b"h2";
/// ALPN of HTTP/1.1 (RFC 7301 §6).
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";
/// ALPN of a certificate authority's challenge (RFC 8737 §3).
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// Supported protocols, best first; nowhere else is this list. `listen::tls` starts the chosen one.
const PROTOCOLS: &[&[u8]] = &[HTTP_2, HTTP_1_1];

/// Supported ciphers, best first. AES with 128 bits is safe, and its key schedule is the cheapest.
static CIPHER_SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
    [
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
    .map(suite::in_pieces)
    .to_vec()
});

/// The oldest supported version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeastVersion {
    #[default]
    Tls12,
    Tls13,
}

/// Accepts TLS connections.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

/// The library cannot work on this machine, for lack of randomness.
#[derive(Debug, thiserror::Error)]
#[error("TLS is not available")]
pub struct AcceptorError(#[from] rustls::Error);

impl Acceptor {
    /// Accepts connections to the names of `certificates`, which may be installed later.
    ///
    /// Sessions are resumed by tickets. Their keys never leave this process and are replaced every six hours. No state
    /// is kept for a closed session, and early data is refused, since it could be replayed (RFC 8446 §8).
    ///
    /// With `http2`, it is offered by ALPN.
    ///
    /// # Errors
    /// [`AcceptorError`]
    pub fn new(certificates: Arc<Certificates>, least: LeastVersion, http2: bool) -> Result<Self, AcceptorError> {
        let provider = CryptoProvider {
            cipher_suites: CIPHER_SUITES.clone(),
            ..aws_lc_rs::default_provider()
        };
        let versions: &[_] = match least {
            LeastVersion::Tls12 => &[&TLS13, &TLS12],
            LeastVersion::Tls13 => &[&TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificates) as Arc<_>);
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new()?;
        let ours = PROTOCOLS
            .iter()
            .copied()
            .filter(|&protocol| http2 || protocol != HTTP_2);
        let of_authorities = certificates.answers_challenges().then_some(ACME_TLS);
        config.alpn_protocols = ours.chain(of_authorities).map(<[u8]>::to_vec).collect();
        Ok(Self {
            config: Arc::new(config),
            certificates,
        })
    }

    /// Shares the ticket keys of `other`, so that each resumes the other's sessions.
    #[must_use]
    pub fn resuming(self, other: &Self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.ticketer = Arc::clone(&other.config.ticketer);
        Self {
            config: Arc::new(config),
            ..self
        }
    }

    /// The certificates of this acceptor.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    pub(crate) fn connection(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }
}
