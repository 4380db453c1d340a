//! A FastCGI server that follows a script on each connection.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use haulier_php::Address;
use haulier_proto::fastcgi::record::HEADER_LEN;
use haulier_proto::fastcgi::{Header, Pairs, RecordType};
use tempfile::TempDir;

/// The server; it stops accepting when dropped.
pub(crate) struct Responder {
    path: PathBuf,
    pub(crate) accepted: Arc<AtomicUsize>,
    _dir: TempDir,
}

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) params: Vec<(String, String)>,
    pub(crate) stdin: Vec<u8>,
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: UnixStream,
    /// Number of the connection, from 0.
    pub(crate) number: usize,
}

impl Responder {
    /// Runs `script` on a separate thread for each connection.
    pub(crate) fn start(script: impl Fn(Peer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("responder.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (accepted, script) = (Arc::new(AtomicUsize::new(0)), Arc::new(script));
        let counter = Arc::clone(&accepted);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let peer = Peer {
                    stream: stream.expect("a connection"),
                    number: counter.fetch_add(1, Ordering::SeqCst),
                };
                let script = Arc::clone(&script);
                thread::spawn(move || {
                    let _ = script(peer); // the pool may hang up at any time
                });
            }
        });
        Self {
            path,
            accepted,
            _dir: dir,
        }
    }

    /// Answers every request on every connection with these bytes.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |mut peer| {
            while peer.request()?.is_some() {
                peer.write(&bytes)?;
            }
            Ok(())
        })
    }

    pub(crate) fn server(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Peer {
    /// The next request; `None` if the connection ends before it is complete.
    pub(crate) fn request(&mut self) -> io::Result<Option<Received>> {
        let (mut params, mut stdin) = (Vec::new(), Vec::new());
        loop {
            let Some((header, content)) = self.record()? else {
                return Ok(None);
            };
            match header.kind {
                RecordType::Params => {
                    // Pairs must not cross records, so each record is parsed separately.
                    for pair in Pairs::new(&content) {
                        let (name, value) = pair.expect("whole pairs in each record");
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        params.push((text(name), text(value)));
                    }
                }
                RecordType::Stdin if content.is_empty() => return Ok(Some(Received { params, stdin })),
                RecordType::Stdin => stdin.extend(content),
                RecordType::BeginRequest => assert_eq!(content, [0, 1, 1, 0, 0, 0, 0, 0], "a responder, kept open"),
                other => panic!("a client does not send {other:?}"),
            }
        }
    }

    /// The next record; `None` at the end of the stream.
    pub(crate) fn record(&mut self) -> io::Result<Option<(Header, Vec<u8>)>> {
        let mut header = [0; HEADER_LEN];
        if self.stream.read_exact(&mut header).is_err() {
            return Ok(None);
        }
        let header = Header::decode(header).expect("a header");
        let mut content = vec![0; usize::from(header.content_length) + usize::from(header.padding_length)];
        if self.stream.read_exact(&mut content).is_err() {
            return Ok(None);
        }
        content.truncate(header.content_length.into());
        Ok(Some((header, content)))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes each piece separately.
    pub(crate) fn write_in_pieces(&mut self, bytes: &[u8], size: usize) -> io::Result<()> {
        for piece in bytes.chunks(size) {
            self.write(piece)?;
            thread::yield_now();
        }
        Ok(())
    }
}

pub(crate) fn record(kind: RecordType, content: &[u8], padding: u8) -> Vec<u8> {
    let header = Header {
        padding_length: padding,
        ..Header::new(kind, content.len() as u16)
    };
    [&header.encode()[..], content, &vec![0xaa; padding.into()]].concat()
}

pub(crate) fn stdout(content: &[u8]) -> Vec<u8> {
    record(RecordType::Stdout, content, 0)
}

pub(crate) fn stderr(content: &[u8]) -> Vec<u8> {
    record(RecordType::Stderr, content, 3)
}

pub(crate) fn end() -> Vec<u8> {
    record(RecordType::EndRequest, &[0; 8], 0)
}

pub(crate) fn end_with(protocol_status: u8) -> Vec<u8> {
    record(RecordType::EndRequest, &[0, 0, 0, 0, protocol_status, 0, 0, 0], 0)
}

/// A small complete answer.
pub(crate) fn hello() -> Vec<u8> {
    [stdout(b"Content-Type: text/plain\r\n\r\nhello"), end()].concat()
}
