//! Addresses to listen on, from text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use haulier_server::Address;

/// `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:80` for every address of the machine.
pub(crate) fn parse(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix(':') {
        return Some(SocketAddr::new(any_address(), parse_port(port)?));
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), parse_port(port)?));
    }
    text.parse().ok()
}

/// An address as for [`parse`], or `unix:/absolute/path`.
pub(crate) fn parse_any(text: &str) -> Option<Address> {
    match text.strip_prefix("unix:") {
        Some(path) => path.starts_with('/').then(|| Address::Unix(PathBuf::from(path))),
        None => parse(text).map(Address::Internet),
    }
}

/// `u16::from_str` takes `+80`; we do not.
fn parse_port(port: &str) -> Option<u16> {
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| port.parse().ok())
        .flatten()
}

/// One IPv6 socket takes IPv4 clients too; a kernel without IPv6 gets the IPv4 wildcard.
fn any_address() -> IpAddr {
    if Path::new("/proc/net/if_inet6").exists() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_every_address() {
        let address = parse(":8080").expect("an address");
        assert!(address.ip().is_unspecified());
        assert_eq!(address.port(), 8080);
    }

    #[test]
    fn a_unix_socket_has_an_absolute_path() {
        assert_eq!(parse_any("unix:/run/x.sock"), Some(Address::Unix("/run/x.sock".into())));
        assert_eq!(parse_any("unix:x.sock"), None);
        assert_eq!(
            parse_any("127.0.0.1:80").map(|address| address.to_string()).as_deref(),
            Some("127.0.0.1:80")
        );
    }

    #[test]
    fn names_and_bare_numbers_are_refused() {
        assert_eq!(parse("localhost:80"), Some("127.0.0.1:80".parse().expect("literal")));
        for wrong in ["8080", "example.com:80", ":", ":+80", ":99999", "127.0.0.1", ""] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
