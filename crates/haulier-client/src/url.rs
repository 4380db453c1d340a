//! Addresses: `http`, `https`, and `unix:SOCKET:/PATH` for a server on a local socket (RFC 3986, RFC 9110 §4.2).
//!
//! An address is read into host, port, target, and credentials before the host. A fragment is dropped, bytes that a
//! request may not contain are percent-encoded, and a reference is resolved by RFC 3986 §5.2.

use std::fmt;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Bytes that are percent-encoded in a request target.
const NOT_IN_TARGET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A fault in the text of an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("`{0}:` is no scheme we speak; http, https and unix are")]
    Scheme(String),
    #[error("no host in the address")]
    NoHost,
    #[error("bad host `{0}`")]
    Host(String),
    #[error("bad port `{0}`")]
    Port(String),
    #[error("expected unix:SOCKET:/PATH")]
    Unix,
}

/// The transport of an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scheme {
    Http,
    Https,
    /// HTTP over a local socket at this path.
    Unix(PathBuf),
}

/// The server of an address: addresses of one origin may share a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub scheme: Scheme,
    /// Lower case; an IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    origin: Origin,
    /// User and password, decoded.
    user: Option<(String, String)>,
    /// Path and query, fit for a request line; begins with `/`.
    target: String,
}

impl Url {
    /// Reads an address as a person writes it; without a scheme it is `http`.
    ///
    /// # Errors
    /// [`UrlError`] names the fault.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("unix:") {
            return Self::unix(rest);
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme_of(scheme)?, rest),
            None => (Scheme::Http, text),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        let (user, host_and_port) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(credentials(user)), host),
            None => (None, authority),
        };
        let (host, port) = host_and_port_of(host_and_port)?;
        let port = port.unwrap_or(if scheme == Scheme::Https { 443 } else { 80 });
        let target = clean_target(target);
        Ok(Self {
            origin: Origin { scheme, host, port },
            user,
            target,
        })
    }

    fn unix(rest: &str) -> Result<Self, UrlError> {
        let at = rest.find(":/").ok_or(UrlError::Unix)?;
        if at == 0 {
            return Err(UrlError::Unix);
        }
        let scheme = Scheme::Unix(PathBuf::from(&rest[..at]));
        let target = rest[at + 1..].split('#').next().unwrap_or_default();
        Ok(Self {
            origin: Origin {
                scheme,
                host: "localhost".to_owned(),
                port: 80,
            },
            user: None,
            target: clean_target(target),
        })
    }

    /// Resolves a reference in a response of this address (RFC 3986 §5.2).
    ///
    /// # Errors
    /// [`UrlError`] for another scheme than http, https and unix, or for no valid host.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let reference = reference.trim().split('#').next().unwrap_or_default();
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.origin.scheme_name()));
        }
        if let Some(scheme) = leading_scheme(reference) {
            // A server may not send us to a file on this machine.
            scheme_of(scheme)?;
            return Self::parse(reference);
        }
        let path = self.target.split('?').next().unwrap_or("/");
        let target = match reference.as_bytes().first() {
            None => self.target.clone(),
            Some(b'/') => reference.to_owned(),
            Some(b'?') => format!("{path}{reference}"),
            Some(_) => format!("{}{reference}", &path[..=path.rfind('/').unwrap_or(0)]),
        };
        Ok(Self {
            target: clean_target(&target),
            ..self.clone()
        })
    }

    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// User and password of the address, decoded.
    #[must_use]
    pub fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|(user, password)| (&**user, &**password))
    }

    /// Path and query for the request line.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The last part of the path, percent-decoded; empty if the path ends with a slash.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        percent_decode_str(last).decode_utf8_lossy().into_owned()
    }

    /// True if two addresses are equal but for their credentials.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.origin == other.origin && self.target == other.target
    }

    /// True if two addresses are equal but for their query and credentials.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        let path = |url: &Self| url.target.split('?').next().unwrap_or_default().to_owned();
        self.origin == other.origin && path(self) == path(other)
    }
}

impl Origin {
    fn scheme_name(&self) -> &'static str {
        match self.scheme {
            Scheme::Https => "https",
            Scheme::Http | Scheme::Unix(_) => "http",
        }
    }

    /// The value of the Host field; with the port unless it is the scheme's default.
    #[must_use]
    pub fn host_field(&self) -> String {
        let own = if self.scheme == Scheme::Https { 443 } else { 80 };
        if self.port == own {
            self.bracketed()
        } else {
            format!("{}:{}", self.bracketed(), self.port)
        }
    }

    /// Host and port, for CONNECT and messages.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    /// The socket, if it is a local one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.scheme {
            Scheme::Unix(path) => Some(path),
            Scheme::Http | Scheme::Https => None,
        }
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }
}

/// Without credentials: it is printed and stored.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin.scheme {
            Scheme::Unix(socket) => write!(f, "unix:{}:{}", socket.display(), self.target),
            _ => write!(
                f,
                "{}://{}{}",
                self.origin.scheme_name(),
                self.origin.host_field(),
                self.target
            ),
        }
    }
}

fn scheme_of(name: &str) -> Result<Scheme, UrlError> {
    match name.to_ascii_lowercase().as_str() {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err(UrlError::Scheme(name.to_owned())),
    }
}

/// `scheme:` in front of a reference, if there is one.
fn leading_scheme(reference: &str) -> Option<&str> {
    let (scheme, _) = reference.split_once(':')?;
    let good = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    good.then_some(scheme)
}

fn credentials(text: &str) -> (String, String) {
    let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    (decode(user), decode(password))
}

fn host_and_port_of(text: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(|| UrlError::Host(text.to_owned()))?;
            let address: Result<std::net::Ipv6Addr, _> = host.parse();
            let address = address.map_err(|_| UrlError::Host(text.to_owned()))?;
            (address.to_string(), after.strip_prefix(':').unwrap_or(after))
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            (host.to_ascii_lowercase(), port)
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    if !host.bytes().all(good) {
        return Err(UrlError::Host(host));
    }
    match port {
        "" => Ok((host, None)),
        digits => match digits.parse() {
            Ok(port) if port > 0 => Ok((host, Some(port))),
            _ => Err(UrlError::Port(port.to_owned())),
        },
    }
}

/// Path and query without dot segments, and with every byte encoded that a request line may not contain.
fn clean_target(target: &str) -> String {
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut clean = without_dot_segments(&utf8_percent_encode(path, NOT_IN_TARGET).to_string());
    if let Some(query) = query {
        clean.push('?');
        clean.extend(utf8_percent_encode(query, NOT_IN_TARGET));
    }
    clean
}

/// RFC 3986 §5.2.4.
fn without_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_slash = true;
    for segment in path.trim_start_matches('/').split('/') {
        ends_in_slash = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    let mut clean = format!("/{}", kept.join("/"));
    if ends_in_slash && !clean.ends_with('/') {
        clean.push('/');
    }
    clean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_parts_of_an_address_are_found() {
        let found = url("HTTPS://me:p%40ss@Example.com:8443/a/b%20c.iso?x=1#part");
        assert_eq!(found.origin().scheme, Scheme::Https);
        assert_eq!(found.origin().authority(), "example.com:8443");
        assert_eq!(found.user(), Some(("me", "p@ss")));
        assert_eq!(found.target(), "/a/b%20c.iso?x=1");
        assert_eq!(found.file_name(), "b c.iso");
        assert_eq!(found.to_string(), "https://example.com:8443/a/b%20c.iso?x=1");
    }

    #[test]
    fn an_address_without_scheme_or_path_is_http_and_the_root() {
        assert_eq!(url("example.com").to_string(), "http://example.com/");
        assert_eq!(url("localhost:8080/x").origin().port, 8080);
        assert_eq!(url("http://[::1]:80/").origin().host_field(), "[::1]");
        assert_eq!(url("http://a?b").target(), "/?b");
    }

    #[test]
    fn a_local_socket_is_an_address() {
        let found = url("unix:/run/web.sock:/file.bin");
        assert_eq!(found.origin().socket(), Some(Path::new("/run/web.sock")));
        assert_eq!(found.target(), "/file.bin");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(Url::parse("ftp://a/b"), Err(UrlError::Scheme("ftp".to_owned())));
        assert_eq!(Url::parse("http:///b"), Err(UrlError::NoHost));
        assert!(matches!(Url::parse("http://a:99999/"), Err(UrlError::Port(_))));
        assert!(matches!(Url::parse("http://a b/"), Err(UrlError::Host(_))));
        assert!(matches!(Url::parse("http://[::1/"), Err(UrlError::Host(_))));
        assert_eq!(Url::parse("unix:/run/x"), Err(UrlError::Unix));
    }

    #[test]
    fn a_target_is_fit_for_a_request_line() {
        assert_eq!(url("http://a/ü b\r\nX: y").target(), "/%C3%BC%20b%0D%0AX:%20y");
        assert_eq!(url("http://a/b/../c/./d/..").target(), "/c/");
        assert_eq!(url("http://a//b//c").target(), "/b//c");
    }

    #[test]
    fn references_are_resolved_as_rfc_3986_says() {
        let base = url("http://a/b/c/d?q");
        for (reference, expected) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y#s", "http://a/b/c/g?y"),
            ("", "http://a/b/c/d?q"),
            ("..", "http://a/b/"),
            ("../../../g", "http://a/g"),
            ("https://b:8/x", "https://b:8/x"),
        ] {
            assert_eq!(
                base.join(reference).expect(reference).to_string(),
                expected,
                "{reference}"
            );
        }
    }

    #[test]
    fn a_reference_never_leads_to_a_local_socket_or_file() {
        let base = url("http://a/b");
        assert!(base.join("unix:/run/docker.sock:/images").is_err());
        assert!(base.join("file:///etc/passwd").is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_target_with_a_line_end_or_a_space(text in "\\PC*") {
            if let Ok(url) = Url::parse(&format!("http://a/{text}")) {
                prop_assert!(url.target().bytes().all(|byte| byte > b' ' && byte < 0x7f));
                prop_assert!(url.target().starts_with('/'));
            }
        }
    }
}
