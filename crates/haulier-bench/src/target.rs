//! A target, `[NAME=]URL`: its address and its requests.
//!
//! Besides the addresses of `url` there are FastCGI servers, `fcgi://HOST:PORT/SCRIPT` and `fcgi+unix:SOCKET:SCRIPT`. They
//! put the same load on the application without a web server in front. SCRIPT is the path of the file there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use haulier_proto::fastcgi::record::{END_PARAMS, END_STDIN, HEADER_LEN, MAX_CONTENT, begin_request};
use haulier_proto::fastcgi::{Header, PairTooLong, ParamsWriter, RecordType};

use super::job::{Destination, Outgoing, Protocol};
use super::mode::RunMode;
use haulier_client::credentials::basic;
use haulier_client::names;
use haulier_client::url::{Scheme, Url, UrlError};

/// Time to answer for each of several addresses of a name.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// The reason that a text is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("expected fcgi://HOST:PORT/SCRIPT")]
    FastCgi,
    #[error("expected fcgi+unix:SOCKET:SCRIPT")]
    FastCgiUnix,
}

/// One server, or one address of it, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Given before `=`, else the address.
    pub name: String,
    pub address: Address,
    pub watch: Watch,
}

/// Address of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Http(Url),
    FastCgi {
        host: FastCgiHost,
        /// The file there, absolute.
        script: String,
        query: String,
    },
}

/// Address of a FastCGI server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastCgiHost {
    /// `HOST:PORT`.
    Tcp(String),
    Unix(PathBuf),
}

/// Sources of figures about the server of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    /// Roots of process trees.
    pub pids: Vec<u32>,
    /// A systemd unit.
    pub unit: Option<String>,
    /// A haulier admin address, or the status page of php-fpm.
    pub metrics: Option<Url>,
}

impl Target {
    /// Parses `[NAME=]URL`. A name contains none of `:`, `/` and `?`.
    ///
    /// # Errors
    /// [`TargetError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (name, address) = match text.split_once('=') {
            Some((name, rest)) if !name.is_empty() && !name.contains([':', '/', '?']) => (Some(name), rest),
            _ => (None, text),
        };
        Ok(Self {
            name: name.unwrap_or(address).to_owned(),
            address: Address::parse(address)?,
            watch: Watch::default(),
        })
    }
}

impl Address {
    /// # Errors
    /// [`TargetError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if let Some(rest) = text.strip_prefix("fcgi://") {
            let at = rest.find('/').ok_or(TargetError::FastCgi)?;
            let (host, script) = rest.split_at(at);
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            port.filter(|port| *port > 0).ok_or(TargetError::FastCgi)?;
            return Ok(Self::fast_cgi(FastCgiHost::Tcp(host.to_owned()), script));
        }
        if let Some(rest) = text.strip_prefix("fcgi+unix:") {
            let at = rest.find(":/").filter(|at| *at > 0).ok_or(TargetError::FastCgiUnix)?;
            let host = FastCgiHost::Unix(PathBuf::from(&rest[..at]));
            return Ok(Self::fast_cgi(host, &rest[at + 1..]));
        }
        Ok(Self::Http(Url::parse(text)?))
    }

    fn fast_cgi(host: FastCgiHost, script: &str) -> Self {
        let (script, query) = script.split_once('?').unwrap_or((script, ""));
        Self::FastCgi {
            host,
            script: script.to_owned(),
            query: query.to_owned(),
        }
    }

    /// Its protocol; `http2` chooses the version of HTTP.
    #[must_use]
    pub fn protocol(&self, http2: bool) -> Protocol {
        match self {
            Self::Http(_) if http2 => Protocol::Http2,
            Self::Http(_) => Protocol::Http1,
            Self::FastCgi { .. } => Protocol::FastCgi,
        }
    }

    /// The name TLS expects in the certificate; `None` without TLS.
    #[must_use]
    pub fn tls_name(&self) -> Option<&str> {
        match self {
            Self::Http(url) if url.origin().scheme == Scheme::Https => Some(&url.origin().host),
            _ => None,
        }
    }

    /// Resolves the host, or `proxy` (`HOST:PORT`) instead of it for TCP.
    ///
    /// # Errors
    /// The host does not exist.
    pub fn resolve(&self, proxy: Option<&str>) -> io::Result<Destination> {
        let host = match self {
            Self::FastCgi { host, .. } => match host {
                FastCgiHost::Unix(socket) => return Ok(Destination::Unix(socket.clone())),
                FastCgiHost::Tcp(host) => host.clone(),
            },
            Self::Http(url) => match (url.origin().socket(), proxy) {
                (Some(socket), _) => return Ok(Destination::Unix(socket.to_owned())),
                (None, Some(proxy)) => proxy.to_owned(),
                (None, None) => url.origin().authority(),
            },
        };
        let found = names::look_up(&host).map_err(|error| {
            let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
            io::Error::new(error.kind(), format!("the name {name} has no address: {error}"))
        })?;
        // A load needs one address: the first that answers, as a browser would choose.
        let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, FIRST_ANSWER).is_ok();
        let chosen = match found.as_slice() {
            [] | [_] => found.first(),
            several => several.iter().find(answers).or(several.first()),
        };
        chosen
            .copied()
            .map(Destination::Tcp)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, script, query) = match self {
            Self::Http(url) => return url.fmt(f),
            Self::FastCgi { host, script, query } => (host, script, query),
        };
        match host {
            FastCgiHost::Tcp(host) => write!(f, "fcgi://{host}{script}")?,
            FastCgiHost::Unix(socket) => write!(f, "fcgi+unix:{}:{script}", socket.display())?,
        }
        if query.is_empty() {
            Ok(())
        } else {
            write!(f, "?{query}")
        }
    }
}

/// The request that every target gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub method: String,
    /// Further field lines, in the order given.
    pub fields: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    pub content_type: Option<String>,
    /// Accept-Encoding.
    pub accept: Option<String>,
    /// `user:password` for the server.
    pub user: Option<String>,
    /// `user:password` for the proxy.
    pub proxy_user: Option<String>,
    /// The request target is in absolute form, for a proxy.
    pub through_proxy: bool,
    pub keep_alive: bool,
    pub mode: &'static RunMode,
    /// HTTP/2 instead of HTTP/1.
    pub http2: bool,
}

impl Default for Template {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            fields: Vec::new(),
            body: None,
            content_type: None,
            accept: None,
            user: None,
            proxy_user: None,
            through_proxy: false,
            keep_alive: true,
            mode: &RunMode::HAULIER,
            http2: false,
        }
    }
}

impl Template {
    /// The request for an address.
    ///
    /// # Errors
    /// A field is too long for FastCGI.
    pub fn request(&self, address: &Address) -> Result<Outgoing, PairTooLong> {
        let is_head = self.method == "HEAD";
        let bytes = match address {
            Address::Http(url) if self.http2 => {
                return Ok(Outgoing {
                    bytes: self.body.clone().unwrap_or_default(),
                    fields: self.http2(url),
                    is_head,
                });
            }
            Address::Http(url) => self.http(url),
            Address::FastCgi { host, script, query } => self.fast_cgi(host, script, query)?,
        };
        Ok(Outgoing {
            bytes,
            fields: Vec::new(),
            is_head,
        })
    }

    /// The head of a CONNECT request to the proxy (RFC 9110 §9.3.6).
    #[must_use]
    pub fn tunnel(&self, url: &Url) -> String {
        let to = url.origin().authority();
        let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        self.push_proxy_user(&mut head);
        head.push_str("\r\n");
        head
    }

    fn http(&self, url: &Url) -> Vec<u8> {
        let is_plain = url.origin().scheme == Scheme::Http;
        let target = if self.through_proxy && is_plain {
            url.to_string()
        } else {
            url.target().to_owned()
        };
        let mode = self.mode;
        let mut head = format!("{} {target} HTTP/{}\r\n", self.method, mode.version);
        if self.keep_alive {
            head.push_str(mode.keep_alive_line);
        }
        let host = url.origin().host_field();
        for (name, value) in [("Host", host.as_str()), ("User-Agent", mode.agent), ("Accept", "*/*")] {
            if !self.has(name) {
                push(&mut head, name, value);
            }
        }
        if !self.keep_alive {
            head.push_str(mode.close_line);
        }
        if let Some(value) = self.authorization(url) {
            push(&mut head, "Authorization", &value);
        }
        if self.through_proxy && is_plain {
            self.push_proxy_user(&mut head);
        }
        if let Some(accept) = &self.accept {
            push(&mut head, "Accept-Encoding", accept);
        }
        for (name, value) in &self.fields {
            push(&mut head, name, value);
        }
        if let Some(body) = &self.body {
            push(&mut head, "Content-Length", &body.len().to_string());
            push(&mut head, "Content-Type", self.media_type());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// The lines of an HTTP/2 request (RFC 9113 §8.3.1).
    fn http2(&self, url: &Url) -> Vec<(String, String)> {
        let is_tls = url.origin().scheme == Scheme::Https;
        let host = self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = host.map_or_else(|| url.origin().host_field(), |(_, value)| value.clone());
        let mut lines = vec![
            (":method".to_owned(), self.method.clone()),
            (":scheme".to_owned(), if is_tls { "https" } else { "http" }.to_owned()),
            (":authority".to_owned(), host),
            (":path".to_owned(), url.target().to_owned()),
        ];
        let mut push = |name: &str, value: String| lines.push((name.to_ascii_lowercase(), value));
        for (name, value) in [("user-agent", self.mode.agent), ("accept", "*/*")] {
            if !self.has(name) {
                push(name, value.to_owned());
            }
        }
        if let Some(value) = self.authorization(url) {
            push("authorization", value);
        }
        if let Some(accept) = &self.accept {
            push("accept-encoding", accept.clone());
        }
        for (name, value) in self
            .fields
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("host"))
        {
            push(name, value.clone());
        }
        if let Some(body) = &self.body {
            push("content-length", body.len().to_string());
            push("content-type", self.media_type().to_owned());
        }
        lines
    }

    fn fast_cgi(&self, host: &FastCgiHost, script: &str, query: &str) -> Result<Vec<u8>, PairTooLong> {
        let mut bytes = begin_request(self.keep_alive).to_vec();
        let (root, name) = script.rsplit_once('/').unwrap_or(("", script));
        let uri = if query.is_empty() {
            format!("/{name}")
        } else {
            format!("/{name}?{query}")
        };
        let server = match host {
            FastCgiHost::Tcp(host) => host.as_str(),
            FastCgiHost::Unix(_) => "localhost",
        };
        let mut params = ParamsWriter::new(&mut bytes);
        for (name, value) in [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", concat!("haulier/", env!("CARGO_PKG_VERSION"))),
            ("SERVER_NAME", server),
            ("SERVER_PORT", "80"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REQUEST_METHOD", &self.method),
            ("REQUEST_URI", &uri),
            ("SCRIPT_NAME", &format!("/{name}")),
            ("SCRIPT_FILENAME", script),
            ("DOCUMENT_ROOT", root),
            ("QUERY_STRING", query),
            ("REDIRECT_STATUS", "200"),
            ("HTTP_HOST", server),
        ] {
            params.push(name.as_bytes(), value.as_bytes())?;
        }
        if let Some(accept) = &self.accept {
            params.push(b"HTTP_ACCEPT_ENCODING", accept.as_bytes())?;
        }
        if let Some(user) = &self.user {
            params.push(b"HTTP_AUTHORIZATION", authorization(user).as_bytes())?;
        }
        for (name, value) in &self.fields {
            let name = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            params.push(name.as_bytes(), value.as_bytes())?;
        }
        if let Some(body) = &self.body {
            params.push(b"CONTENT_LENGTH", body.len().to_string().as_bytes())?;
            params.push(b"CONTENT_TYPE", self.media_type().as_bytes())?;
        }
        params.finish();
        bytes.extend_from_slice(&END_PARAMS);
        for piece in self.body.as_deref().unwrap_or_default().chunks(MAX_CONTENT) {
            let header: [u8; HEADER_LEN] = Header::new(RecordType::Stdin, piece.len() as u16).encode();
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(piece);
        }
        bytes.extend_from_slice(&END_STDIN);
        Ok(bytes)
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    /// Content-Type of the body; without one the default of ab.
    fn media_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or("text/plain")
    }

    fn authorization(&self, url: &Url) -> Option<String> {
        let of_url = || url.user().map(|(name, word)| format!("{name}:{word}"));
        self.user.clone().or_else(of_url).map(|user| authorization(&user))
    }

    fn push_proxy_user(&self, head: &mut String) {
        if let Some(user) = &self.proxy_user {
            push(head, "Proxy-Authorization", &authorization(user));
        }
    }
}

fn push(head: &mut String, name: &str, value: &str) {
    head.push_str(name);
    head.push_str(": ");
    head.push_str(value);
    head.push_str("\r\n");
}

fn authorization(user: &str) -> String {
    let (name, word) = user.split_once(':').unwrap_or((user, ""));
    basic(name, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(template: &Template, address: &str) -> String {
        let address = Address::parse(address).expect("an address");
        let request = template.request(&address).expect("short fields");
        String::from_utf8_lossy(&request.bytes).into_owned()
    }

    #[test]
    fn a_name_stands_before_the_address_and_never_in_it() {
        let name = |text: &str| Target::parse(text).expect("a target").name;
        assert_eq!(name("sendfile=http://127.0.0.1/b.php"), "sendfile");
        assert_eq!(name("http://127.0.0.1/?a=b"), "http://127.0.0.1/?a=b");
        assert_eq!(name("A=unix:/run/a.sock:/x"), "A");
    }

    #[test]
    fn every_kind_of_address_is_read_and_written_alike() {
        for address in [
            "http://127.0.0.1:8080/a?b",
            "https://localhost/",
            "unix:/run/web.sock:/a",
            "fcgi://127.0.0.1:9000/var/www/index.php?a=b",
            "fcgi+unix:/run/php.sock:/var/www/index.php",
        ] {
            assert_eq!(Address::parse(address).expect(address).to_string(), address);
        }
        assert_eq!(Address::parse("fcgi://127.0.0.1/x"), Err(TargetError::FastCgi));
        assert_eq!(Address::parse("fcgi+unix:/run/php.sock"), Err(TargetError::FastCgiUnix));
        assert!(Address::parse("gopher://a/").is_err());
    }

    #[test]
    fn a_request_is_plain_http() {
        let expected = concat!(
            "GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: haulier/",
            env!("CARGO_PKG_VERSION"),
            "\r\nAccept: */*\r\n\r\n"
        );
        assert_eq!(text(&Template::default(), "http://127.0.0.1:8080/a?b"), expected);
    }

    #[test]
    fn as_ab_it_is_the_request_of_ab() {
        let template = Template {
            mode: &RunMode::AB,
            ..Template::default()
        };
        let expected = "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";
        assert_eq!(text(&template, "http://127.0.0.1:8080/"), expected);
    }

    #[test]
    fn given_fields_take_the_place_of_ours_and_bodies_have_a_length() {
        let template = Template {
            method: "POST".to_owned(),
            fields: vec![("host".to_owned(), "site".to_owned())],
            body: Some(b"a=b".to_vec()),
            content_type: Some("application/x-www-form-urlencoded".to_owned()),
            user: Some("me:word".to_owned()),
            keep_alive: false,
            ..Template::default()
        };
        let text = text(&template, "http://127.0.0.1/");
        assert!(!text.contains("Host: 127"), "{text}");
        for line in [
            "host: site\r\n",
            "Content-Length: 3\r\n",
            "Connection: close\r\n",
            "Authorization: Basic bWU6d29yZA==\r\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.ends_with("\r\n\r\na=b"), "{text}");
    }

    #[test]
    fn a_proxy_gets_the_absolute_form_or_connect_for_tls() {
        let template = Template {
            through_proxy: true,
            proxy_user: Some("me:word".to_owned()),
            ..Template::default()
        };
        assert!(text(&template, "http://a.test/x").starts_with("GET http://a.test/x HTTP/1.1\r\n"));
        let secure = text(&template, "https://a.test/x");
        assert!(
            secure.starts_with("GET /x HTTP/1.1\r\n") && !secure.contains("Proxy-"),
            "{secure}"
        );
        let tunnel = template.tunnel(&Url::parse("https://a.test/x").expect("an address"));
        assert!(tunnel.starts_with("CONNECT a.test:443 HTTP/1.1\r\n") && tunnel.contains("Proxy-Authorization: Basic"));
    }

    #[test]
    fn a_fastcgi_request_names_the_script_and_sends_the_body() {
        let template = Template {
            method: "POST".to_owned(),
            body: Some(vec![b'x'; 100_000]),
            keep_alive: false,
            ..Template::default()
        };
        let address = Address::parse("fcgi://127.0.0.1:9000/var/www/a.php?q=1").expect("an address");
        let bytes = template.request(&address).expect("short fields").bytes;
        assert_eq!(bytes[..16], begin_request(false), "the connection is not kept");
        let text = String::from_utf8_lossy(&bytes);
        for pair in [
            "SCRIPT_FILENAME/var/www/a.php",
            "QUERY_STRINGq=1",
            "CONTENT_LENGTH100000",
        ] {
            assert!(text.contains(pair), "{pair}");
        }
        assert!(bytes.ends_with(&END_STDIN));
    }
}
