//! TLS settings of the generator: the system's trust or none, one version, chosen suites, a client certificate.
//!
//! Sessions are not resumed: a new connection needs a full handshake, as that of a new visitor.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion, version};
use rustls_platform_verifier::BuilderVerifierExt;

use super::job::{Protocol, TlsOptions};

/// # Errors
/// An unknown version or suite, an unreadable certificate, no trust store.
pub(super) fn config(options: &TlsOptions, protocol: Protocol) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(provider(&options.ciphers)?);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(options.version.as_deref())?)
        .map_err(io::Error::other)?;
    let builder = if options.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider.signature_verification_algorithms)))
    } else {
        builder.with_platform_verifier().map_err(io::Error::other)?
    };
    let mut config = match &options.certificate {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let chain = chain.map_err(io::Error::other)?;
            let key = PrivateKeyDer::from_pem_file(path).map_err(io::Error::other)?;
            builder.with_client_auth_cert(chain, key).map_err(io::Error::other)?
        }
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = !options.no_sni;
    if protocol == Protocol::Http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(Arc::new(config))
}

fn provider(names: &[String]) -> io::Result<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if !names.is_empty() {
        let known = provider.cipher_suites.clone();
        let is_asked = |suite: &rustls::SupportedCipherSuite| {
            let name = plain(&format!("{:?}", suite.suite()));
            names.iter().any(|asked| plain(asked) == name)
        };
        provider.cipher_suites.retain(is_asked);
        if provider.cipher_suites.is_empty() {
            let known: Vec<String> = known.iter().map(|suite| format!("{:?}", suite.suite())).collect();
            let message = format!("no such cipher suite; known are {}", known.join(", "));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    Ok(provider)
}

/// A name in one form for `TLS13_AES_128_GCM_SHA256` and `TLS_AES_128_GCM_SHA256`, or for the IANA and OpenSSL names.
fn plain(name: &str) -> String {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.to_ascii_uppercase();
    let name = name.trim_start_matches("TLS13").trim_start_matches("TLS");
    name.replacen("WITH", "", 1)
}

static TLS12: &[&SupportedProtocolVersion] = &[&version::TLS12];
static TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];

fn versions(name: Option<&str>) -> io::Result<&'static [&'static SupportedProtocolVersion]> {
    match name.map(str::to_ascii_uppercase).as_deref() {
        None | Some("ALL") => Ok(rustls::ALL_VERSIONS),
        Some("TLS1.2") => Ok(TLS12),
        Some("TLS1.3") => Ok(TLS13),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "only TLS1.2 and TLS1.3 are supported",
        )),
    }
}

/// Accepts every certificate, but checks that the server holds its key.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suites(names: &[&str]) -> io::Result<usize> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        provider(&names).map(|provider| provider.cipher_suites.len())
    }

    #[test]
    fn suites_are_known_by_both_their_names() {
        assert_eq!(suites(&["TLS_AES_128_GCM_SHA256"]).expect("known"), 1);
        assert_eq!(suites(&["ECDHE-RSA-AES128-GCM-SHA256"]).expect("known"), 1);
        assert_eq!(
            suites(&["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"]).expect("known"),
            2
        );
        assert!(suites(&["RC4-MD5"]).is_err());
    }

    #[test]
    fn versions_we_do_not_speak_are_refused() {
        assert_eq!(versions(Some("tls1.2")).expect("spoken").len(), 1);
        assert_eq!(versions(None).expect("spoken").len(), 2);
        assert!(versions(Some("SSL3")).is_err());
    }

    #[test]
    fn every_choice_makes_a_configuration() {
        let options = TlsOptions {
            server_name: "localhost".to_owned(),
            insecure: true,
            version: Some("TLS1.3".to_owned()),
            no_sni: true,
            ..TlsOptions::default()
        };
        let config = config(&options, Protocol::Http1).expect("good options");
        assert!(!config.enable_sni);
        let missing = TlsOptions {
            certificate: Some("/nowhere.pem".into()),
            ..options
        };
        assert!(super::config(&missing, Protocol::Http1).is_err());
    }
}
