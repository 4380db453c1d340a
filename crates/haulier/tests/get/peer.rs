//! A server that follows the test's script, byte for byte.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes written at once.
const PIECE: usize = 64 * 1024;

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
    /// From 0, over all connections.
    pub(crate) number: usize,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The range asked for, its end not included.
    pub(crate) fn range(&self, length: usize) -> Option<(usize, usize)> {
        let (start, end) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = end.parse::<usize>().map_or(length, |last| (last + 1).min(length));
        Some((start.parse().ok()?, end))
    }
}

/// The connection that a script writes to.
pub(crate) struct Wire {
    stream: TcpStream,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    body: AtomicU64,
    connections: AtomicUsize,
    requests: Mutex<Vec<Asked>>,
    stopped: AtomicBool,
}

impl Wire {
    pub(crate) fn head(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.replace('\n', "\r\n").as_bytes())
    }

    /// Body bytes; they are counted.
    pub(crate) fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.stream.write_all(piece)?;
            self.counters.body.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Body bytes at a rate for this connection, bytes a second.
    pub(crate) fn slow_body(&mut self, bytes: &[u8], rate: usize) -> io::Result<()> {
        let pieces = bytes.chunks((rate / 50).max(1));
        for piece in pieces {
            self.body(piece)?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Body bytes in bursts of `rate` bytes, one a second, as servers send them that limit by the second.
    pub(crate) fn bursts(&mut self, bytes: &[u8], rate: usize) -> io::Result<()> {
        for (number, piece) in bytes.chunks(rate).enumerate() {
            if number > 0 {
                thread::sleep(Duration::from_secs(1));
            }
            self.body(piece)?;
        }
        Ok(())
    }

    /// Ends the connection with a reset instead of an end.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

/// Closes the connection after the script.
pub(crate) fn close() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// The running server.
pub(crate) struct Peer {
    address: SocketAddr,
    counters: Arc<Counters>,
}

impl Peer {
    /// Answers every request by `script`; an error from it closes the connection.
    pub(crate) fn start(script: impl Fn(&Asked, &mut Wire) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counters = Arc::new(Counters::default());
        let (script, shared) = (Arc::new(script), Arc::clone(&counters));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { return };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (script, counters) = (Arc::clone(&script), Arc::clone(&shared));
                thread::spawn(move || serve(stream, &counters, &*script));
            }
        });
        Self { address, counters }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Body bytes written so far.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.counters.body.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.counters.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.counters.requests.lock().expect("no panic").clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.counters.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, counters: &Arc<Counters>, script: &dyn Fn(&Asked, &mut Wire) -> io::Result<()>) {
    let Ok(reading) = stream.try_clone() else { return };
    let mut lines = BufReader::new(reading);
    let mut wire = Wire {
        stream,
        counters: Arc::clone(counters),
    };
    while let Some(asked) = read_request(&mut lines, counters) {
        match script(&asked, &mut wire) {
            Ok(()) => {}
            // A reset is made by dropping the socket with a linger of zero.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
            Err(_) => {
                let _ = wire.stream.shutdown(Shutdown::Write);
                let _ = io::copy(&mut lines, &mut io::sink());
                return;
            }
        }
    }
}

fn read_request(lines: &mut impl BufRead, counters: &Counters) -> Option<Asked> {
    let mut read = || {
        let mut line = String::new();
        let length = lines.read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim_end().to_owned())
    };
    let line = read()?;
    let mut fields = Vec::new();
    loop {
        let line = read()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut requests = counters.requests.lock().ok()?;
    let asked = Asked {
        line,
        fields,
        number: requests.len(),
    };
    requests.push(asked.clone());
    Some(asked)
}

/// Bytes without repetition, so that a misplaced piece shows.
pub(crate) fn data(length: usize, seed: u64) -> Arc<Vec<u8>> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    Arc::new(words.flatten().take(length).collect())
}

/// Writes the head of an honest server: 200, or 206 if a range was requested and the tag agrees. Returns the range of
/// the body in `data`.
pub(crate) fn honest_head(asked: &Asked, wire: &mut Wire, data: &[u8], tag: &str) -> io::Result<(usize, usize)> {
    let length = data.len();
    let agrees = asked.field("if-range").is_none_or(|given| given == tag);
    match asked.range(length).filter(|_| agrees) {
        Some((start, end)) if start < end => {
            let (size, last) = (end - start, end - 1);
            wire.head(&format!(
                "HTTP/1.1 206 Partial Content\nContent-Length: {size}\nContent-Range: bytes {start}-{last}/{length}\nETag: {tag}\n\n"
            ))?;
            Ok((start, end))
        }
        Some(_) => {
            wire.head(&format!(
                "HTTP/1.1 416 Range Not Satisfiable\nContent-Length: 0\nContent-Range: bytes */{length}\n\n"
            ))?;
            Ok((0, 0))
        }
        None => {
            wire.head(&format!(
                "HTTP/1.1 200 OK\nContent-Length: {length}\nAccept-Ranges: bytes\nETag: {tag}\n\n"
            ))?;
            Ok((0, length))
        }
    }
}

/// A whole honest answer.
pub(crate) fn honest(asked: &Asked, wire: &mut Wire, data: &[u8], tag: &str) -> io::Result<()> {
    let (start, end) = honest_head(asked, wire, data, tag)?;
    wire.body(&data[start..end])
}
