//! One exchange after the other on an HTTP/2 connection (RFC 9113).
//!
//! A download wants connections, not streams: one that is slow is slow because of its path, which streams share. So each
//! exchange has the connection to itself, and with it the whole window: what is not read waits in the socket.

use haulier_proto::field::Fields;
use haulier_proto::h2::client::{Ask, Client, ClientLimits, Event, StreamError};
use haulier_proto::h2::flow::MOST_WINDOW;
use haulier_proto::head::Method;
use haulier_proto::response_head::ResponseHead;

use crate::error::ClientError;
use crate::exchange::{Left, Request};
use crate::stream::Stream;
use crate::url::Scheme;

/// Bytes asked of the socket at once.
const READ: usize = 256 * 1024;

/// An HTTP/2 connection between and within exchanges. The bytes it reads lie in the buffer that its calls are given.
#[derive(Debug)]
pub(crate) struct Http2 {
    state: Client,
    /// Bytes at the start of the buffer that are done with.
    taken: usize,
    /// Of the body, taken out of a frame and not yet asked for.
    held: Vec<u8>,
    has_ended: bool,
    storage: Fields,
}

impl Default for Http2 {
    fn default() -> Self {
        let window = MOST_WINDOW as u32;
        Self {
            state: Client::new(ClientLimits {
                stream_window: window,
                connection_window: window,
                ..ClientLimits::default()
            }),
            taken: 0,
            held: Vec::new(),
            has_ended: false,
            storage: Fields::new(),
        }
    }
}

/// What one look at the buffer found.
enum Found {
    Head(Box<ResponseHead>, bool),
    /// Some of the body went out or is held.
    Body,
    /// Nothing yet, or nothing more.
    Nothing,
}

impl Http2 {
    /// Whether another exchange may follow.
    pub(crate) fn is_reusable(&self) -> bool {
        self.state.is_open() && self.state.open_streams() == 0 && self.held.is_empty()
    }

    /// Whether the body was taken to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.held.is_empty()
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn ask(
        &mut self,
        stream: &mut Stream,
        buffer: &mut Vec<u8>,
        request: &Request,
    ) -> Result<(ResponseHead, Left), ClientError> {
        let body = request.body.as_deref().unwrap_or_default();
        let fields = fields(request);
        let ask = Ask {
            is_head: request.method == Method::Head,
            end: body.is_empty(),
        };
        let lines = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let id = self
            .state
            .open(ask, lines)
            .ok_or(ClientError::Stream(StreamError::Unprocessed))?;
        self.has_ended = false;
        let mut sent = 0;
        loop {
            if sent < body.len() {
                sent += self.state.send_data(id, &body[sent..], true).unwrap_or_default();
            }
            self.flush(stream).await?;
            if let Found::Head(head, end) = self.look(buffer, id, &mut Vec::new(), 0)? {
                let left = if end {
                    Left::Known { length: 0, received: 0 }
                } else {
                    let length = head.content_length()?;
                    Left::Stream {
                        id,
                        length,
                        received: 0,
                    }
                };
                return Ok((*head, left));
            }
            if self.fill(stream, buffer).await.map_err(ClientError::Broken)? == 0 {
                return Err(ClientError::Broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Appends what is there of the body to `out`, at most `most` bytes; true when nothing more will come.
    pub(crate) fn take_body(
        &mut self,
        buffer: &mut Vec<u8>,
        id: u32,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<bool, ClientError> {
        let until = out.len().saturating_add(most);
        let held = self.held.len().min(most);
        out.extend(self.held.drain(..held));
        while out.len() < until && !self.has_ended {
            if let Found::Nothing = self.look(buffer, id, out, until - out.len())? {
                break;
            }
        }
        if out.len() == until && !self.has_ended && self.held.is_empty() {
            // The end may lie behind the last byte, in a frame of its own.
            self.look(buffer, id, out, 0)?;
        }
        Ok(self.has_ended())
    }

    /// Reads more, after it has sent what was left to say; 0 is the end of the connection.
    pub(crate) async fn fill(&mut self, stream: &mut Stream, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
        let output = self.state.output();
        if !output.is_empty() {
            stream.write_all(output).await?;
            output.clear();
        }
        buffer.reserve(READ);
        stream.read(buffer).await
    }

    async fn flush(&mut self, stream: &mut Stream) -> Result<(), ClientError> {
        let output = self.state.output();
        if !output.is_empty() {
            stream.write_all(output).await.map_err(ClientError::Broken)?;
            output.clear();
        }
        Ok(())
    }

    /// Takes the next event of the stream out of the buffer.
    fn look(&mut self, buffer: &mut Vec<u8>, id: u32, out: &mut Vec<u8>, most: usize) -> Result<Found, ClientError> {
        loop {
            let step = self.state.receive(&buffer[self.taken..], &mut self.storage)?;
            self.taken += step.taken;
            let found = match step.event {
                Some(Event::Head { stream, head, end }) if stream == id => {
                    self.has_ended = end;
                    Found::Head(Box::new(head), end)
                }
                Some(Event::Data { stream, data, end }) if stream == id => {
                    let (now, later) = data.split_at(data.len().min(most));
                    out.extend_from_slice(now);
                    self.held.extend_from_slice(later);
                    self.has_ended = end;
                    Found::Body
                }
                Some(Event::Failed { stream, why }) if stream == id => return Err(why.into()),
                Some(_) => continue,
                None => Found::Nothing,
            };
            if self.taken == buffer.len() {
                buffer.clear();
                self.taken = 0;
            } else if matches!(found, Found::Nothing) {
                // The beginning of a frame is left: its end needs the room behind it.
                buffer.drain(..self.taken);
                self.taken = 0;
            }
            return Ok(found);
        }
    }
}

/// The lines of a request, pseudo-fields first (RFC 9113 §8.3.1).
fn fields(request: &Request) -> Vec<(String, String)> {
    let origin = request.url.origin();
    let scheme = if origin.scheme == Scheme::Https {
        "https"
    } else {
        "http"
    };
    let given = |name: &str| {
        let found = request
            .fields
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone())
    };
    let mut fields = vec![
        (":method".to_owned(), request.method_name().to_owned()),
        (":scheme".to_owned(), scheme.to_owned()),
        (
            ":authority".to_owned(),
            given("host").unwrap_or_else(|| origin.host_field()),
        ),
        (":path".to_owned(), request.url.target().to_owned()),
    ];
    let own = request.own_fields();
    fields.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let others = request
        .fields
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
    fields.extend(others.cloned());
    if let Some(body) = &request.body {
        fields.push(("content-length".to_owned(), body.len().to_string()));
    }
    fields
}
