//! One exchange on one connection: the request goes out, the head comes back, the body follows to its end (RFC 9112; of
//! HTTP/2 in `http2`).
//!
//! The end of a body is where its framing puts it. A connection that closes before is an error, never an end; a
//! connection goes back to the pool only if its body was taken whole and nothing came behind it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use haulier_proto::chunked::Decoder;
use haulier_proto::head::Method;
use haulier_proto::response_head::{ResponseHead, ResponseLength, ResponseLimits};
use tokio::time::timeout;

use crate::error::{ClientError, Phase};
use crate::http2::Http2;
use crate::stream::Stream;
use crate::url::{Origin, Url};

/// Bytes asked of the socket while a head or a chunked body is read.
const READ: usize = 256 * 1024;
/// Bytes asked of the socket for a head alone: what follows can still be spliced.
const READ_HEAD: usize = 4 * 1024;
/// Interim responses before the final one; more is no server.
const MOST_INTERIM: usize = 16;

/// What to ask.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    /// Further field lines; Host, User-Agent and Accept are added where they are missing.
    pub fields: Vec<(String, String)>,
    /// What is sent with it; its length is told.
    pub body: Option<Arc<[u8]>>,
}

impl Request {
    /// A GET without further fields.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self {
            method: Method::Get,
            url,
            fields: Vec::new(),
            body: None,
        }
    }

    /// A POST with this body.
    #[must_use]
    pub fn post(url: Url, body: impl Into<Arc<[u8]>>) -> Self {
        Self {
            method: Method::Post,
            body: Some(body.into()),
            ..Self::get(url)
        }
    }

    /// Adds a field line.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// The lines of every request that are not in `fields`, but for those of one version of HTTP.
    pub(crate) fn own_fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = [
            ("User-Agent", concat!("haulier/", env!("CARGO_PKG_VERSION"))),
            ("Accept", "*/*"),
        ];
        own.into_iter().filter(|(name, _)| !self.has(name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    pub(crate) fn method_name(&self) -> &'static str {
        match self.method {
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            _ => "GET",
        }
    }

    /// The head and the body as they travel by HTTP/1.1; `absolute` for a proxy (RFC 9112 §3.2.2).
    fn encode(&self, absolute: bool) -> Vec<u8> {
        let method = self.method_name();
        let target = if absolute {
            self.url.to_string()
        } else {
            self.url.target().to_owned()
        };
        let host = self.url.origin().host_field();
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !self.has("Host") {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in self.own_fields() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// How long a silent server is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the response head is complete.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(60),
            stall: Duration::from_secs(30),
        }
    }
}

/// A connection between exchanges.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    origin: Origin,
    /// The target is written in full, because a proxy reads it.
    absolute: bool,
    /// What was read beyond the last head; of HTTP/2 the frames not yet looked at.
    buffer: Vec<u8>,
    http2: Option<Box<Http2>>,
}

impl Connection {
    /// A connection that speaks what both ends agreed on, HTTP/1.1 if nothing. `absolute`: the target is written in
    /// full, because a proxy reads it.
    #[must_use]
    pub fn new(stream: Stream, origin: Origin, absolute: bool) -> Self {
        let http2 = stream.has_agreed_on_http2().then(Box::default);
        Self {
            stream,
            origin,
            absolute,
            buffer: Vec::new(),
            http2,
        }
    }

    /// A connection that speaks HTTP/2, whatever was agreed on.
    #[must_use]
    pub fn http2(stream: Stream, origin: Origin) -> Self {
        Self {
            http2: Some(Box::default()),
            ..Self::new(stream, origin, false)
        }
    }

    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether another exchange may be tried: nothing came unasked, not even the end.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        let is_open = self.http2.as_ref().is_none_or(|http2| http2.is_reusable());
        self.buffer.is_empty() && is_open && self.stream.is_quiet()
    }

    /// Sends the request and waits for the head of its response.
    ///
    /// # Errors
    /// [`ClientError::Broken`], [`ClientError::TimedOut`], [`ClientError::Head`] or [`ClientError::Framing`].
    pub async fn exchange(mut self, request: &Request, patience: Patience) -> Result<Exchange, ClientError> {
        let waited = patience.first_byte;
        let timed_out = ClientError::TimedOut {
            phase: Phase::FirstByte,
            waited,
        };
        if let Some(http2) = &mut self.http2 {
            let asked = http2.ask(&mut self.stream, &mut self.buffer, request);
            let (head, left) = timeout(waited, asked).await.unwrap_or(Err(timed_out))?;
            return Ok(Exchange {
                connection: self,
                head,
                left,
                is_reusable: true,
                stall: patience.stall,
            });
        }
        let head = timeout(waited, self.head_for(request))
            .await
            .unwrap_or(Err(timed_out))?;
        let left = match head.body_length(request.method)? {
            ResponseLength::Known(length) => Left::Known { length, received: 0 },
            ResponseLength::Chunked => Left::Chunked(Decoder::new()),
            ResponseLength::UntilClose => Left::UntilClose,
        };
        let is_reusable = head.keeps_alive() && head.status() != 101;
        Ok(Exchange {
            connection: self,
            head,
            left,
            is_reusable,
            stall: patience.stall,
        })
    }

    async fn head_for(&mut self, request: &Request) -> Result<ResponseHead, ClientError> {
        let bytes = request.encode(self.absolute);
        self.stream.write_all(&bytes).await.map_err(ClientError::Broken)?;
        for _ in 0..MOST_INTERIM {
            let head = self.read_head().await?;
            if !head.is_interim() {
                return Ok(head);
            }
        }
        Err(ClientError::Head(
            haulier_proto::response_head::ResponseHeadError::Malformed("interim responses without end"),
        ))
    }

    async fn read_head(&mut self) -> Result<ResponseHead, ClientError> {
        let limits = ResponseLimits::default();
        loop {
            if let Some(head) = ResponseHead::parse(&mut self.buffer, &limits)? {
                return Ok(head);
            }
            self.buffer.reserve(READ_HEAD);
            if self.stream.read(&mut self.buffer).await.map_err(ClientError::Broken)? == 0 {
                return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

/// What is left of the body.
#[derive(Debug)]
pub(crate) enum Left {
    Known {
        length: u64,
        received: u64,
    },
    Chunked(Decoder),
    /// To the end of the stream; the length as Content-Length told it, which the end has to agree with.
    Stream {
        id: u32,
        length: Option<u64>,
        received: u64,
    },
    UntilClose,
    Nothing,
}

/// A response whose head is here and whose body follows.
#[derive(Debug)]
pub struct Exchange {
    connection: Connection,
    head: ResponseHead,
    left: Left,
    is_reusable: bool,
    stall: Duration,
}

impl Exchange {
    #[must_use]
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The length of the whole body, if its framing says it.
    #[must_use]
    pub fn body_length(&self) -> Option<u64> {
        match self.left {
            Left::Known { length, .. } => Some(length),
            Left::Stream { length, .. } => length,
            Left::Chunked(_) | Left::UntilClose | Left::Nothing => None,
        }
    }

    /// Whether only closing will end the body: nobody can tell whether it is complete then.
    #[must_use]
    pub fn ends_with_close(&self) -> bool {
        matches!(self.left, Left::UntilClose)
    }

    /// Appends the next piece of the body to `out`, at most `most` bytes (at least 1). 0 means the body is complete.
    ///
    /// # Errors
    /// Any [`ClientError`] of a body: short, damaged, stalled, broken. What was appended before is good.
    pub async fn read(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        match &mut self.left {
            Left::Nothing => Ok(0),
            Left::Known { length, received } if length == received => {
                self.left = Left::Nothing;
                Ok(0)
            }
            Left::Known { .. } => self.read_known(out, most).await,
            Left::Chunked(_) => self.read_chunked(out, most).await,
            Left::Stream { .. } => self.read_stream(out, most).await,
            Left::UntilClose => self.read_until_close(out, most).await,
        }
    }

    async fn read_known(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        let Left::Known { length, received } = self.left else {
            return Ok(0);
        };
        let left = usize::try_from(length - received).unwrap_or(usize::MAX);
        let before = out.len();
        if !self.take_buffered(out, most.min(left)) {
            out.reserve(most.min(left));
            if self.fill(out).await? == 0 {
                return Err(ClientError::ShortBody {
                    received,
                    expected: length,
                });
            }
        }
        // A read may bring more than we asked for; it belongs to the next exchange, of which there is none.
        if out.len() - before > left {
            out.truncate(before + left);
            self.is_reusable = false;
        }
        let read = out.len() - before;
        self.received(read);
        Ok(read)
    }

    async fn read_chunked(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        let before = out.len();
        loop {
            let Left::Chunked(decoder) = &mut self.left else {
                return Ok(0);
            };
            let taken = decoder.decode(&self.connection.buffer, out, most)?;
            let is_done = decoder.is_done();
            self.connection.buffer.drain(..taken);
            if is_done {
                self.left = Left::Nothing;
            }
            if is_done || out.len() > before {
                return Ok(out.len() - before);
            }
            let mut buffer = std::mem::take(&mut self.connection.buffer);
            buffer.reserve(READ.min(most));
            let read = self.fill(&mut buffer).await;
            self.connection.buffer = buffer;
            if read? == 0 {
                return Err(ClientError::NoLastChunk);
            }
        }
    }

    async fn read_stream(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        let Connection {
            stream, buffer, http2, ..
        } = &mut self.connection;
        let (Left::Stream { id, length, received }, Some(http2)) = (&mut self.left, http2) else {
            return Ok(0);
        };
        let before = out.len();
        while out.len() == before {
            if http2.take_body(buffer, *id, out, most)? {
                break;
            }
            if out.len() == before && within(self.stall, http2.fill(stream, buffer)).await? == 0 {
                return Err(match *length {
                    Some(expected) => ClientError::ShortBody {
                        received: *received,
                        expected,
                    },
                    None => ClientError::Broken(io::ErrorKind::UnexpectedEof.into()),
                });
            }
        }
        let read = out.len() - before;
        *received += read as u64;
        if read == 0 {
            self.left = Left::Nothing;
        }
        Ok(read)
    }

    async fn read_until_close(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        self.is_reusable = false;
        let before = out.len();
        if !self.take_buffered(out, most) {
            out.reserve(most);
            if self.fill(out).await? == 0 {
                self.left = Left::Nothing;
            }
        }
        Ok(out.len() - before)
    }

    /// Moves bytes that came with the head; `false` if there are none.
    fn take_buffered(&mut self, out: &mut Vec<u8>, most: usize) -> bool {
        let buffer = &mut self.connection.buffer;
        let take = buffer.len().min(most);
        out.extend_from_slice(&buffer[..take]);
        buffer.drain(..take);
        take > 0
    }

    /// Whether [`Exchange::splice`] can bring the next bytes.
    #[must_use]
    pub fn can_splice(&self) -> bool {
        let has_more = matches!(self.left, Left::Known { length, received } if received < length);
        has_more && self.connection.buffer.is_empty() && self.connection.stream.is_plain()
    }

    /// Moves up to `most` bytes of the body into an empty pipe, and says how many. Ask [`Exchange::can_splice`] first.
    ///
    /// # Errors
    /// As [`Exchange::read`].
    pub async fn splice(&mut self, pipe: BorrowedFd<'_>, most: usize) -> Result<usize, ClientError> {
        let Left::Known { length, received } = self.left else {
            return Ok(0);
        };
        let most = usize::try_from(length - received).map_or(most, |left| left.min(most));
        let moved = within(self.stall, self.connection.stream.splice(pipe, most)).await?;
        if moved == 0 {
            return Err(ClientError::ShortBody {
                received,
                expected: length,
            });
        }
        self.received(moved);
        Ok(moved)
    }

    fn received(&mut self, bytes: usize) {
        if let Left::Known { received, .. } = &mut self.left {
            *received += bytes as u64;
        }
    }

    async fn fill(&mut self, out: &mut Vec<u8>) -> Result<usize, ClientError> {
        within(self.stall, self.connection.stream.read(out)).await
    }

    /// The connection, if another exchange may follow on it.
    #[must_use]
    pub fn into_connection(self) -> Option<Connection> {
        let is_complete = match self.left {
            Left::Nothing => true,
            Left::Known { length, received } => length == received,
            Left::Stream { .. } => self.connection.http2.as_ref().is_some_and(|http2| http2.has_ended()),
            Left::Chunked(_) | Left::UntilClose => false,
        };
        (self.is_reusable && is_complete).then_some(self.connection)
    }
}

async fn within(stall: Duration, read: impl Future<Output = io::Result<usize>>) -> Result<usize, ClientError> {
    match timeout(stall, read).await {
        Ok(read) => read.map_err(ClientError::Broken),
        Err(_) => Err(ClientError::TimedOut {
            phase: Phase::Body,
            waited: stall,
        }),
    }
}
