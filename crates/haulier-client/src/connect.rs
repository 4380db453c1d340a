//! From an origin to a connected stream: names, addresses, proxy, TLS, all within one timeout.
//!
//! Addresses are tried by a short form of RFC 8305: the families take turns, and the next attempt starts a quarter of a
//! second after the last. The first that connects wins.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use haulier_proto::response_head::{ResponseHead, ResponseLimits};
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::credentials::basic;
use crate::error::{ClientError, TimeoutPhase};
use crate::names;
use crate::stream::Stream;
use crate::url::{Origin, Scheme, Url};

/// The time between the attempts at two addresses (RFC 8305 §8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The versions of HTTP that a client offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Versions {
    /// HTTP/2 if the TLS handshake agrees on it, else HTTP/1.1.
    #[default]
    Best,
    Http1,
    /// HTTP/2 or nothing; without TLS the server is trusted to know it (RFC 9113 §3.3).
    Http2,
}

impl Versions {
    /// The protocols that a TLS handshake offers.
    fn alpn(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Self::Best => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

/// Settings of new connections.
#[derive(Debug, Clone)]
pub struct ConnectSettings {
    pub versions: Versions,
    /// For name, connection, proxy and TLS together.
    pub timeout: Duration,
    /// The proxy for `http` addresses.
    pub http_proxy: Option<Url>,
    /// The proxy for `https` addresses; it is asked for a tunnel.
    pub https_proxy: Option<Url>,
    /// Hosts that are reached without the proxy: exact names, or `.example.com` for all below it; `*` for all.
    pub no_proxy: Vec<String>,
    /// Refuse loopback, private and link-local addresses, for a service that fetches addresses of strangers.
    pub public_only: bool,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            versions: Versions::Best,
            timeout: Duration::from_secs(15),
            http_proxy: None,
            https_proxy: None,
            no_proxy: Vec::new(),
            public_only: false,
        }
    }
}

impl ConnectSettings {
    /// The proxy on the way to this origin, if any.
    #[must_use]
    pub fn proxy_for(&self, origin: &Origin) -> Option<&Url> {
        let direct = self.no_proxy.iter().any(|rule| covers(rule, &origin.host));
        let proxy = match origin.scheme {
            Scheme::Http => &self.http_proxy,
            Scheme::Https => &self.https_proxy,
            Scheme::Unix(_) => &None,
        };
        proxy.as_ref().filter(|_| !direct)
    }
}

fn covers(rule: &str, host: &str) -> bool {
    let rule = rule.trim().to_ascii_lowercase();
    let below = rule.trim_start_matches('.');
    rule == "*" || host == below || (!below.is_empty() && host.ends_with(&format!(".{below}")))
}

/// Makes connections.
#[derive(Debug)]
pub struct Connector {
    settings: ConnectSettings,
    tls: Arc<rustls::ClientConfig>,
}

impl Connector {
    /// # Errors
    /// The system's certificate store cannot be used.
    pub fn new(settings: ConnectSettings) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(BuilderVerifierExt::with_platform_verifier)
            .map_err(io::Error::other)?
            .with_no_client_auth();
        tls.alpn_protocols = settings.versions.alpn();
        Ok(Self {
            settings,
            tls: Arc::new(tls),
        })
    }

    #[must_use]
    pub fn settings(&self) -> &ConnectSettings {
        &self.settings
    }

    /// A new connection to `origin`.
    ///
    /// # Errors
    /// [`ClientError::Resolve`], [`ClientError::Connect`], [`ClientError::Proxy`], [`ClientError::Tls`] or
    /// [`ClientError::TimedOut`].
    pub async fn connect(&self, origin: &Origin) -> Result<Stream, ClientError> {
        let waited = self.settings.timeout;
        timeout(waited, self.connect_untimed(origin))
            .await
            .unwrap_or(Err(ClientError::TimedOut {
                phase: TimeoutPhase::Connect,
                waited,
            }))
    }

    async fn connect_untimed(&self, origin: &Origin) -> Result<Stream, ClientError> {
        if let Some(socket) = origin.socket() {
            let connected = UnixStream::connect(socket).await;
            return connected.map(Stream::Unix).map_err(|source| ClientError::Connect {
                to: socket.display().to_string(),
                source,
            });
        }
        let stream = match self.settings.proxy_for(origin) {
            None => self.tcp(&origin.host, origin.port).await?,
            Some(proxy) => {
                let stream = self.tcp(&proxy.origin().host, proxy.origin().port).await?;
                if origin.scheme == Scheme::Https {
                    tunnel(stream, proxy, origin).await?
                } else {
                    stream
                }
            }
        };
        if origin.scheme == Scheme::Https {
            self.handshake(stream, &origin.host).await
        } else {
            Ok(Stream::Tcp(stream))
        }
    }

    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, ClientError> {
        let addresses = resolve(host, port).await?;
        let refused = |address: &SocketAddr| self.settings.public_only && !is_public(address.ip());
        if addresses.iter().any(refused) {
            return Err(ClientError::Connect {
                to: host.to_owned(),
                source: io::Error::new(io::ErrorKind::PermissionDenied, "it is not a public address"),
            });
        }
        let stream = race(in_turns(addresses)).await.map_err(|source| ClientError::Connect {
            to: format!("{host}:{port}"),
            source,
        })?;
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    async fn handshake(&self, stream: TcpStream, host: &str) -> Result<Stream, ClientError> {
        let failed = |source| ClientError::Tls {
            host: host.to_owned(),
            source,
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        let stream = Stream::Tls(Box::new(stream));
        if self.settings.versions == Versions::Http2 && !stream.has_agreed_on_http2() {
            return Err(failed(io::Error::other("the server does not speak HTTP/2")));
        }
        Ok(stream)
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ClientError> {
    // An address needs no resolver, and so no thread.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    if let Some(own) = names::of_this_machine(host, port) {
        return Ok(own.to_vec());
    }
    let failed = |source| ClientError::Resolve {
        host: host.to_owned(),
        source,
    };
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

/// The families take turns, beginning with the resolver's first choice.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut turns = Vec::new();
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return turns;
        }
        turns.extend(pair.into_iter().flatten());
    }
}

/// The first address that connects; the last error if none does.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.spawn(TcpStream::connect(address));
        } else if attempts.is_empty() {
            return Err(last);
        }
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(error) => last = io::Error::other(error),
            },
            () = sleep(ATTEMPT_DELAY), if waiting.len() > 0 => {}
        }
    }
}

/// Asks the proxy for a way through (RFC 9110 §9.3.6).
async fn tunnel(stream: TcpStream, proxy: &Url, origin: &Origin) -> Result<TcpStream, ClientError> {
    let to = origin.authority();
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    if let Some((user, password)) = proxy.user() {
        request.push_str(&format!("Proxy-Authorization: {}\r\n", basic(user, password)));
    }
    request.push_str("\r\n");
    let mut stream = Stream::Tcp(stream);
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(ClientError::Broken)?;
    let mut buffer = Vec::with_capacity(4096);
    let head = loop {
        buffer.reserve(1024);
        if stream.read(&mut buffer).await.map_err(ClientError::Broken)? == 0 {
            return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        match ResponseHead::parse(&mut buffer, &ResponseLimits::default())? {
            Some(head) if !head.is_interim() => break head,
            _ => {}
        }
    };
    let status = head.status();
    // In TLS the client speaks first: bytes after the head belong to no message.
    if !(200..300).contains(&status) || !buffer.is_empty() {
        return Err(ClientError::Proxy { status });
    }
    match stream {
        Stream::Tcp(stream) => Ok(stream),
        Stream::Unix(_) | Stream::Tls(_) => unreachable!("it was made of a TCP stream above"),
    }
}

/// True if an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let special = v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_multicast();
            !(special || shared || a == 0 || a >= 240)
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            // Only 2000::/3 is handed out. 6to4, Teredo and NAT64 wrap addresses of the other family.
            let wraps = first == 0x2002 || (first == 0x2001 && v6.segments()[1] == 0);
            (first & 0xe000) == 0x2000 && !wraps
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_the_first_choice_is_first() {
        let parse = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let given = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(parse);
        let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(parse);
        assert_eq!(in_turns(given.to_vec()), expected);
    }

    #[test]
    fn addresses_of_our_own_networks_are_not_public() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "2002:7f00:1::",
            "64:ff9b::a00:1",
        ] {
            assert!(!is_public(address.parse().expect(address)), "{address}");
        }
        for address in ["1.1.1.1", "2606:4700::1111", "100.128.0.1"] {
            assert!(is_public(address.parse().expect(address)), "{address}");
        }
    }

    #[test]
    fn hosts_named_in_no_proxy_are_reached_directly() {
        let settings = ConnectSettings {
            http_proxy: Url::parse("http://proxy:3128").ok(),
            no_proxy: vec!["localhost".to_owned(), ".example.com".to_owned()],
            ..ConnectSettings::default()
        };
        let goes_by_proxy = |url: &str| settings.proxy_for(Url::parse(url).expect(url).origin()).is_some();
        assert!(goes_by_proxy("http://example.org/"));
        assert!(goes_by_proxy("http://badexample.com/"));
        assert!(!goes_by_proxy("http://localhost:8080/"));
        assert!(!goes_by_proxy("http://dl.example.com/"));
        assert!(!goes_by_proxy("https://example.org/"));
        assert!(!goes_by_proxy("unix:/run/x:/"));
    }
}
