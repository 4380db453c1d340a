//! An HTTP/2 server without TLS that does what the test says, stream by stream.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use haulier_proto::field::Fields;
use haulier_proto::h2::connection::{Connection, ServerEvent};
use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::hpack::encode;
use haulier_proto::h2::limits::Limits;

/// A request as the peer saw it, its body complete.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// From 0, over all connections.
    pub(crate) number: usize,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What the peer does with a request.
pub(crate) enum Does {
    /// Status, fields and body, whose length is told and right.
    Answer(u16, Vec<(String, String)>, Vec<u8>),
    /// 200 and this many bytes of `x`, as the first of so many promised; then the stream ends.
    Short(usize, usize),
    /// The same, and then the stream is reset with the code.
    Reset(usize, usize, ErrorCode),
    /// The request is not taken.
    Refuse,
    /// Nothing at all, for ever.
    Hang,
    /// A head and a byte of 9, and nothing more.
    HangInBody,
    /// The answer is `x`, and the connection takes no more streams.
    Last,
    /// The connection ends with bytes that are no frames.
    Garbage,
    /// The connection ends.
    Close,
}

/// A good answer of this body.
pub(crate) fn page(body: &str) -> Does {
    Does::Answer(200, Vec::new(), body.as_bytes().to_vec())
}

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    most_streams: AtomicUsize,
    number: AtomicUsize,
    requests: Mutex<Vec<Asked>>,
    stopped: AtomicBool,
}

/// The running server.
pub(crate) struct Peer {
    address: SocketAddr,
    seen: Arc<Seen>,
}

type Script = dyn Fn(&Asked) -> Does + Send + Sync;

impl Peer {
    pub(crate) fn start(script: impl Fn(&Asked) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (seen, script): (Arc<Seen>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { return };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (seen, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || Serving::new(stream, &seen, &*script).run());
            }
        });
        Self { address, seen }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.seen.requests.lock().expect("no panic").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// The most streams that one connection had open at once.
    pub(crate) fn most_streams(&self) -> usize {
        self.seen.most_streams.load(Ordering::Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.seen.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection.
struct Serving<'s> {
    socket: TcpStream,
    seen: &'s Seen,
    script: &'s Script,
    connection: Connection,
    asked: HashMap<u32, Asked>,
    /// What is left of the bodies, and how their streams end.
    left: HashMap<u32, (Vec<u8>, Ending)>,
    is_over: bool,
}

#[derive(Clone, Copy)]
enum Ending {
    End,
    Reset(ErrorCode),
    Never,
}

impl<'s> Serving<'s> {
    fn new(socket: TcpStream, seen: &'s Seen, script: &'s Script) -> Self {
        let _ = socket.set_nodelay(true);
        let limits = Limits {
            resets: 10_000,
            ..Limits::default()
        };
        Self {
            socket,
            seen,
            script,
            connection: Connection::new(limits, Instant::now()),
            asked: HashMap::new(),
            left: HashMap::new(),
            is_over: false,
        }
    }

    fn run(mut self) {
        let (mut input, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            self.send_more();
            let output = std::mem::take(self.connection.output());
            if self.socket.write_all(&output).is_err() {
                return;
            }
            if self.is_over || self.connection.is_finished() {
                // What is unread when a socket closes becomes a reset, which would take our last bytes with it.
                let _ = self.socket.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(&mut self.socket, &mut std::io::sink());
                return;
            }
            let Ok(count @ 1..) = self.socket.read(&mut piece) else {
                return;
            };
            input.extend_from_slice(&piece[..count]);
            let (mut at, mut storage) = (0, Fields::new());
            while let Ok(step) = self.connection.receive(&input[at..], Instant::now(), &mut storage) {
                at += step.taken;
                let Some(event) = step.event else { break };
                self.event(event);
            }
            input.drain(..at);
        }
    }

    fn event(&mut self, event: ServerEvent<'_>) {
        match event {
            ServerEvent::Request { stream, head, end } => {
                let open = self.connection.open_streams();
                self.seen.most_streams.fetch_max(open, Ordering::Relaxed);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let lines = head.fields().iter();
                let asked = Asked {
                    method: text(head.method_name()),
                    target: text(head.target()),
                    fields: lines.map(|(name, value)| (text(name), text(value))).collect(),
                    body: Vec::new(),
                    number: self.seen.number.fetch_add(1, Ordering::Relaxed),
                };
                self.asked.insert(stream, asked);
                if end {
                    self.answer(stream);
                }
            }
            ServerEvent::Data { stream, data, end } => {
                if let Some(asked) = self.asked.get_mut(&stream) {
                    asked.body.extend_from_slice(data);
                }
                self.connection.consume(stream, data.len());
                if end {
                    self.answer(stream);
                }
            }
            ServerEvent::Reset { stream, .. } => {
                self.left.remove(&stream);
            }
            ServerEvent::Refused { .. } | ServerEvent::GoAway { .. } => {}
        }
    }

    fn answer(&mut self, stream: u32) {
        let Some(asked) = self.asked.remove(&stream) else {
            return;
        };
        let does = (self.script)(&asked);
        let is_head = asked.method == "HEAD";
        self.seen.requests.lock().expect("no panic").push(asked);
        match does {
            Does::Answer(status, fields, body) if is_head => {
                self.head(stream, status, &fields, body.len(), true);
            }
            Does::Answer(status, fields, body) => {
                self.head(stream, status, &fields, body.len(), false);
                self.body(stream, body, Ending::End);
            }
            Does::Short(length, promised) => {
                self.head(stream, 200, &[], promised, false);
                self.body(stream, vec![b'x'; length], Ending::End);
            }
            Does::Reset(length, promised, code) => {
                self.head(stream, 200, &[], promised, false);
                self.body(stream, vec![b'x'; length], Ending::Reset(code));
            }
            Does::Refuse => self.connection.reset(stream, ErrorCode::REFUSED_STREAM),
            Does::Hang => {}
            Does::HangInBody => {
                self.head(stream, 200, &[], 9, false);
                self.body(stream, b"x".to_vec(), Ending::Never);
            }
            Does::Last => {
                self.head(stream, 200, &[], 1, false);
                self.body(stream, b"x".to_vec(), Ending::End);
                self.connection.shut_down();
            }
            Does::Garbage => {
                self.connection
                    .output()
                    .extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                self.is_over = true;
            }
            Does::Close => self.is_over = true,
        }
    }

    fn head(&mut self, stream: u32, status: u16, fields: &[(String, String)], length: usize, end: bool) {
        let mut lines = Fields::new();
        lines.append("server", "scripted/2");
        for (name, value) in fields {
            lines.append(name, value);
        }
        lines.append("content-length", length.to_string());
        self.connection.send_head(stream, &encode::block(status, &lines), end);
    }

    fn body(&mut self, stream: u32, body: Vec<u8>, ending: Ending) {
        self.left.insert(stream, (body, ending));
        self.connection.queue(stream);
    }

    /// As much of the bodies as the client's windows let through.
    fn send_more(&mut self) {
        while let Some(stream) = self.connection.next_writable() {
            let Some((body, ending)) = self.left.get_mut(&stream) else {
                continue;
            };
            let is_end = matches!(ending, Ending::End);
            let sent = self.connection.send_data(stream, body, is_end).unwrap_or(body.len());
            body.drain(..sent);
            if !body.is_empty() {
                continue;
            }
            let ending = *ending;
            self.left.remove(&stream);
            if let Ending::Reset(code) = ending {
                self.connection.reset(stream, code);
            }
        }
    }
}
