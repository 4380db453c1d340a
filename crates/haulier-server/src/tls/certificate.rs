//! A certificate with its chain and key.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate with its chain and key.
pub struct Certificate {
    key: Arc<CertifiedKey>,
    not_before: SystemTime,
    not_after: SystemTime,
}

/// An unusable certificate; the caller knows the file.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the file contains no certificate in PEM form")]
    NoCertificate,
    #[error("the key file contains no private key in PEM form")]
    NoKey,
    #[error("unsupported private key: {0}")]
    UnusableKey(Error),
    #[error("the certificate is malformed")]
    Malformed,
    /// The key belongs to another certificate.
    #[error("the private key belongs to another certificate")]
    KeyMismatch,
}

impl Certificate {
    /// Reads a chain, leaf first, and its key from two PEM files; they may be the same file.
    ///
    /// # Errors
    /// [`CertificateError`]
    pub fn read(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|source| CertificateError::Unreadable {
                path: path.to_owned(),
                source,
            })
        };
        Self::from_pem(&read(chain)?, &read(key)?)
    }

    /// Like [`Certificate::read`], from the content of the files.
    ///
    /// # Errors
    /// All of [`CertificateError`] but `Unreadable`.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let key = certified_key(chain, key)?;
        let own = key.cert.first().ok_or(CertificateError::NoCertificate)?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|_| CertificateError::Malformed)?;
        let not_before = time(parsed.validity().not_before.timestamp());
        let not_after = time(parsed.validity().not_after.timestamp());
        match key.keys_match() {
            // Some keys do not reveal their public half; they are accepted.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => return Err(CertificateError::KeyMismatch),
            Err(_) => return Err(CertificateError::Malformed),
        }
        Ok(Self {
            key: Arc::new(key),
            not_before,
            not_after,
        })
    }

    /// The first moment of validity.
    #[must_use]
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// The last moment of validity.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// True if it is valid for this host name or address (RFC 9525 §6). `*.` at the beginning is covered by the same
    /// wildcard.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        // A wildcard matches any one label.
        let host = match host.strip_prefix("*.") {
            Some(domain) => format!("any.{domain}"),
            None => host.trim_matches(['[', ']']).to_owned(),
        };
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        let own = self.key.end_entity_cert();
        own.and_then(ParsedCertificate::try_from)
            .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

/// Parses chain and key without comparing them.
///
/// It is all that the certificate for a challenge (RFC 8737 §3) needs: its critical extension makes every other check
/// fail.
pub(super) fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| CertificateError::NoCertificate)?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
    let key = any_supported_type(&key).map_err(CertificateError::UnusableKey)?;
    Ok(CertifiedKey::new(chain, key))
}

impl fmt::Debug for Certificate {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// Seconds since 1970, which may be negative.
fn time(seconds: i64) -> SystemTime {
    let span = Duration::from_secs(seconds.unsigned_abs());
    let moved = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(span)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(span)
    };
    moved.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A self-signed certificate for these names, and its key, in PEM form.
    pub(in crate::tls) fn pem(names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names)
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    pub(in crate::tls) fn certificate(names: &[&str]) -> Certificate {
        let (chain, key) = pem(names);
        Certificate::from_pem(chain.as_bytes(), key.as_bytes()).expect("both fit")
    }

    #[test]
    fn it_covers_the_names_it_was_made_for_and_no_others() {
        let certificate = certificate(&["shop.example", "*.blog.example", "127.0.0.1"]);
        for host in [
            "shop.example",
            "SHOP.example",
            "a.blog.example",
            "*.blog.example",
            "127.0.0.1",
        ] {
            assert!(certificate.covers(host), "{host}");
        }
        for host in [
            "example",
            "www.shop.example",
            "blog.example",
            "a.b.blog.example",
            "*.shop.example",
            "127.0.0.2",
            "[::1]",
            "",
            "*",
        ] {
            assert!(!certificate.covers(host), "{host}");
        }
    }

    #[test]
    fn it_knows_how_long_it_is_valid() {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let made = params.self_signed(&key).expect("a certificate");
        let certificate =
            Certificate::from_pem(made.pem().as_bytes(), key.serialize_pem().as_bytes()).expect("both fit");
        let seconds = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH)
                .expect("after 1970")
                .as_secs()
        };
        assert_eq!(seconds(certificate.not_before()), 1_577_836_800);
        assert_eq!(seconds(certificate.not_after()), 1_609_459_200);
    }

    #[test]
    fn what_is_no_certificate_with_its_key_is_refused_with_the_reason() {
        let (chain, key) = pem(&["a.example"]);
        let (_, other_key) = pem(&["a.example"]);
        let rows = [
            (chain.as_str(), other_key.as_str(), "belongs to another certificate"),
            ("", key.as_str(), "no certificate"),
            (key.as_str(), key.as_str(), "no certificate"),
            (chain.as_str(), chain.as_str(), "no private key"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                key.as_str(),
                "malformed",
            ),
        ];
        for (chain, key, expected) in rows {
            let error = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        let missing = Certificate::read(Path::new("/nonexistent.pem"), Path::new("/nonexistent.pem"));
        assert!(matches!(missing, Err(CertificateError::Unreadable { .. })));
    }
}
