//! The access log: one line for each request, written by a thread of its own.
//!
//! A request never waits for the log. Lines go into a bounded buffer; those that do not fit are counted and reported
//! later.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use haulier_http::{BackendTrace, Compressed, Peer, Reason, Request, Trace};
use haulier_proto::field::Known;
use haulier_proto::text::{is_unseen, printable};

use crate::clock::unix_time;
use crate::local_time::TimeOfDay;
use crate::password;

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, status, method, path, handler, duration, size.
    Text { color: bool },
    /// For programs: one object a line.
    Json,
    /// Apache's combined format. Its size is that of the body.
    Combined,
}

/// The requests to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedRequests {
    All,
    /// Status 400 and above.
    Errors,
}

/// A handle on the log; clones write to the same target.
#[derive(Debug, Clone)]
pub struct AccessLog {
    sink: Option<Arc<Sink>>,
    format: LogFormat,
    which: LoggedRequests,
}

#[derive(Debug, Default)]
struct Sink {
    state: Mutex<LogBuffer>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogBuffer {
    lines: Vec<u8>,
    dropped: u64,
    /// The thread is writing.
    writing: bool,
}

/// Small, because a writer only calls `write`, and every site may have one.
const WRITER_STACK: usize = 128 * 1024;

/// Most bytes waiting to be written.
const MOST_WAITING: usize = 1024 * 1024;

/// Lost lines of all logs.
#[derive(Debug)]
pub(crate) struct LostLines {
    /// The reader was too slow.
    pub(crate) slow: AtomicU64,
    /// The target could not be written to.
    pub(crate) failed: AtomicU64,
}

/// A static, because logs outlive configurations.
pub(crate) static LOST: LostLines = LostLines {
    slow: AtomicU64::new(0),
    failed: AtomicU64::new(0),
};

/// Writes whole lines. If a full disk takes a part of a line, its rest is written first once there is room, so that
/// lines are never joined.
struct LineWriter {
    writer: Box<dyn Write + Send>,
    /// The rest of a line that was cut.
    rest: Vec<u8>,
    /// Lines lost since the last successful write.
    lost: u64,
}

impl LineWriter {
    fn new(writer: Box<dyn Write + Send>) -> Self {
        Self {
            writer,
            rest: Vec::new(),
            lost: 0,
        }
    }

    /// Writes lines, or counts them as lost. A failing log must not stop the server.
    fn write(&mut self, lines: &[u8]) {
        let rest = std::mem::take(&mut self.rest);
        let written = write_some(&mut *self.writer, &rest);
        if written < rest.len() {
            self.rest = rest[written..].to_vec();
            return self.lose(lines);
        }
        let written = write_some(&mut *self.writer, lines);
        let (whole, missing) = lines.split_at(written);
        let is_cut = whole.last().is_some_and(|&last| last != b'\n');
        let end = missing
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(missing.len(), |at| at + 1);
        let (rest, missing) = missing.split_at(if is_cut { end } else { 0 });
        self.rest = rest.to_vec();
        if missing.is_empty() {
            self.say_what_is_lost();
        }
        self.lose(missing);
        let _ = self.writer.flush(); // a file has nothing to flush, a pipe that is closed no reader
    }

    fn lose(&mut self, lines: &[u8]) {
        let lost = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        LOST.failed.fetch_add(lost, Ordering::Relaxed);
        self.lost += lost;
    }

    /// Reports lost lines once there is room again.
    fn say_what_is_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            tracing::warn!(
                lost,
                "access log lines were lost because their file could not be written to"
            );
        }
    }
}

/// Writes as much as possible and returns the number of bytes.
fn write_some(writer: &mut dyn Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match writer.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

impl Sink {
    fn lock(&self) -> MutexGuard<'_, LogBuffer> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Main loop of the writing thread.
    fn write_all(&self, writer: Box<dyn Write + Send>) {
        let mut writer = LineWriter::new(writer);
        let mut state = self.lock();
        loop {
            if state.lines.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let lines = std::mem::take(&mut state.lines);
            let dropped = std::mem::take(&mut state.dropped);
            state.writing = true;
            drop(state);
            writer.write(&lines);
            if dropped > 0 {
                tracing::warn!(dropped, "access log lines were dropped because the reader is too slow");
            }
            state = self.lock();
            state.writing = false;
            self.changed.notify_all();
        }
    }
}

impl AccessLog {
    /// A log that writes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            sink: None,
            format: LogFormat::Json,
            which: LoggedRequests::All,
        }
    }

    /// A log with its own writing thread.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn new(format: LogFormat, which: LoggedRequests, writer: Box<dyn Write + Send>) -> io::Result<Self> {
        let sink = Arc::new(Sink::default());
        let written = Arc::clone(&sink);
        std::thread::Builder::new()
            .name("access-log".into())
            .stack_size(WRITER_STACK)
            .spawn(move || written.write_all(writer))?;
        Ok(Self {
            sink: Some(sink),
            format,
            which,
        })
    }

    /// Another handle on the same target, with its own format and selection.
    #[must_use]
    pub fn with(&self, format: LogFormat, which: LoggedRequests) -> Self {
        Self {
            sink: self.sink.clone(),
            format,
            which,
        }
    }

    /// True if both write to the same target.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        match (&self.sink, &other.sink) {
            (Some(sink), Some(other)) => Arc::ptr_eq(sink, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// True if a response with this status is logged.
    #[must_use]
    pub(crate) fn wants(&self, status: u16) -> bool {
        self.sink.is_some() && (self.which == LoggedRequests::All || status >= 400)
    }

    pub(crate) fn write(&self, record: &LogRecord<'_>) {
        let Some(sink) = &self.sink else { return };
        let mut line = String::with_capacity(256);
        match self.format {
            LogFormat::Text { color } => record.write_text(&mut line, color),
            LogFormat::Json => record.write_json(&mut line),
            LogFormat::Combined => record.write_combined(&mut line),
        }
        line.push('\n');
        let mut state = sink.lock();
        if state.lines.len() + line.len() > MOST_WAITING {
            state.dropped += 1;
            LOST.slow.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line.as_bytes());
        drop(state);
        if was_empty {
            sink.changed.notify_all();
        }
    }

    /// Waits until all lines are written, at most for `timeout`.
    pub(crate) fn flush(&self, patience: Duration) {
        let Some(sink) = &self.sink else { return };
        let state = sink.lock();
        let busy = |state: &mut LogBuffer| state.writing || !state.lines.is_empty();
        let _ = sink.changed.wait_timeout_while(state, patience, busy);
    }
}

/// A finished exchange, as a line describes it.
#[derive(Debug)]
pub(crate) struct LogRecord<'a> {
    /// `None` for malformed bytes.
    pub(crate) request: Option<&'a Request>,
    pub(crate) site: Option<&'a str>,
    pub(crate) peer: Peer,
    pub(crate) status: u16,
    pub(crate) trace: &'a Trace,
    /// Bytes sent, head included.
    pub(crate) sent: u64,
    /// Bytes of the body sent.
    pub(crate) body_sent: u64,
    /// The reason of a failure.
    pub(crate) reason: Option<Reason>,
    /// From the end of the request head to the last byte given to the kernel.
    pub(crate) took: Option<Duration>,
    /// From the release of the worker to that byte, for a body that was handed off.
    pub(crate) saved: Option<Duration>,
}

impl LogRecord<'_> {
    fn method(&self) -> String {
        self.request
            .map_or_else(|| "-".into(), |request| lossy(request.head.method_name()))
    }

    fn target(&self) -> String {
        self.request
            .map_or_else(|| "-".into(), |request| lossy(request.head.target()))
    }

    /// The user name sent by the client, if the site asks for a password.
    fn user(&self) -> Option<String> {
        let request = self.request.filter(|request| request.asks_password.get())?;
        password::user(request.head.fields()).filter(|user| !user.is_empty())
    }

    fn write_text(&self, out: &mut String, color: bool) {
        let (on, off) = match (color, self.status) {
            (false, _) => ("", ""),
            (true, 200..=299) => ("\x1b[32m", "\x1b[0m"),
            (true, 300..=399) => ("\x1b[36m", "\x1b[0m"),
            (true, 400..=499) => ("\x1b[33m", "\x1b[0m"),
            (true, _) => ("\x1b[31m", "\x1b[0m"),
        };
        let _ = write!(
            out,
            "{}  {on}{}{off}  {:<4} {:<32} {:<8} {:>8}  {:>9}",
            TimeOfDay::at(SystemTime::now()),
            self.status,
            printable(&self.method()),
            printable(&self.target()),
            self.trace.handler.as_str(),
            duration_text(self.took.unwrap_or_default()),
            size_text(self.sent),
        );
        if let Some(php) = &self.trace.backend {
            let busy = Duration::from_micros(php.busy.load(Ordering::Relaxed));
            let _ = write!(out, "   php busy {}", duration_text(busy));
            if php.queued >= Duration::from_millis(1) {
                let _ = write!(out, ", waited {}", duration_text(php.queued));
            }
            if let Some(client) = self.saved {
                let _ = write!(out, ", client {}", duration_text(client));
            }
        }
        if let Some(compressed) = &self.trace.compressed {
            let _ = write!(out, "   enc {}", compressed.label());
        }
        if let Some(reason) = self.reason {
            let _ = write!(out, "   {reason}");
        }
        if let Some(detail) = &self.trace.detail {
            let _ = write!(out, ": {}", printable(detail));
        }
        if let Some(message) = self.trace.backend.as_ref().and_then(|php| php.message.as_ref()) {
            let _ = write!(out, "   {}", printable(message));
        }
    }

    fn write_json(&self, out: &mut String) {
        let now = unix_time();
        let _ = write!(
            out,
            "{{\"ts\":{}.{:03},\"level\":\"info\",\"msg\":\"request\"",
            now.as_secs(),
            now.subsec_millis()
        );
        if let Some(site) = self.site {
            json_field(out, "site", site);
        }
        let _ = write!(out, ",\"ip\":\"{}\"", self.peer.remote.ip());
        if let Some(proxy) = self.peer.proxy {
            let _ = write!(out, ",\"proxy\":\"{proxy}\"");
        }
        if self.peer.tls {
            out.push_str(",\"scheme\":\"https\"");
        }
        if let Some(request) = self.request {
            self.write_request(out, request);
        }
        let _ = write!(
            out,
            ",\"status\":{},\"handler\":\"{}\"",
            self.status,
            self.trace.handler.as_str()
        );
        let _ = write!(out, ",\"bytes_out\":{}", self.sent);
        if let Some(via) = self.trace.handoff {
            let _ = write!(out, ",\"via\":\"{}\"", via.as_str());
        }
        if let Some(took) = self.took {
            let _ = write!(out, ",\"dur_ms\":{:.3}", milliseconds(took));
        }
        if let Some(php) = &self.trace.backend {
            self.write_php(out, php);
        }
        if let Some(compressed) = &self.trace.compressed {
            write_coding(out, compressed);
        }
        if let Some(reason) = self.reason {
            json_field(out, "reason", reason.word());
        }
        if let Some(detail) = &self.trace.detail {
            json_field(out, "detail", detail);
        }
        out.push('}');
    }

    /// `ip - user [time] "GET / HTTP/1.1" 200 bytes "referer" "user agent"`, with `-` for unknown values.
    fn write_combined(&self, out: &mut String) {
        let date = haulier_proto::date::format(unix_time().as_secs());
        // `Sun, 06 Nov 1994 08:49:37 GMT`
        let part = |range: std::ops::Range<usize>| std::str::from_utf8(&date[range]).unwrap_or_default();
        let _ = write!(
            out,
            "{} - {} [{}/{}/{}:{} +0000] \"",
            self.peer.remote.ip(),
            self.user().as_deref().map_or_else(|| "-".to_owned(), combined_word),
            part(5..7),
            part(8..11),
            part(12..16),
            part(17..25),
        );
        let field = |known| self.request.and_then(|request| request.head.fields().known(known));
        match self.request.map(|request| &request.head) {
            Some(head) => {
                combined_text(out, head.method_name());
                out.push(' ');
                combined_text(out, head.target());
                let _ = write!(out, " {}", head.version().as_str());
            }
            None => out.push('-'),
        }
        let _ = write!(out, "\" {} {}", self.status, self.body_sent);
        for known in [Known::Referer, Known::UserAgent] {
            out.push_str(" \"");
            combined_text(out, field(known).unwrap_or(b"-"));
            out.push('"');
        }
    }

    fn write_php(&self, out: &mut String, php: &BackendTrace) {
        let busy = Duration::from_micros(php.busy.load(Ordering::Relaxed));
        let _ = write!(
            out,
            ",\"php_ms\":{:.3},\"queue_ms\":{:.3}",
            milliseconds(busy),
            milliseconds(php.queued)
        );
        if let Some(client) = self.saved {
            let _ = write!(out, ",\"client_ms\":{:.3}", milliseconds(client));
        }
        if let Some(pool) = &php.pool {
            json_field(out, "pool", pool);
        }
        if let Some(pid) = php.pid {
            let _ = write!(out, ",\"php_pid\":{pid}");
        }
        if let Some(message) = &php.message {
            json_field(out, "php_message", message);
        }
    }

    fn write_request(&self, out: &mut String, request: &Request) {
        let head = &request.head;
        let _ = write!(out, ",\"req_id\":\"{}\"", request.id);
        if let Some(user) = self.user() {
            json_field(out, "user", &user);
        }
        json_field(out, "method", &lossy(head.method_name()));
        json_field(out, "host", &lossy(head.authority().unwrap_or_default()));
        json_field(out, "path", &lossy(head.path()));
        if let Some(query) = head.query() {
            json_field(out, "query", &lossy(query));
        }
        json_field(out, "http", head.version().as_str().trim_start_matches("HTTP/"));
        for (name, known) in [("ua", Known::UserAgent), ("referer", Known::Referer)] {
            if let Some(value) = head.fields().known(known) {
                json_field(out, name, &lossy(value));
            }
        }
        if let Some(length) = request.body_length.filter(|&length| length > 0) {
            let _ = write!(out, ",\"bytes_in\":{length}");
        }
    }
}

fn write_coding(out: &mut String, compressed: &Compressed) {
    let _ = write!(
        out,
        ",\"enc\":\"{}\",\"enc_in\":{},\"enc_out\":{},\"enc_ms\":{:.3}",
        compressed.label(),
        compressed.taken.load(Ordering::Relaxed),
        compressed.made.load(Ordering::Relaxed),
        milliseconds(Duration::from_nanos(compressed.nanoseconds.load(Ordering::Relaxed)))
    );
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn duration_text(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

fn size_text(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes < 1000.0 => format!("{bytes} B"),
        bytes if bytes < 1e6 => format!("{:.1} KB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.1} MB", bytes / 1e6),
        bytes => format!("{:.2} GB", bytes / 1e9),
    }
}

/// Text as one word of a line.
fn combined_word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    combined_text(&mut word, text.as_bytes());
    word.replace(' ', "\\x20")
}

/// Text between quotes in Apache's form: quotes, backslashes and all but printable ASCII are escaped.
fn combined_text(out: &mut String, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

fn json_field(out: &mut String, name: &str, value: &str) {
    let _ = write!(out, ",\"{name}\":\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if is_unseen(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_escaped() {
        let mut out = String::new();
        json_field(&mut out, "path", "/a\"b\\c\n\u{7f}é\u{202e}\u{e0041}");
        assert_eq!(out, ",\"path\":\"/a\\\"b\\\\c\\u000a\\u007fé\\u202e\\udb40\\udc41\"");
    }

    #[test]
    fn a_combined_line_cannot_be_forged() {
        let mut out = String::new();
        combined_text(&mut out, b"a \"b\" \\ \n\xc3\xa9");
        assert_eq!(out, "a \\\"b\\\" \\\\ \\x0a\\xc3\\xa9");
        assert_eq!(combined_word("a [x] \"b\n"), "a\\x20[x]\\x20\\\"b\\x0a");
    }

    /// A disk with so much room.
    #[derive(Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().expect("one writer");
            let count = bytes.len().min(disk.1);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..count]);
            disk.1 -= count;
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_whole_lines_and_joins_none() {
        let disk = Disk::default();
        let place = Arc::clone(&disk.0);
        let give = |room| place.lock().expect("one writer").1 = room;
        let mut writer = LineWriter::new(Box::new(disk));
        give(8);
        writer.write(b"first\nsecond\nthird\nfourth\n");
        assert_eq!((writer.lost, &writer.rest[..]), (2, &b"cond\n"[..]));
        give(2);
        writer.write(b"fifth\n");
        assert_eq!((writer.lost, &writer.rest[..]), (3, &b"nd\n"[..]));
        writer.write(b"sixth\n");
        assert_eq!(writer.lost, 4);
        give(10);
        writer.write(b"seventh\n");
        assert_eq!((writer.lost, &writer.rest[..]), (0, &b"\n"[..]));
        give(1000);
        writer.write(b"eighth\n");
        assert_eq!(place.lock().expect("one writer").0, b"first\nsecond\nseventh\neighth\n");
        assert_eq!((writer.lost, writer.rest.len()), (0, 0));
    }

    #[test]
    fn sizes_and_durations_read_well() {
        assert_eq!(size_text(999), "999 B");
        assert_eq!(size_text(12_100), "12.1 KB");
        assert_eq!(size_text(8_200_000), "8.2 MB");
        assert_eq!(duration_text(Duration::from_micros(310)), "0.3 ms");
        assert_eq!(duration_text(Duration::from_millis(38)), "38 ms");
        assert_eq!(duration_text(Duration::from_millis(1900)), "1.9 s");
    }

    #[test]
    fn a_stalled_reader_costs_lines_but_no_time() {
        struct Stalled(std::sync::mpsc::Receiver<()>);
        impl Write for Stalled {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (release, stalled) = std::sync::mpsc::channel();
        let log = AccessLog::new(LogFormat::Json, LoggedRequests::All, Box::new(Stalled(stalled))).expect("a thread");
        let peer = Peer {
            remote: std::net::SocketAddr::from(([127, 0, 0, 1], 1)),
            local: std::net::SocketAddr::from(([127, 0, 0, 1], 2)),
            tls: false,
            misses_tls: false,
            proxy: None,
        };
        let trace = Trace::of(haulier_http::Handler::Error);
        let record = LogRecord {
            request: None,
            site: None,
            peer,
            status: 400,
            trace: &trace,
            sent: 1,
            body_sent: 0,
            reason: None,
            took: None,
            saved: None,
        };
        for _ in 0..50_000 {
            log.write(&record);
        }
        let sink = log.sink.as_ref().expect("not off");
        assert!(sink.lock().dropped > 0);
        assert!(sink.lock().lines.len() <= MOST_WAITING);
        drop(release);
    }
}
