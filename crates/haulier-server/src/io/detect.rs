//! Detection of a client's protocol by its first byte.

/// The protocol that the first byte suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedProtocol {
    /// A handshake record (RFC 8446 §5.1).
    Tls,
    /// A method, or the empty line before it (RFC 9112 §2.2).
    Http,
    /// Neither: SSL 2, another protocol, noise.
    Else,
}

/// The content type of handshake records.
const HANDSHAKE: u8 = 22;

/// Tells a TLS client that there is no TLS here: an alert `handshake_failure` (RFC 8446 §6).
pub(crate) const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 1, 0, 2, 2, 40];

/// The protocol that begins with this byte.
pub(crate) fn of(first: u8) -> DetectedProtocol {
    match first {
        HANDSHAKE => DetectedProtocol::Tls,
        b'A'..=b'Z' | b'a'..=b'z' | b'\r' | b'\n' => DetectedProtocol::Http,
        _ => DetectedProtocol::Else,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells() {
        let greetings: [(&[u8], DetectedProtocol); 6] = [
            (b"\x16\x03\x01\x02\x00\x01", DetectedProtocol::Tls),
            (b"GET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"\r\nGET / HTTP/1.1\r\n", DetectedProtocol::Http),
            (b"\x80\x2e\x01\x03\x01", DetectedProtocol::Else),
            (b"\x00", DetectedProtocol::Else),
            (b"\xff\xfe", DetectedProtocol::Else),
        ];
        for (greeting, expected) in greetings {
            assert_eq!(of(greeting[0]), expected, "{greeting:?}");
        }
    }
}
