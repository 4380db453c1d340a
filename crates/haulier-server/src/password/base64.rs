//! Base64 (RFC 4648 §4), for Basic credentials and `{SHA}` hashes.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Accepts text without padding: some clients leave it out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The decoded bytes; `None` if the text is not base64.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    LENIENT.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_of_rfc_4648_decode() {
        let rows = [
            ("", "", true),
            ("Zg==", "f", true),
            ("Zm8=", "fo", true),
            ("Zm9v", "foo", true),
            ("Zm9vYg", "foob", true),
            ("Zm9vYmE=", "fooba", true),
            ("Zm9vYmFy", "foobar", true),
            ("Zm9vY", "", false),
            ("Zm9v===", "", false),
            ("Zm=v", "", false),
            ("Zm-v", "", false),
        ];
        for (text, expected, is_base64) in rows {
            let expected = is_base64.then(|| expected.as_bytes().to_vec());
            assert_eq!(decode(text.as_bytes()), expected, "{text}");
        }
    }
}
