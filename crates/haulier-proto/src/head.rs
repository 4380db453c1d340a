//! The request head: method, target, version, field lines (RFC 9112 §2–§3, §5).
//!
//! httparse splits the lines; this module judges them. A line that RFC 9112 calls invalid and another server might read
//! differently is refused: a bare LF, a folded line, a second Host, a target with a fragment.

use std::mem::MaybeUninit;

use crate::field::{BufferRange, Fields, Known, is_name};

/// The method of a request (RFC 9110 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Connect,
    Trace,
    /// Any other method; its name is in [`RequestHead::method_name`].
    Other,
}

impl Method {
    /// The method of this name, in capital letters as RFC 9110 §9 has them.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "CONNECT" => Self::Connect,
            "TRACE" => Self::Trace,
            _ => Self::Other,
        }
    }

    /// True for the safe methods (RFC 9110 §9.2.1): a request may be sent again without harm.
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }
}

/// The protocol version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

impl Version {
    /// The name for PHP's SERVER_PROTOCOL and log lines.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// Limits on the size of a request head.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Request line, bytes.
    pub request_line: usize,
    /// The whole head without its request line, bytes.
    pub header: usize,
    /// Field lines.
    pub fields: usize,
}

impl HeadLimits {
    /// True if a head of which `seen` bytes were parsed before in vain may be complete now, or has become too long: a
    /// head that comes byte by byte is not parsed anew for each.
    #[must_use]
    pub fn is_worth_parsing(&self, buffer: &[u8], seen: usize) -> bool {
        let mut fresh = buffer[seen.saturating_sub(3).min(buffer.len())..].windows(2);
        seen == 0
            || buffer.len() > self.request_line.min(self.header)
            || fresh.any(|pair| pair == b"\n\n" || pair == b"\n\r")
    }
}

/// A fault in a request head. It ends the connection in HTTP/1, its stream alone in HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not a request of RFC 9112, or of RFC 9113 §8: 400.
    #[error("malformed request head: {0}")]
    Malformed(&'static str),
    /// 414.
    #[error("request line too long")]
    LineTooLong,
    /// 431.
    #[error("request head too large")]
    TooLarge,
    /// 431.
    #[error("too many field lines")]
    TooManyFields,
    /// 505.
    #[error("not HTTP/1.0 or HTTP/1.1")]
    Version,
}

impl HeadError {
    /// The status that tells the client.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::LineTooLong => 414,
            Self::TooLarge | Self::TooManyFields => 431,
            Self::Version => 505,
        }
    }
}

/// A complete request head. It owns the buffer it was read into.
#[derive(Debug)]
pub struct RequestHead {
    method: Method,
    version: Version,
    method_name: BufferRange,
    target: BufferRange,
    /// Path of the target; empty for `*` and for CONNECT.
    path: BufferRange,
    query: Option<BufferRange>,
    /// From the target if it is absolute, else from Host (RFC 9112 §3.2.2).
    authority: Option<BufferRange>,
    fields: Fields,
}

/// The pseudo-fields of an HTTP/2 request (RFC 9113 §8.3.1), parts of the buffer its fields lie in.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PseudoFields {
    pub method: Option<BufferRange>,
    pub scheme: Option<BufferRange>,
    pub authority: Option<BufferRange>,
    pub path: Option<BufferRange>,
}

/// Field lines held on the stack while httparse runs. A higher limit costs an allocation a request.
const STACK_FIELDS: usize = 128;

impl RequestHead {
    /// Parses the head at the start of `buffer`. `Ok(None)` means more bytes are needed; nothing has changed then.
    ///
    /// On success the head owns `buffer`'s memory, and `buffer` has the bytes after the head. `storage` lends the
    /// memory of an earlier head's fields, see [`RequestHead::into_storage`].
    ///
    /// # Errors
    /// [`HeadError`] if no further byte can make this a valid request.
    pub fn parse(buffer: &mut Vec<u8>, limits: &HeadLimits, storage: &mut Fields) -> Result<Option<Self>, HeadError> {
        let mut parsed = if limits.fields <= STACK_FIELDS {
            let mut lines = [const { MaybeUninit::uninit() }; STACK_FIELDS];
            split(buffer, &mut lines[..limits.fields], storage)
        } else {
            let mut lines = vec![MaybeUninit::uninit(); limits.fields];
            split(buffer, &mut lines, storage)
        }
        .inspect_err(|_| storage.clear())?;
        let Some((head, length)) = parsed.take() else {
            storage.clear();
            return check_size(buffer, buffer.len(), limits).map(|()| None);
        };
        check_size(buffer, length, limits).inspect_err(|_| storage.clear())?;
        let rest = buffer[length..].to_vec();
        buffer.truncate(length);
        let mut fields = std::mem::take(storage);
        fields.over(std::mem::replace(buffer, rest));
        head.finish(fields).map(Some)
    }

    /// Makes a head of the pseudo-fields and fields of HTTP/2 (RFC 9113 §8.3.1). The names and values of `fields` are
    /// checked already, and are taken out. The authority is added as a Host line, too, where all readers look for it.
    ///
    /// # Errors
    /// [`HeadError::Malformed`] for a head that would mean something else as HTTP/1 text or CGI variables.
    pub(crate) fn from_pseudo(pseudo: &PseudoFields, fields: &mut Fields) -> Result<Self, HeadError> {
        let bytes = fields.buffer();
        let method_name = pseudo.method.ok_or(HeadError::Malformed("no :method"))?;
        if !is_name(method_name.of(bytes)) {
            return Err(HeadError::Malformed("bad :method"));
        }
        let method = match std::str::from_utf8(method_name.of(bytes)) {
            Ok(name) => Method::of(name),
            Err(_) => Method::Other,
        };
        let target = pseudo_target(pseudo, method, bytes)?;
        let host = host_field(fields, Version::Http2)?.map(|host| BufferRange::within(bytes, host));
        let authority = match (pseudo.authority, host) {
            (Some(authority), Some(host)) if !authority.of(bytes).eq_ignore_ascii_case(host.of(bytes)) => {
                return Err(HeadError::Malformed("Host is not :authority"));
            }
            (Some(authority), _) if is_authority(authority.of(bytes)) => authority,
            (None, Some(host)) if !host.is_empty() => host,
            _ => return Err(HeadError::Malformed("no or bad :authority")),
        };
        let found = Target::parse(target.of(bytes), method).map_err(HeadError::Malformed)?;
        let path = BufferRange::within(bytes, found.path);
        let query = found.query.map(|query| BufferRange::within(bytes, query));
        if host.is_none() {
            let name = fields.store(b"host");
            fields.push_stored(name, authority);
        }
        Ok(Self {
            method,
            version: Version::Http2,
            method_name,
            target,
            path,
            query,
            authority: Some(authority),
            fields: std::mem::take(fields),
        })
    }

    /// Checks the lines, once they are complete.
    fn finish(mut self, fields: Fields) -> Result<Self, HeadError> {
        let target = Target::parse(self.target.of(fields.buffer()), self.method).map_err(HeadError::Malformed)?;
        self.path = BufferRange::within(fields.buffer(), target.path);
        self.query = target.query.map(|query| BufferRange::within(fields.buffer(), query));
        let host = host_field(&fields, self.version)?;
        self.authority = target
            .authority
            .or(host)
            .map(|found| BufferRange::within(fields.buffer(), found));
        self.fields = fields;
        Ok(self)
    }

    /// The memory of this head, for the next one's [`RequestHead::parse`].
    #[must_use]
    pub fn into_storage(self) -> Fields {
        self.fields
    }

    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method as the client wrote it.
    #[must_use]
    pub fn method_name(&self) -> &[u8] {
        self.method_name.of(self.fields.buffer())
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The request target as the client wrote it.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.target.of(self.fields.buffer())
    }

    /// The path of the target, still percent-encoded; it begins with `/`, or is empty for `*` and CONNECT.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path.of(self.fields.buffer())
    }

    /// The text after the first `?`.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|query| query.of(self.fields.buffer()))
    }

    /// The checked host and port of the request: `example.com`, `[::1]:8080`. `None` in HTTP/1.0 only.
    #[must_use]
    pub fn authority(&self) -> Option<&[u8]> {
        self.authority
            .filter(|found| !found.is_empty())
            .map(|authority| authority.of(self.fields.buffer()))
    }

    /// The authority without its port.
    #[must_use]
    pub fn host(&self) -> Option<&[u8]> {
        self.authority().map(|authority| split_port(authority).0)
    }

    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Takes the authority from a part of the last field line called `name`, which a trusted proxy has written. False,
    /// without a change, if there is no such part or it is no host.
    pub fn take_authority(&mut self, name: &str, part: impl Fn(&[u8]) -> Option<&[u8]>) -> bool {
        let found = self.fields.get_all(name).last().and_then(part);
        let Some(host) = found.filter(|host| is_authority(host)) else {
            return false;
        };
        self.authority = Some(BufferRange::within(self.fields.buffer(), host));
        true
    }
}

/// Lets httparse find the lines. `Ok(None)` means the head is not complete.
fn split<'b>(
    buffer: &'b [u8],
    lines: &mut [MaybeUninit<httparse::Header<'b>>],
    storage: &mut Fields,
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(buffer, lines) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooManyFields),
        Err(httparse::Error::Version) => return Err(version_error(buffer)),
        Err(httparse::Error::HeaderName) => return Err(HeadError::Malformed("bad field name")),
        Err(httparse::Error::HeaderValue) => return Err(HeadError::Malformed("bad field value")),
        Err(_) => return Err(HeadError::Malformed("bad request line or line end")),
    };
    if has_bare_line_feed(&buffer[..length]) {
        return Err(HeadError::Malformed("line feed without carriage return"));
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(HeadError::Malformed("bad request line"));
    };
    storage.clear();
    for line in request.headers.iter() {
        storage.push_part_of(buffer, line.name.as_bytes(), line.value.trim_ascii());
    }
    let head = RequestHead {
        method: Method::of(method),
        version: if version == 0 { Version::Http10 } else { Version::Http11 },
        method_name: BufferRange::within(buffer, method.as_bytes()),
        target: BufferRange::within(buffer, target.as_bytes()),
        path: BufferRange::default(),
        query: None,
        authority: None,
        fields: Fields::new(),
    };
    Ok(Some((head, length)))
}

/// The request target of the pseudo-fields: `:path`, or for CONNECT the authority (RFC 9113 §8.5).
fn pseudo_target(pseudo: &PseudoFields, method: Method, bytes: &[u8]) -> Result<BufferRange, HeadError> {
    let target = match (method, pseudo.scheme, pseudo.path) {
        (Method::Connect, None, None) => pseudo
            .authority
            .ok_or(HeadError::Malformed("CONNECT without :authority"))?,
        (Method::Connect, _, _) => return Err(HeadError::Malformed("CONNECT with :scheme or :path")),
        (_, Some(scheme), Some(path)) => {
            if !matches!(scheme.of(bytes), b"http" | b"https") {
                return Err(HeadError::Malformed(":scheme is not http or https"));
            }
            path
        }
        _ => return Err(HeadError::Malformed("no :scheme or no :path")),
    };
    let text = target.of(bytes);
    if method != Method::Connect && !(text.starts_with(b"/") || text == b"*") {
        return Err(HeadError::Malformed(":path does not begin with a slash"));
    }
    // Bytes that end a request line, or a word in it. Without an early end the loop runs on many bytes at once.
    if text
        .iter()
        .fold(false, |found, &byte| found | (byte <= b' ') | (byte == 0x7f))
    {
        return Err(HeadError::Malformed("control byte or space in :path"));
    }
    Ok(target)
}

/// httparse reports any text in place of the version as one fault; only a well-formed version is merely unsupported.
fn version_error(buffer: &[u8]) -> HeadError {
    let line = buffer
        .trim_ascii_start()
        .split(|&byte| byte == b'\r' || byte == b'\n')
        .next();
    match line.and_then(|line| line.splitn(3, |&byte| byte == b' ').nth(2)) {
        Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => HeadError::Version,
        _ => HeadError::Malformed("bad request line"),
    }
}

/// Finds a bare LF. httparse takes it for a line end, but a proxy before haulier may not (RFC 9112 §2.2 allows to
/// refuse it).
fn has_bare_line_feed(head: &[u8]) -> bool {
    // Without an early end the loop runs on many bytes at once.
    let pairs = head.iter().zip(head.iter().skip(1));
    let bare = pairs.fold(false, |found, (&before, &byte)| {
        found | ((byte == b'\n') & (before != b'\r'))
    });
    bare || head.first() == Some(&b'\n')
}

/// Checks the limits on the first `length` bytes, which are a whole head, or the part that has come.
fn check_size(buffer: &[u8], length: usize, limits: &HeadLimits) -> Result<(), HeadError> {
    if length <= limits.request_line.min(limits.header) {
        return Ok(());
    }
    let line = buffer[..length]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(length, |at| at + 1);
    if line > limits.request_line {
        Err(HeadError::LineTooLong)
    } else if length - line > limits.header {
        Err(HeadError::TooLarge)
    } else {
        Ok(())
    }
}

/// The one Host field line, checked (RFC 9112 §3.2).
fn host_field(fields: &Fields, version: Version) -> Result<Option<&[u8]>, HeadError> {
    if fields.is_repeated(Known::Host) {
        return Err(HeadError::Malformed("more than one Host"));
    }
    match fields.known(Known::Host) {
        None if version == Version::Http11 => Err(HeadError::Malformed("no Host")),
        None => Ok(None),
        Some(host) if host.is_empty() || is_authority(host) => Ok(Some(host)),
        Some(_) => Err(HeadError::Malformed("bad Host")),
    }
}

/// The parts of a request target (RFC 9112 §3.2).
struct Target<'a> {
    authority: Option<&'a [u8]>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl<'a> Target<'a> {
    fn parse(target: &'a [u8], method: Method) -> Result<Self, &'static str> {
        if target.iter().fold(false, |found, &byte| found | (byte == b'#')) {
            return Err("fragment in the request target");
        }
        if method == Method::Connect {
            return if is_authority(target) {
                Ok(Self {
                    authority: Some(target),
                    path: &target[..0],
                    query: None,
                })
            } else {
                Err("CONNECT needs host and port")
            };
        }
        match target {
            [b'/', ..] => Ok(Self::origin(None, target)),
            b"*" if method == Method::Options => Ok(Self {
                authority: None,
                path: &target[..0],
                query: None,
            }),
            _ => Self::absolute(target),
        }
    }

    fn origin(authority: Option<&'a [u8]>, path_and_query: &'a [u8]) -> Self {
        match path_and_query.iter().position(|&byte| byte == b'?') {
            None => Self {
                authority,
                path: path_and_query,
                query: None,
            },
            Some(at) => Self {
                authority,
                path: &path_and_query[..at],
                query: Some(&path_and_query[at + 1..]),
            },
        }
    }

    fn absolute(target: &'a [u8]) -> Result<Self, &'static str> {
        let rest = strip_scheme(target).ok_or("request target is neither a path nor an http URL")?;
        let at = rest
            .iter()
            .position(|&byte| matches!(byte, b'/' | b'?'))
            .unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(at);
        if !is_authority(authority) {
            return Err("bad authority in the request target");
        }
        // RFC 9112 §3.2.2: an empty path is `/`; the closing bytes of the scheme's `//` lend one.
        let path_and_query = if path_and_query.first() == Some(&b'/') {
            path_and_query
        } else if path_and_query.is_empty() {
            &target[target.len() - rest.len() - 1..target.len() - rest.len()]
        } else {
            return Err("query without a path in the request target");
        };
        Ok(Self::origin(Some(authority), path_and_query))
    }
}

fn strip_scheme(target: &[u8]) -> Option<&[u8]> {
    for scheme in [&b"http://"[..], b"https://"] {
        if target.len() >= scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme) {
            return Some(&target[scheme.len()..]);
        }
    }
    None
}

/// Host and port, the latter empty if there is none.
#[must_use]
pub fn split_port(authority: &[u8]) -> (&[u8], &[u8]) {
    let after_literal = authority.iter().rposition(|&byte| byte == b']').map_or(0, |at| at + 1);
    match authority[after_literal..].iter().position(|&byte| byte == b':') {
        Some(at) => (&authority[..after_literal + at], &authority[after_literal + at + 1..]),
        None => (authority, b""),
    }
}

/// Bytes of a registered name (RFC 3986 §3.2.2).
const HOST_BYTE: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = (byte as u8).is_ascii_alphanumeric()
            || matches!(
                byte as u8,
                b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'%' | b'&' | b'\''..=b',' | b';' | b'='
            );
        byte += 1;
    }
    allowed
};

/// True for `host [":" port]` of RFC 3986 §3.2, without user information.
fn is_authority(authority: &[u8]) -> bool {
    let (host, port) = match authority {
        [b'[', ..] => split_port(authority),
        // A name has neither brackets nor colons, so the last colon is the right one; it is near the end.
        _ => match authority.iter().rposition(|&byte| byte == b':') {
            Some(at) => (&authority[..at], &authority[at + 1..]),
            None => (authority, &b""[..]),
        },
    };
    let host_is_good = match host {
        [] => false,
        [b'[', inner @ .., b']'] => {
            std::str::from_utf8(inner).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
        }
        // The loop does not end at a bad byte, so it needs no branch a byte.
        _ => host
            .iter()
            .fold(true, |good, &byte| good & HOST_BYTE[usize::from(byte)]),
    };
    host_is_good && port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests;
