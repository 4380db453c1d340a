//! Servers that a test scripts byte for byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// From 0, over all connections.
    pub(crate) number: usize,
}

/// Reaction of a server to a request.
pub(crate) enum Does {
    /// Sends this and continues.
    Answer(Vec<u8>),
    /// Sends this and closes.
    AnswerAndClose(Vec<u8>),
    /// Sends this and then nothing, for as long as the client waits.
    AnswerAndHang(Vec<u8>),
    /// Ends the connection with a reset.
    Reset,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Asked>>,
    number: AtomicUsize,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
}

type Script = dyn Fn(&Asked) -> Does + Send + Sync;

impl Server {
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
                let _ = stream.set_nodelay(true);
                let (seen, script) = (Arc::clone(&shared), Arc::clone(&script));
                thread::spawn(move || serve(&stream, &seen, &*script));
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

    /// Accepts no more connections, and keeps those that are open.
    pub(crate) fn stop(&self) {
        self.seen.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(stream: &TcpStream, seen: &Seen, script: &Script) {
    seen.connections.fetch_add(1, Ordering::Relaxed);
    let mut lines = BufReader::new(stream);
    while let Some(asked) = read_request(&mut lines, seen) {
        let keeps = asked.line.ends_with("HTTP/1.1") || asked.head.contains("keep-alive");
        let closes = asked.head.contains("connection: close") || !keeps;
        let (bytes, then) = match script(&asked) {
            Does::Answer(bytes) if closes => (bytes, Some(false)),
            Does::Answer(bytes) => (bytes, None),
            Does::AnswerAndClose(bytes) => (bytes, Some(false)),
            Does::AnswerAndHang(bytes) => (bytes, Some(true)),
            Does::Reset => {
                let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
                return;
            }
        };
        let mut writing = stream;
        if writing.write_all(&bytes).is_err() {
            return;
        }
        match then {
            None => {}
            Some(false) => {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = io::copy(&mut lines, &mut io::sink());
                return;
            }
            Some(true) => {
                let _ = io::copy(&mut lines, &mut io::sink());
                return;
            }
        }
    }
}

/// Most requests that are remembered.
const REMEMBERED: usize = 5000;

fn read_request(lines: &mut impl BufRead, seen: &Seen) -> Option<Asked> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if lines.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head.len() - before <= 2 {
            break;
        }
    }
    let line = head.lines().next()?.to_owned();
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    lines.read_exact(&mut body).ok()?;
    let asked = Asked {
        line,
        head,
        body,
        number: seen.number.fetch_add(1, Ordering::Relaxed),
    };
    let mut requests = seen.requests.lock().ok()?;
    if requests.len() < REMEMBERED {
        requests.push(asked.clone());
    }
    Some(asked)
}

/// A complete good answer. It announces keep-alive, for HTTP/1.0.
pub(crate) fn page(body: &str) -> Vec<u8> {
    with_status("200 OK", "", body)
}

pub(crate) fn with_status(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nServer: scripted/1\r\nConnection: keep-alive\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// A good answer after a while.
pub(crate) fn after(time: Duration, body: &str) -> Does {
    thread::sleep(time);
    Does::Answer(page(body))
}

/// Answers in 20 ms, but freezes for a second of every five.
pub(crate) fn freezing() -> Server {
    const PERIOD: Duration = Duration::from_secs(5);
    const FROZEN: Duration = Duration::from_secs(1);
    let begun = Instant::now();
    Server::start(move |_| {
        thread::sleep(Duration::from_millis(20));
        let at = begun.elapsed().as_nanos() % PERIOD.as_nanos();
        // The freeze stands at the end of a period, so that the probes do not meet it.
        let left = PERIOD.as_nanos() - at;
        if left < FROZEN.as_nanos() {
            thread::sleep(Duration::from_nanos(u64::try_from(left).expect("below a second")));
        }
        Does::Answer(page("thawed"))
    })
}

/// A FastCGI responder on a local socket that answers every request with a page naming its script.
pub(crate) fn fast_cgi(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a free path");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || while respond(&mut stream).is_some() {});
        }
    });
}

fn respond(stream: &mut (impl Read + Write)) -> Option<()> {
    let mut params = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let mut content = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]]))];
        stream.read_exact(&mut content).ok()?;
        match header[1] {
            4 => params.extend_from_slice(&content),
            5 if content.is_empty() => break,
            _ => {}
        }
    }
    let has_script = params.windows(14).any(|part| part == b"/srv/hello.php");
    let status = if has_script { "200 OK" } else { "404 Not Found" };
    let text = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\nfrom FastCGI");
    let record = |kind: u8, content: &[u8]| {
        let length = (content.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
    };
    stream
        .write_all(&[record(6, text.as_bytes()), record(3, &[0; 8])].concat())
        .ok()
}
