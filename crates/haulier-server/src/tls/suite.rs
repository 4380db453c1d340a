//! The library's ciphers of TLS 1.3, with their plaintext in short pieces.
//!
//! The library builds a record five bytes after the start of a page, from plaintext that mostly begins at one. Such
//! copies are slow (see `haulier_proto::copy`), and only the pieces differ from the library's own ciphers.

use haulier_proto::copy;
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{ConnectionTrafficSecrets, Error, SupportedCipherSuite, Tls13CipherSuite};

use super::RECORD;

/// The same suite; a suite of TLS 1.3 takes plaintext in pieces. Made once, for the life of the process.
pub(super) fn in_pieces(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else {
        return suite;
    };
    let CipherSuiteCommon {
        suite: name,
        hash_provider,
        confidentiality_limit,
    } = suite.common;
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: name,
            hash_provider,
            confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: Box::leak(Box::new(Algorithm(suite.aead_alg))),
        quic: suite.quic,
    })))
}

/// An algorithm of the library with another encrypter.
struct Algorithm(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Algorithm {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter(self.0.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// An encrypter of the library.
struct Encrypter(Box<dyn MessageEncrypter>);

impl MessageEncrypter for Encrypter {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        let plain = match message.payload {
            OutboundChunks::Single(plain) if plain.len() <= RECORD => plain,
            _ => return self.0.encrypt(message, sequence),
        };
        let mut pieces = [&[][..]; RECORD.div_ceil(copy::PIECE)];
        let count = plain.len().div_ceil(copy::PIECE).max(1);
        for (place, piece) in pieces.iter_mut().zip(plain.chunks(copy::PIECE)) {
            *place = piece;
        }
        let payload = OutboundChunks::new(&pieces[..count]);
        self.0.encrypt(OutboundPlainMessage { payload, ..message }, sequence)
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        self.0.encrypted_payload_len(length)
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::cipher_suite;
    use rustls::{ContentType, ProtocolVersion};

    use super::*;

    /// Encrypts bytes as one record, under a key of 32 bytes.
    fn record(suite: SupportedCipherSuite, payload: OutboundChunks<'_>) -> Vec<u8> {
        let SupportedCipherSuite::Tls13(suite) = suite else {
            unreachable!("the suites below are of TLS 1.3")
        };
        let mut encrypter = suite.aead_alg.encrypter(AeadKey::from([7; 32]), Iv::new([9; 12]));
        let message = OutboundPlainMessage {
            typ: ContentType::ApplicationData,
            version: ProtocolVersion::TLSv1_3,
            payload,
        };
        encrypter.encrypt(message, 3).expect("it fits a record").encode()
    }

    #[test]
    fn the_records_are_those_of_the_library() {
        let plain: Vec<u8> = (0..RECORD + 1).map(|number| (number % 251) as u8).collect();
        for suite in [
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ] {
            let ours = in_pieces(suite);
            assert_eq!(ours.suite(), suite.suite());
            for length in [0, 1, copy::PIECE - 1, copy::PIECE, copy::PIECE + 1, RECORD, RECORD + 1] {
                let plain = &plain[..length];
                let expected = record(suite, OutboundChunks::Single(plain));
                assert_eq!(record(ours, OutboundChunks::Single(plain)), expected, "{length}");
                let (first, second) = plain.split_at(length / 3);
                assert_eq!(
                    record(ours, OutboundChunks::new(&[first, second])),
                    expected,
                    "{length}"
                );
            }
        }
    }
}
