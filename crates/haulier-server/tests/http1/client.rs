//! A client that sends exactly the bytes it is given, and reads responses as RFC 9112 §6.3 frames them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Far longer than any response takes; only a server that hangs reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes read and not yet parsed.
    input: Vec<u8>,
}

/// The method of the request: a response to HEAD has no body whatever its fields say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Get,
    Head,
}

/// A parsed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The whole head as received.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The trailer lines.
    pub(crate) trailers: Vec<String>,
}

impl Response {
    /// The value of the only line of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        let mut values = lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value);
        let value = values.next();
        assert!(values.next().is_none(), "{name} stands twice in {}", self.head);
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    /// True if the server announced that it will close.
    pub(crate) fn closes(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// Connects with a small receive buffer: bytes that are not read stay with the server.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(512 * 1024).expect("a small buffer");
        socket.connect(&address.into()).expect("the server listens");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out can be set");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("small pieces can be sent");
        Self {
            stream,
            input: Vec::new(),
        }
    }

    /// Sends all bytes. If the server has closed already, its response shows that.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.stream.write_all(bytes.as_ref()) {
            assert!(
                matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                "cannot send: {error}"
            );
        }
    }

    /// Closes the sending side.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("our side can be closed");
    }

    /// The next response to a GET.
    pub(crate) fn response(&mut self) -> Response {
        self.try_response(To::Get).expect("a response")
    }

    /// The next response to a HEAD.
    pub(crate) fn response_to_head(&mut self) -> Response {
        self.try_response(To::Head).expect("a response")
    }

    /// Sends a request and reads its response.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.response()
    }

    /// The next response; `None` if the server closed instead.
    pub(crate) fn try_response(&mut self, to: To) -> Option<Response> {
        let end = loop {
            if let Some(at) = find(&self.input, b"\r\n\r\n") {
                break at + 4;
            }
            if !self.receive() {
                assert!(
                    self.input.is_empty(),
                    "closed inside a head: {}",
                    self.input.escape_ascii()
                );
                return None;
            }
        };
        let head = String::from_utf8(self.input.drain(..end).collect()).expect("a head of text");
        let status = status(&head);
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
            trailers: Vec::new(),
        };
        if to == To::Get && status >= 200 && status != 204 && status != 304 {
            (response.body, response.trailers) = self.body(&response);
        }
        Some(response)
    }

    fn body(&mut self, response: &Response) -> (Vec<u8>, Vec<String>) {
        if let Some(coding) = response.field("Transfer-Encoding") {
            assert_eq!(coding, "chunked");
            assert_eq!(
                response.field("Content-Length"),
                None,
                "two framings: {}",
                response.head
            );
            return self.chunks();
        }
        let body = match response.field("Content-Length") {
            Some(length) => self.exactly(length.parse().expect("a number")),
            None => self.rest(),
        };
        (body, Vec::new())
    }

    fn chunks(&mut self) -> (Vec<u8>, Vec<String>) {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let size = usize::from_str_radix(&line, 16).expect("a chunk size");
            if size == 0 {
                let lines = std::iter::from_fn(|| Some(self.line()).filter(|line| !line.is_empty()));
                return (body, lines.collect());
            }
            body.extend(self.exactly(size));
            assert_eq!(self.line(), "", "the end of a chunk");
        }
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = find(&self.input, b"\r\n") {
                let line: Vec<u8> = self.input.drain(..at + 2).collect();
                return String::from_utf8_lossy(&line[..at]).into_owned();
            }
            assert!(self.receive(), "closed inside a line");
        }
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.input.len() < length {
            assert!(
                self.receive(),
                "closed {} bytes before the end of a body",
                length - self.input.len()
            );
        }
        self.input.drain(..length).collect()
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.receive() {}
        std::mem::take(&mut self.input)
    }

    /// Everything until the server closes, or is silent for `silence`.
    pub(crate) fn rest_within(&mut self, silence: Duration) -> Vec<u8> {
        while !self.is_silent_for(silence) && self.receive() {}
        std::mem::take(&mut self.input)
    }

    /// True if the server sends nothing more and closes, or has closed.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.input.is_empty() && !self.receive()
    }

    /// True if nothing comes for a while and the connection stays open.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a time-out can be set");
        let mut byte = [0];
        let heard = loop {
            match self.stream.peek(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                heard => break heard,
            }
        };
        let silent = matches!(heard, Err(error) if is_time_out(error.kind()));
        self.stream
            .set_read_timeout(Some(TIMEOUT))
            .expect("a time-out can be set");
        silent
    }

    /// Reads more bytes; false at the end.
    fn receive(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    self.input.extend_from_slice(&piece[..length]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("the server neither answers nor closes: {error}"),
            }
        }
    }
}

fn is_time_out(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn status(head: &str) -> u16 {
    let line = head
        .strip_prefix("HTTP/1.1 ")
        .unwrap_or_else(|| panic!("no status line: {head}"));
    line[..3].parse().expect("three digits")
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
