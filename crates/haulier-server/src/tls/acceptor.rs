//! What all handshakes share: versions, ciphers, tickets, protocols.

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
/// ALPN of an authority that asks for proof (RFC 8737 §3).
pub(crate) const ACME_TLS: &[u8] = b"acme-tls/1";

/// The protocols we speak, the best first: the one place that says so. `listen::tls` starts the one that was chosen.
const PROTOCOLS: &[&[u8]] = &[HTTP_2, HTTP_1_1];

/// The ciphers, the best first. AES with 128 bits is as safe as anybody needs and its key schedule costs the least.
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

/// The oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LeastVersion {
    #[default]
    Tls12,
    Tls13,
}

/// Begins TLS connections.
#[derive(Debug)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

/// The library cannot work on this machine: no randomness.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be used")]
pub struct AcceptorError(#[from] rustls::Error);

impl Acceptor {
    /// For connections to the names of `certificates`, which may be installed later.
    ///
    /// Sessions are resumed by tickets whose keys live in this process only and are replaced every six hours. No
    /// state is kept for a client that left, and no early data is taken: it could be played back (RFC 8446 §8).
    ///
    /// `http2`: clients that can speak it do.
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

    /// Sessions that `other` began are resumed here, and the other way round: by the same keys.
    #[must_use]
    pub fn resuming(self, other: &Self) -> Self {
        let mut config = Arc::unwrap_or_clone(self.config);
        config.ticketer = Arc::clone(&other.config.ticketer);
        Self {
            config: Arc::new(config),
            ..self
        }
    }

    /// The certificates it was made with.
    #[must_use]
    pub fn certificates(&self) -> &Arc<Certificates> {
        &self.certificates
    }

    pub(crate) fn connection(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }
}
