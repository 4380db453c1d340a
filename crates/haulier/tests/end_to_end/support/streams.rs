//! Visitors over HTTP/2, who keep several streams open and go on elsewhere when the server says farewell, as RFC 9113
//! §6.8 wants it.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use haulier_proto::field::Fields;
use haulier_proto::h2::PREFACE;
use haulier_proto::h2::frame::{
    ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, write_ping, write_settings_ack, write_small,
    write_window_update,
};
use haulier_proto::h2::hpack::decode::Decoder;
use haulier_proto::h2::hpack::encode;

/// Streams of one connection at a time.
const AT_ONCE: usize = 4;

/// Visitors that ask for one page after the other. Nothing but 200 is good enough for them, and no stream may break.
#[derive(Debug)]
pub(crate) struct StreamCrowd {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    visitors: Vec<JoinHandle<Vec<String>>>,
}

impl StreamCrowd {
    pub(crate) fn start(address: SocketAddr, visitors: usize, paths: &[&'static str]) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let visit = |_| {
            let (stop, answers, paths) = (Arc::clone(&stop), Arc::clone(&answers), paths.to_vec());
            thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let visited = Visit::begin(address).and_then(|mut visit| visit.go_on(&paths, &stop, &answers));
                    match visited {
                        Ok(more) => failures.extend(more),
                        Err(error) => failures.push(error.to_string()),
                    }
                }
                failures
            })
        };
        Self {
            visitors: (0..visitors).map(visit).collect(),
            stop: Arc::clone(&stop),
            answers: Arc::clone(&answers),
        }
    }

    /// Waits for so many further answers.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let answers = || self.answers.load(Ordering::Relaxed);
        let goal = answers() + more;
        super::wait_until(&format!("{more} further answers"), || answers() >= goal);
    }

    /// Ends the load; gives how many were answered, and what became of the others.
    pub(crate) fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self
            .visitors
            .into_iter()
            .flat_map(|visitor| visitor.join().expect("a visitor counts its failures"))
            .collect();
        (self.answers.load(Ordering::Relaxed), failures)
    }
}

/// One connection.
struct Visit {
    stream: TcpStream,
    input: Vec<u8>,
    decoder: Decoder,
    next: u32,
    /// Streams without their end, with the status that came.
    open: HashMap<u32, u16>,
    /// The server opens no further stream.
    is_leaving: bool,
}

impl Visit {
    fn begin(address: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        let mut hello = PREFACE.to_vec();
        write_small(&mut hello, FrameType::Settings, 0, 0, &[]);
        stream.write_all(&hello)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            decoder: Decoder::new(4096),
            next: 1,
            open: HashMap::new(),
            is_leaving: false,
        })
    }

    /// Asks until the server says farewell, and reads what was begun to its end. Gives the answers that are not 200.
    fn go_on(&mut self, paths: &[&str], stop: &AtomicBool, answers: &AtomicUsize) -> io::Result<Vec<String>> {
        let mut failures = Vec::new();
        loop {
            let goes_on = !self.is_leaving && !stop.load(Ordering::Relaxed);
            while goes_on && self.open.len() < AT_ONCE {
                self.ask(paths[self.next as usize / 2 % paths.len()])?;
            }
            if self.open.is_empty() {
                return Ok(failures);
            }
            self.read()?;
            for status in self.take_frames()? {
                match status {
                    200 => _ = answers.fetch_add(1, Ordering::Relaxed),
                    other => failures.push(format!("answered with {other}")),
                }
            }
        }
    }

    fn ask(&mut self, path: &str) -> io::Result<()> {
        let mut fields = Fields::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "x"),
            (":path", path),
        ] {
            fields.append(name, value);
        }
        let (mut block, mut out) = (Vec::new(), Vec::new());
        encode::fields(&mut block, &fields);
        write_small(
            &mut out,
            FrameType::Headers,
            END_HEADERS | END_STREAM,
            self.next,
            &block,
        );
        self.open.insert(self.next, 0);
        self.next += 2;
        self.stream.write_all(&out)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        let read = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match read {
            0 => Err(io::Error::other(format!(
                "closed with {} streams open",
                self.open.len()
            ))),
            length => {
                self.input.extend_from_slice(&piece[..length]);
                Ok(())
            }
        }
    }

    /// The status of every stream that came to its end.
    fn take_frames(&mut self) -> io::Result<Vec<u16>> {
        let (mut ended, mut out) = (Vec::new(), Vec::new());
        while let Some(head) = FrameHead::parse(&self.input)
            && self.input.len() >= HEAD_LENGTH + head.length as usize
        {
            let payload: Vec<u8> = self.input.drain(..HEAD_LENGTH + head.length as usize).collect();
            self.take(head, &payload[HEAD_LENGTH..], &mut out)?;
            let is_part = matches!(head.kind, FrameType::Headers | FrameType::Data);
            if is_part && head.flags & END_STREAM != 0 {
                ended.extend(self.open.remove(&head.stream));
            }
        }
        self.stream.write_all(&out)?;
        Ok(ended)
    }

    fn take(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match head.kind {
            FrameType::Headers => {
                let mut status = 0;
                let decoded = self.decoder.decode(payload, |name, value| {
                    if name == b":status" {
                        status = str::from_utf8(value)
                            .ok()
                            .and_then(|text| text.parse().ok())
                            .unwrap_or(0);
                    }
                });
                decoded.map_err(|error| io::Error::other(format!("{error:?}")))?;
                self.open.insert(head.stream, status);
            }
            FrameType::Data if head.length > 0 => write_window_update(out, 0, head.length),
            FrameType::Settings if head.flags & ACK == 0 => write_settings_ack(out),
            FrameType::Ping if head.flags & ACK == 0 => {
                write_ping(out, payload.try_into().map_err(io::Error::other)?, true);
            }
            FrameType::GoAway => {
                self.is_leaving = true;
                let last = u32::from_be_bytes(payload[..4].try_into().map_err(io::Error::other)?);
                if let Some(lost) = self.open.keys().find(|&&stream| stream > last) {
                    return Err(io::Error::other(format!("stream {lost} was refused by the farewell")));
                }
            }
            FrameType::ResetStream => return Err(io::Error::other(format!("stream {} was reset", head.stream))),
            _ => {}
        }
        Ok(())
    }
}
