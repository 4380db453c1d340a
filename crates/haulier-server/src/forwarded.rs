//! The client behind trusted proxies: their fields replace the peer of the request.
//!
//! Lists are read from the right, past every trusted address; the first other address is the client. `X-Forwarded-*`
//! counts if one of these fields is there, else `Forwarded` (RFC 7239). A proxy that writes one must drop the other,
//! since a client may have sent it.

use std::net::{IpAddr, SocketAddr};

use haulier_http::{Network, Request, RequestId};
use haulier_proto::forwarded::{address, from_the_right, parameter, plain_from_the_right};
use haulier_proto::head::{RequestHead, split_port};

/// Replaces the peer of a request by the client that a trusted proxy names.
pub(crate) fn apply(trusted: &[Network], request: &mut Request) {
    if trusted.is_empty() {
        return; // as on most servers: the address need not be taken out
    }
    let proxy = request.peer.remote.ip();
    if !is_trusted(trusted, proxy) {
        return;
    }
    request.peer.proxy = Some(proxy);
    if let Some(id) = id(&request.head) {
        request.id = id;
    }
    let forwarded = ForwardedClient::by(&request.head, trusted, proxy);
    if forwarded.client != proxy {
        // The port of the proxy's own connection says nothing about the client.
        request.peer.remote = SocketAddr::new(forwarded.client, 0);
    }
    if let Some(tls) = forwarded.tls {
        request.peer.tls = tls;
        request.peer.local.set_port(if tls { 443 } else { 80 });
    }
    let has_host = match forwarded.family {
        Family::X => request
            .head
            .take_authority("x-forwarded-host", |value| plain_from_the_right(value).next()),
        Family::Forwarded => request
            .head
            .take_authority("forwarded", |value| parameter(from_the_right(value).next()?, "host")),
    };
    let of_host = request
        .head
        .authority()
        .filter(|_| has_host)
        .and_then(|host| port(split_port(host).1));
    if let Some(port) = forwarded.port.or(of_host) {
        request.peer.local.set_port(port);
    }
}

/// The proxy's id of the request; `None` if it sent several.
fn id(head: &RequestHead) -> Option<RequestId> {
    let mut words = head.fields().get_all("x-request-id");
    let word = words.next()?;
    words.next().is_none().then(|| RequestId::given(word)).flatten()
}

/// True if the address is that of a trusted proxy.
pub(crate) fn is_trusted(trusted: &[Network], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

/// The fields that the proxy writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    X,
    Forwarded,
}

/// The client as the fields describe it.
struct ForwardedClient {
    family: Family,
    client: IpAddr,
    tls: Option<bool>,
    port: Option<u16>,
}

impl ForwardedClient {
    fn by(head: &RequestHead, trusted: &[Network], proxy: IpAddr) -> Self {
        let last_line = |name| head.fields().get_all(name).last();
        let last = |name| plain_from_the_right(last_line(name)?).next();
        let of_x = [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "x-forwarded-port",
        ];
        if of_x.iter().any(|name| head.fields().contains(name)) {
            return Self {
                family: Family::X,
                client: client(
                    lines_of(head, "x-forwarded-for").flat_map(plain_from_the_right),
                    trusted,
                    proxy,
                ),
                tls: last("x-forwarded-proto").and_then(scheme_is_tls),
                port: last("x-forwarded-port").and_then(port),
            };
        }
        Self {
            family: Family::Forwarded,
            client: client(
                lines_of(head, "forwarded")
                    .flat_map(from_the_right)
                    .map(|element| parameter(element, "for").unwrap_or_default()),
                trusted,
                proxy,
            ),
            tls: last_line("forwarded")
                .and_then(|value| parameter(from_the_right(value).next()?, "proto"))
                .and_then(scheme_is_tls),
            port: None,
        }
    }
}

/// The lines with this name, last one first.
fn lines_of<'h>(head: &'h RequestHead, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let lines: Vec<&[u8]> = head.fields().get_all(name).collect();
    lines.into_iter().rev()
}

/// The first untrusted address from the right. If the list ends or has no address, the last trusted one.
fn client<'h>(elements: impl Iterator<Item = &'h [u8]>, trusted: &[Network], proxy: IpAddr) -> IpAddr {
    let mut client = proxy;
    for element in elements {
        let Some(next) = address(element) else {
            return client;
        };
        client = next;
        if !is_trusted(trusted, client) {
            return client;
        }
    }
    client
}

fn scheme_is_tls(scheme: &[u8]) -> Option<bool> {
    match scheme {
        _ if scheme.eq_ignore_ascii_case(b"https") => Some(true),
        _ if scheme.eq_ignore_ascii_case(b"http") => Some(false),
        _ => None,
    }
}

fn port(text: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok().filter(|&port| port > 0)
}

#[cfg(test)]
mod tests {
    use haulier_proto::field::Fields;
    use haulier_proto::head::HeadLimits;

    use super::*;

    const TRUSTED: [&str; 2] = ["10.0.0.0/8", "::1"];

    fn forwarded(lines: &str) -> (String, Option<bool>, Option<u16>) {
        let trusted = TRUSTED.map(|text| text.parse().expect("a network"));
        let limits = HeadLimits {
            request_line: 1000,
            header: 1000,
            fields: 20,
        };
        let mut bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let head = RequestHead::parse(&mut bytes, &limits, &mut Fields::new())
            .expect("well-formed")
            .expect("complete");
        let forwarded = ForwardedClient::by(&head, &trusted, "10.0.0.1".parse().expect("an address"));
        (forwarded.client.to_string(), forwarded.tls, forwarded.port)
    }

    #[test]
    fn the_client_is_the_first_stranger_from_the_right() {
        let rows = [
            ("", "10.0.0.1"),
            ("X-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.9\r\n", "192.0.2.7"),
            (
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n",
                "192.0.2.7",
            ),
            ("X-Forwarded-For: 10.0.0.5, 10.0.0.9\r\n", "10.0.0.5"),
            ("X-Forwarded-For: 6.6.6.6, unknown, 10.0.0.9\r\n", "10.0.0.9"),
            ("X-Forwarded-For: nonsense\r\n", "10.0.0.1"),
            ("X-Forwarded-For: [2001:db8::5]:443\r\n", "2001:db8::5"),
            (
                "Forwarded: for=6.6.6.6, for=\"[2001:db8::7]:1\";proto=https\r\n",
                "2001:db8::7",
            ),
            ("Forwarded: proto=https\r\n", "10.0.0.1"),
            // An open quote of the client hides nothing that the proxy adds.
            ("X-Forwarded-For: \", 192.0.2.7\r\n", "192.0.2.7"),
            ("Forwarded: for=\", for=192.0.2.7\r\n", "192.0.2.7"),
            ("Forwarded: for=6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n", "192.0.2.7"),
            ("Forwarded: for=6.6.6.6\r\nX-Forwarded-Proto: https\r\n", "10.0.0.1"),
        ];
        for (lines, expected) in rows {
            assert_eq!(forwarded(lines).0, expected, "{lines:?}");
        }
    }

    #[test]
    fn scheme_and_port_are_those_of_the_nearest_proxy() {
        let of = |lines| (forwarded(lines).1, forwarded(lines).2);
        assert_eq!(of("X-Forwarded-Proto: http, HTTPS\r\n"), (Some(true), None));
        assert_eq!(of("X-Forwarded-Proto: ftp\r\n"), (None, None));
        assert_eq!(
            of("X-Forwarded-Port: 8443\r\nX-Forwarded-Proto: https\r\n"),
            (Some(true), Some(8443))
        );
        assert_eq!(of("X-Forwarded-Port: 0\r\n"), (None, None));
        assert_eq!(of("Forwarded: for=a;proto=http\r\n"), (Some(false), None));
    }
}
