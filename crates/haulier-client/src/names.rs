//! Names of hosts, to addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The addresses of a name below `localhost`, which is always this machine (RFC 6761 §6.3). `localhost` itself is in
/// every hosts file.
pub fn of_this_machine(host: &str, port: u16) -> Option<[SocketAddr; 2]> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let (before, last) = name.rsplit_once('.')?;
    if before.is_empty() || !last.eq_ignore_ascii_case("localhost") {
        return None;
    }
    let at = |address: IpAddr| SocketAddr::new(address, port);
    Some([at(Ipv4Addr::LOCALHOST.into()), at(Ipv6Addr::LOCALHOST.into())])
}

/// The addresses of `host:port`, asked of the system; the thread waits.
pub fn look_up(authority: &str) -> io::Result<Vec<SocketAddr>> {
    let own = authority
        .rsplit_once(':')
        .and_then(|(host, port)| of_this_machine(host, port.parse().ok()?));
    match own {
        Some(own) => Ok(own.to_vec()),
        None => Ok(authority.to_socket_addrs()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_localhost_is_this_machine() {
        for host in ["shop.localhost", "a.b.LOCALHOST", "shop.localhost."] {
            let found = of_this_machine(host, 8080).unwrap_or_else(|| panic!("{host}"));
            assert!(
                found
                    .iter()
                    .all(|address| address.ip().is_loopback() && address.port() == 8080)
            );
        }
        for host in [
            "localhost",
            "localhost.example.com",
            "notlocalhost",
            ".localhost",
            "127.0.0.1",
        ] {
            assert_eq!(of_this_machine(host, 80), None, "{host}");
        }
        assert_eq!(
            look_up("x.localhost:81").expect("known")[0],
            "127.0.0.1:81".parse().expect("an address")
        );
    }
}
