//! A small blocking HTTP/1.1 client, strict about framing (RFC 9112 §6).
//!
//! It is ours on purpose: a forgiving client would hide what the server gets wrong. Whatever is malformed or cut
//! short is an error, and bytes beyond a response stay in the buffer where the next read meets them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustls::ClientConfig;

use super::tls::Wire;

/// How long a read or a write may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One request, ready to be written.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            fields: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn head(target: &str) -> Self {
        Self::new("HEAD", target)
    }

    pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: Some(body.into()),
            ..Self::new("POST", target)
        }
    }

    /// A form as a browser sends it.
    pub(crate) fn form(target: &str, values: &[(&str, &str)]) -> Self {
        let body = values
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        let body = body.collect::<Vec<_>>().join("&");
        Self::post(target, body).with("Content-Type", "application/x-www-form-urlencoded")
    }

    /// The request with one more field line.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        if !self.has("Host") {
            bytes.extend_from_slice(b"Host: localhost\r\n");
        }
        for (name, value) in &self.fields {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if let Some(body) = &self.body {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// Percent-encodes everything but unreserved characters (RFC 3986 §2.3).
pub(crate) fn encode(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if keep(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Status line and field lines of a response.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    /// The value of the only field line of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let values = self.values(name);
        assert!(values.len() < 2, "{name} appears more than once: {values:?}");
        values.first().copied()
    }

    /// The values of all field lines of this name, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("head is not UTF-8"))?;
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status = status_line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| malformed(&format!("status line {status_line:?}")))?;
        let fields = lines.map(parse_field).collect::<io::Result<_>>()?;
        Ok(Self { status, fields })
    }
}

fn parse_field(line: &str) -> io::Result<(String, String)> {
    let wrong = || malformed(&format!("field line {line:?}"));
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let clean = !name.is_empty() && name.bytes().all(token) && !value.contains(['\r', '\n', '\0']);
    if clean {
        Ok((name.to_owned(), value.trim().to_owned()))
    } else {
        Err(wrong())
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("malformed response: {what}"))
}

/// A complete response with the interim ones (1xx) that came before it.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) interim: Vec<Head>,
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The response, if it has this status; else the test ends with what came instead.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        let shown: String = self.text().chars().take(2000).collect();
        assert_eq!(self.status(), status, "fields {:?}, body {shown}", self.head.fields);
        self
    }
}

/// One connection to the server, with what was read and not yet used.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Wire,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).expect("the server accepts connections")
    }

    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Wire::Plain(stream),
            buffer: Vec::new(),
        })
    }

    /// The same, encrypted from here on, with a server of this name.
    pub(crate) fn secured(mut self, name: &str, config: &Arc<ClientConfig>) -> Self {
        let Wire::Plain(stream) = self.stream else {
            panic!("it is encrypted already")
        };
        self.stream = Wire::secure(stream, name, config);
        self
    }

    /// The transport, for tests that look beneath HTTP.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.stream
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server reads what is sent");
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Tells the server that nothing more will come, and goes on reading.
    pub(crate) fn finish_sending(&mut self) {
        self.stream
            .socket()
            .shutdown(Shutdown::Write)
            .expect("the connection is still open");
    }

    /// Leaves with a reset, as a program does that was killed.
    pub(crate) fn reset(self) {
        set_socket_linger(self.stream.socket(), Some(Duration::ZERO)).expect("the socket is ours");
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: &Request) -> Response {
        match self.try_ask(request) {
            Ok(response) => response,
            Err(error) => panic!("{request:?}: {error}"),
        }
    }

    pub(crate) fn try_ask(&mut self, request: &Request) -> io::Result<Response> {
        // A server may answer and close while we are still sending; its answer is what counts.
        let sent = self.try_send(request.to_bytes());
        self.read_response(&request.method)
            .map_err(|error| sent.err().unwrap_or(error))
    }

    /// Reads one response to a request of this method, interim responses first.
    pub(crate) fn read_response(&mut self, method: &str) -> io::Result<Response> {
        let mut interim = Vec::new();
        loop {
            let head = self.read_head()?;
            if (100..200).contains(&head.status) {
                interim.push(head);
                continue;
            }
            let body = self.read_body(method, &head)?;
            return Ok(Response { interim, head, body });
        }
    }

    /// Reads one head, up to and with its empty line.
    pub(crate) fn read_head(&mut self) -> io::Result<Head> {
        let bytes = self.read_until(b"\r\n\r\n")?;
        Head::parse(&bytes[..bytes.len() - 4])
    }

    fn read_body(&mut self, method: &str, head: &Head) -> io::Result<Vec<u8>> {
        // RFC 9112 §6.3: no body, whatever the fields say.
        if method == "HEAD" || matches!(head.status, 204 | 304) {
            return Ok(Vec::new());
        }
        match (head.field("Transfer-Encoding"), head.field("Content-Length")) {
            (Some(_), Some(_)) => Err(malformed("both Transfer-Encoding and Content-Length")),
            (Some("chunked"), None) => self.read_chunked(),
            (Some(other), None) => Err(malformed(&format!("Transfer-Encoding {other:?}"))),
            (None, Some(length)) => {
                let length = length
                    .parse()
                    .map_err(|_| malformed(&format!("Content-Length {length:?}")))?;
                self.read_exactly(length)
            }
            (None, None) => self.read_to_end(),
        }
    }

    fn read_chunked(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let chunk = self.read_chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// Reads one chunk of a chunked body; the last one is empty and its trailer section is read too.
    pub(crate) fn read_chunk(&mut self) -> io::Result<Vec<u8>> {
        let line = self.read_until(b"\r\n")?;
        let size = std::str::from_utf8(&line[..line.len() - 2]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.split(';').next()?, 16).ok());
        let size = size.ok_or_else(|| malformed(&format!("chunk size {:?}", String::from_utf8_lossy(&line))))?;
        let data = self.read_exactly(size)?;
        if self.read_exactly(2)? != b"\r\n" {
            return Err(malformed("chunk or trailer section without its end"));
        }
        Ok(data)
    }

    /// What is there, at least one byte; the end of the connection is an error.
    pub(crate) fn read_some(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.fill_some()?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Everything until the server closes.
    pub(crate) fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Whether the server closed the connection (or reset it) with nothing left to read.
    pub(crate) fn is_closed_by_server(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.fill(), Ok(0) | Err(_))
    }

    /// Waits this long for bytes and tells whether any came.
    pub(crate) fn hears_something_within(&mut self, wait: Duration) -> bool {
        self.stream
            .socket()
            .set_read_timeout(Some(wait))
            .expect("a time-out can be set");
        let heard = !self.buffer.is_empty() || matches!(self.fill(), Ok(1..));
        self.stream
            .socket()
            .set_read_timeout(Some(PATIENCE))
            .expect("a time-out can be set");
        heard
    }

    /// Exactly this many bytes.
    pub(crate) fn read_exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill_some()?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(place) = self.buffer.windows(end.len()).position(|window| window == end) {
                return self.read_exactly(place + end.len());
            }
            self.fill_some()?;
        }
    }

    fn fill_some(&mut self) -> io::Result<()> {
        if self.fill()? > 0 {
            return Ok(());
        }
        let rest = String::from_utf8_lossy(&self.buffer);
        Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            format!("the server closed after {rest:?}"),
        ))
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 65536];
        let count = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count)
    }
}
