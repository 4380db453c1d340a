//! The PROXY protocol, versions 1 and 2: a proxy names the client of a connection before its first byte.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. A receiver never guesses: a server that expects this
//! header refuses a connection without it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Begins every header of version 2 (§2.2).
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Begins every header of version 1 (§2.1).
const WORD: &[u8] = b"PROXY ";
/// Longest line of version 1, its end included (§2.1).
const LONGEST_LINE: usize = 107;
/// Signature, version and command, family, length.
const FIXED: usize = 16;
/// Longest version 2 header taken. Addresses and the usual extensions are far below; the length field would allow 64
/// KiB.
const LONGEST_HEADER: usize = 4096;
/// The extension about TLS (§2.2.6), and its bit for a client's connection by TLS.
const TYPE_SSL: u8 = 0x20;
const CLIENT_SSL: u8 = 0x01;
/// Least length of such an extension, bytes: the bits, and the result of checking the client's certificate.
const LEAST_SSL: usize = 5;

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Bytes it takes.
    pub length: usize,
    /// Client and the address it reached; `None` for the proxy's own connections (health checks), and for
    /// families other than IPv4 and IPv6.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The proxy says that the client's connection is encrypted. Only version 2 can.
    pub tls: bool,
}

/// A fault in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no PROXY header: {0}")]
pub struct ProxyHeaderError(&'static str);

/// Reads the header at the beginning of `input`; `Ok(None)` means that bytes are missing.
///
/// # Errors
/// [`ProxyHeaderError`] if these bytes cannot begin a header.
pub fn parse(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    if begins_like(input, &SIGNATURE) {
        return parse_binary(input);
    }
    if begins_like(input, WORD) {
        return parse_line(input);
    }
    Err(ProxyHeaderError("it begins otherwise"))
}

/// True if `input` is the beginning of `word`, or the other way round.
fn begins_like(input: &[u8], word: &[u8]) -> bool {
    let length = input.len().min(word.len());
    input[..length] == word[..length]
}

fn parse_line(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let window = &input[..input.len().min(LONGEST_LINE)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if input.len() < LONGEST_LINE {
            Ok(None)
        } else {
            Err(ProxyHeaderError("its line is too long"))
        };
    };
    let line = std::str::from_utf8(&input[WORD.len()..end]).map_err(|_| ProxyHeaderError("its line is no text"))?;
    Ok(Some(ProxyHeader {
        length: end + 2,
        addresses: addresses_of_line(line)?,
        tls: false,
    }))
}

fn addresses_of_line(line: &str) -> Result<Option<(SocketAddr, SocketAddr)>, ProxyHeaderError> {
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        return Ok(None); // the rest of the line is to be ignored
    }
    let (Some(from), Some(to), Some(from_port), Some(to_port), None) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err(ProxyHeaderError("its line has other parts"));
    };
    let address = |ip: &str, port: &str| {
        let ip: IpAddr = ip.parse().map_err(|_| ProxyHeaderError("an address is none"))?;
        if ip.is_ipv4() != (family == "TCP4") {
            return Err(ProxyHeaderError("an address is of another family"));
        }
        Ok(SocketAddr::new(ip, parse_port(port)?))
    };
    match family {
        "TCP4" | "TCP6" => Ok(Some((address(from, from_port)?, address(to, to_port)?))),
        _ => Err(ProxyHeaderError("its family is unknown")),
    }
}

/// Digits without sign or leading zero.
fn parse_port(text: &str) -> Result<u16, ProxyHeaderError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse()
        .ok()
        .filter(|_| plain)
        .ok_or(ProxyHeaderError("a port is none"))
}

fn parse_binary(input: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let Some(fixed) = input.get(..FIXED) else {
        return Ok(None);
    };
    if fixed[12] >> 4 != 2 {
        return Err(ProxyHeaderError("its version is unknown"));
    }
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > LONGEST_HEADER {
        return Err(ProxyHeaderError("it is too long"));
    }
    let is_local = match fixed[12] & 0xf {
        0 => true,
        1 => false,
        _ => return Err(ProxyHeaderError("its command is unknown")),
    };
    let Some(rest) = input.get(FIXED..length) else {
        return Ok(None);
    };
    let (addresses, extensions) = addresses_of_family(fixed[13], rest)?;
    Ok(Some(ProxyHeader {
        length,
        addresses: addresses.filter(|_| !is_local),
        tls: !is_local && says_tls(extensions),
    }))
}

/// Addresses of a stream over IPv4 or IPv6, and the bytes after them.
type Addressed<'i> = (Option<(SocketAddr, SocketAddr)>, &'i [u8]);

fn addresses_of_family(family: u8, rest: &[u8]) -> Result<Addressed<'_>, ProxyHeaderError> {
    let size = match family >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => return Err(ProxyHeaderError("its family is unknown")),
    };
    if rest.len() < size {
        return Err(ProxyHeaderError("it is shorter than its addresses"));
    }
    let (part, extensions) = rest.split_at(size);
    let port = |at: usize| u16::from_be_bytes([part[at], part[at + 1]]);
    let addresses = match family {
        0x11 => {
            let ip = |at: usize| IpAddr::from(Ipv4Addr::new(part[at], part[at + 1], part[at + 2], part[at + 3]));
            Some((SocketAddr::new(ip(0), port(8)), SocketAddr::new(ip(4), port(10))))
        }
        0x21 => {
            let ip = |at: usize| {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&part[at..at + 16]);
                IpAddr::from(Ipv6Addr::from(bytes))
            };
            Some((SocketAddr::new(ip(0), port(32)), SocketAddr::new(ip(16), port(34))))
        }
        _ => None,
    };
    Ok((addresses, extensions))
}

/// Searches triples of type, length and value; one that is cut short ends the list.
fn says_tls(mut extensions: &[u8]) -> bool {
    while let [kind, high, low, rest @ ..] = extensions {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(value) = rest.get(..length) else { return false };
        if *kind == TYPE_SSL {
            // Bits and the outcome of verification, before what the proxy adds.
            return value.len() >= LEAST_SSL && value[0] & CLIENT_SSL != 0;
        }
        extensions = &rest[length..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(from: &str, to: &str) -> Option<(SocketAddr, SocketAddr)> {
        Some((from.parse().expect("a literal"), to.parse().expect("a literal")))
    }

    /// A version 2 header of this command, family and rest.
    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 2, 0x30, 0x39, 0x01, 0xbb];

    #[test]
    fn lines_of_version_1_name_both_ends() {
        let rows = [
            (
                "PROXY TCP4 192.0.2.1 10.0.0.2 12345 443\r\n",
                addresses("192.0.2.1:12345", "10.0.0.2:443"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 1 65535\r\n",
                addresses("[2001:db8::1]:1", "[::1]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN ffff::1 whatever 1 2 3\r\n", None),
        ];
        for (line, expected) in rows {
            let input = format!("{line}GET / HTTP/1.1\r\n");
            let header = parse(input.as_bytes()).expect(line).expect("it is complete");
            assert_eq!((header.length, header.addresses), (line.len(), expected), "{line}");
            for cut in 0..line.len() {
                assert_eq!(parse(&input.as_bytes()[..cut]), Ok(None), "{line:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused_and_never_guessed() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(107));
        let rows = [
            "GET / HTTP/1.1\r\n",
            "PROXY\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.2 12345\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.2 12345 443 1\r\n",
            "PROXY TCP4 192.0.2.1  10.0.0.2 12345 443\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 10.0.0.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.2 1 65536\r\n",
            "PROXY UDP4 192.0.2.1 10.0.0.2 1 2\r\n",
            "proxy TCP4 192.0.2.1 10.0.0.2 1 2\r\n",
            &long,
        ];
        for row in rows {
            assert!(parse(row.as_bytes()).is_err(), "{row:?}");
        }
        for wrong in [
            [SIGNATURE.as_slice(), &[0x11, 0x11, 0, 0]].concat(),
            binary(2, 0x11, &V4),
            binary(1, 0x11, &V4[..11]),
            binary(1, 0x41, &V4),
            [SIGNATURE.as_slice(), &[0x21, 0x11, 0xff, 0xff]].concat(),
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn headers_of_version_2_name_both_ends_and_tls() {
        let expected = addresses("192.0.2.1:12345", "10.0.0.2:443");
        let header = parse(&binary(1, 0x11, &V4)).expect("valid").expect("complete");
        assert_eq!((header.length, header.addresses, header.tls), (28, expected, false));
        // An authority extension first, then one that says TLS.
        let extended = [&V4[..], &[0x02, 0, 1, b'a', TYPE_SSL, 0, 5, CLIENT_SSL, 0, 0, 0, 0]].concat();
        let header = parse(&binary(1, 0x11, &extended)).expect("valid").expect("complete");
        assert_eq!((header.addresses, header.tls), (expected, true));
        // One that is cut short says nothing.
        let short = [&V4[..], &[TYPE_SSL, 0, 1, CLIENT_SSL]].concat();
        let header = parse(&binary(1, 0x11, &short)).expect("valid").expect("complete");
        assert_eq!((header.addresses, header.tls), (expected, false));
        let mut v6 = vec![0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 80, 81);
        let header = parse(&binary(1, 0x21, &v6)).expect("valid").expect("complete");
        assert_eq!(header.addresses, addresses("[::1]:80", "[::2]:81"));
    }

    #[test]
    fn a_proxys_own_connection_has_no_client() {
        for header in [binary(0, 0x11, &V4), binary(0, 0, &[]), binary(1, 0x31, &[0; 216])] {
            let parsed = parse(&header).expect("valid").expect("complete");
            assert_eq!((parsed.length, parsed.addresses), (header.len(), None));
            for cut in 0..header.len() {
                assert_eq!(parse(&header[..cut]), Ok(None), "cut at {cut}");
            }
        }
    }
}
