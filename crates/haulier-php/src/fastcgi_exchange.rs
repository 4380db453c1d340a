//! One request and its response on a connection.
//!
//! Sending and receiving run concurrently: a script may answer before it has read its input, and two ends that both
//! wait with full buffers would deadlock. STDIN ends only after CONTENT_LENGTH bytes, or not at all.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, ready};

use haulier_http::{Piece, ReadInto};
use haulier_proto::copy;
use haulier_proto::fastcgi::record::{END_PARAMS, END_STDIN, HEADER_LEN, MAX_CONTENT, begin_request};
use haulier_proto::fastcgi::{CgiHead, EndRequest, FilePart, HeadParser, Header, Record, RecordReader, RecordType};

use crate::connection::Connection;
use crate::error::{AttemptError, BadResponse};
use crate::handed_files::{ArrivedBody, HandedFiles, read_only};
use crate::marker::{Announcement, MarkerFinder, early_hints};
use crate::request::{Body, Request};

/// Most STDERR output kept per request, bytes.
const STDERR_LIMIT: usize = 64 * 1024;
/// Most interim heads kept until the caller takes them.
const MOST_HINTS: usize = 16;
/// Content of a STDIN record read from a file; with its header it is half of what one read of PHP takes.
const FILE_PIECE: usize = 32 * 1024;

/// Least content of a record that is worth system calls of its own, bytes. PHP writes the output of fpassthru and
/// readfile in records of 65,528.
const LONG_CONTENT: u16 = 32 * 1024;

/// Bytes of the unit in which our own workers tell their memory in the other bits.
const MEMORY_UNIT: u64 = 1024;
/// Bit of the application status by which a worker of our own says that it takes no further request (embed/request.c).
const WORKER_ENDS: u32 = 1 << 31;

/// Bytes of the first read if the last response on the connection was long: content read together with the head has to
/// be copied.
const SHORT_READ: usize = 8 * 1024;

/// The state of one request.
#[derive(Debug)]
pub(crate) struct FastCgiExchange {
    keep_conn: bool,
    unsent: Option<Unsent>,
    records: RecordReader,
    parser: HeadParser,
    /// Blocks of the head that the caller has not taken yet.
    heads: Vec<CgiHead>,
    head_complete: bool,
    /// Bytes of a response arrived, so the request cannot be repeated.
    answered: bool,
    body: ArrivedBody,
    /// Descriptors from a worker of our own; `None` if the other end is another program.
    files: Option<HandedFiles>,
    stderr: Vec<u8>,
    /// Finds announcements of the script; `None` if PHP has its own `fastcgi_finish_request()`.
    marker: Option<MarkerFinder>,
    /// The script has announced that its response is complete: its further output is dropped.
    finished: bool,
    end: Option<EndRequest>,
    /// The other end no longer reads.
    broken: bool,
    /// Bytes arrived after END_REQUEST.
    surplus: bool,
    /// Content went to its destination without a copy here.
    was_placed: bool,
    /// The worker is one of our own, whose FCGI_END_REQUEST tells more.
    of_own_worker: bool,
}

/// The unsent rest of a request.
#[derive(Debug)]
struct Unsent {
    /// Complete records.
    bytes: Vec<u8>,
    sent: usize,
    file: Option<FileRest>,
}

/// The rest of a body file that is not in records yet.
#[derive(Debug)]
struct FileRest {
    file: File,
    offset: u64,
    end: u64,
}

impl FastCgiExchange {
    /// An exchange whose response head may have `head_limit` bytes. With `keep_conn`, the connection stays open after
    /// it.
    pub(crate) fn new(head_limit: usize, keep_conn: bool) -> Self {
        Self {
            keep_conn,
            unsent: None,
            records: RecordReader::new(),
            parser: HeadParser::new(head_limit),
            heads: Vec::new(),
            head_complete: false,
            answered: false,
            body: ArrivedBody::default(),
            files: None,
            stderr: Vec::new(),
            marker: None,
            finished: false,
            end: None,
            broken: false,
            surplus: false,
            was_placed: false,
            of_own_worker: false,
        }
    }

    /// Accepts an announcement of the script that its response is complete.
    pub(crate) fn may_finish(self) -> Self {
        Self {
            marker: Some(MarkerFinder::default()),
            ..self
        }
    }

    /// Reads the application status as our own workers set it, and exchanges files as descriptors with them.
    pub(crate) fn of_own_worker(self) -> Self {
        Self {
            of_own_worker: true,
            records: self.records.with_files(),
            files: Some(HandedFiles::default()),
            ..self
        }
    }

    /// Splits off the running script after it has announced that its response is complete; the response stays in
    /// `self`.
    pub(crate) fn split_off(&mut self) -> Self {
        let mut answer = Self::new(0, false);
        answer.body = std::mem::take(&mut self.body);
        answer.stderr = std::mem::take(&mut self.stderr);
        std::mem::replace(self, answer)
    }

    /// Sends as much of the request as fits, in one system call. [`has_unsent`](Self::has_unsent) tells if some is
    /// left.
    ///
    /// # Errors
    /// `Unsent` if PHP took nothing of the request, or `RequestBody`.
    pub(crate) fn start(&mut self, connection: &Connection, request: &Request<'_>) -> Result<(), AttemptError> {
        match request.body {
            Body::Empty | Body::Bytes([]) => {
                self.start_with(connection, &[&self.begin(), request.params, &END_PARAMS, &END_STDIN])
            }
            Body::Bytes(body) if body.len() <= MAX_CONTENT => {
                let header = Header::new(RecordType::Stdin, body.len() as u16).encode();
                self.start_with(
                    connection,
                    &[&self.begin(), request.params, &END_PARAMS, &header, body, &END_STDIN],
                )
            }
            Body::Bytes(body) => {
                let mut bytes = beginning(
                    self.begin(),
                    request.params,
                    body.len() + 2 * HEADER_LEN * (body.len() / MAX_CONTENT + 2),
                );
                for piece in body.chunks(MAX_CONTENT) {
                    bytes.extend(Header::new(RecordType::Stdin, piece.len() as u16).encode());
                    bytes.extend_from_slice(piece);
                }
                bytes.extend(END_STDIN);
                self.start_with(connection, &[&bytes])
            }
            Body::File { file, length } if self.start_with_file(connection, request.params, file, length)? => Ok(()),
            Body::File { file, length } => {
                let file = file.try_clone().map_err(AttemptError::RequestBody)?;
                let mut unsent = Unsent {
                    bytes: beginning(self.begin(), request.params, HEADER_LEN + FILE_PIECE),
                    sent: 0,
                    file: Some(FileRest {
                        file,
                        offset: 0,
                        end: length,
                    }),
                };
                unsent.fill().map_err(AttemptError::RequestBody)?;
                unsent.sent = connection
                    .send_now(&[IoSlice::new(&unsent.bytes)], None)
                    .map_err(AttemptError::Unsent)?;
                self.unsent = Some(unsent);
                Ok(())
            }
        }
    }

    /// Sends a request with the descriptor of its body, if the worker is one of ours; false if the body is to be sent.
    fn start_with_file(
        &mut self,
        connection: &Connection,
        params: &[u8],
        file: &File,
        length: u64,
    ) -> Result<bool, AttemptError> {
        let Some(descriptor) = self.files.as_ref().and_then(|_| read_only(file)) else {
            return Ok(false);
        };
        let part = FilePart { start: 0, length }.encode();
        let parts = [&self.begin()[..], params, &END_PARAMS, &part, &END_STDIN];
        let sent = connection
            .send_now(&parts.map(IoSlice::new), Some(descriptor.as_fd()))
            .map_err(AttemptError::Unsent)?;
        // The descriptor has gone with the first byte.
        self.keep_unsent(&parts, sent);
        Ok(sent > 0)
    }

    fn start_with(&mut self, connection: &Connection, parts: &[&[u8]]) -> Result<(), AttemptError> {
        let mut slices = [IoSlice::new(&[]); 6];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let sent = connection
            .send_now(&slices[..parts.len()], None)
            .map_err(AttemptError::Unsent)?;
        self.keep_unsent(parts, sent);
        Ok(())
    }

    fn keep_unsent(&mut self, parts: &[&[u8]], sent: usize) {
        if sent < parts.iter().map(|part| part.len()).sum() {
            self.unsent = Some(Unsent {
                bytes: parts.concat(),
                sent,
                file: None,
            });
        }
    }

    /// True while a part of the request is unsent. The connection's writability must be watched then.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Sends or receives as soon as either is possible. Not to be called after the end or an error.
    ///
    /// With `place`, body content goes there, following what [`take_body`](Self::take_body) returns. Returns the number
    /// of bytes placed.
    pub(crate) fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        place: Option<ReadInto<'_>>,
    ) -> Poll<Result<usize, AttemptError>> {
        let sent = self.poll_send(cx, connection)?;
        let received = match place {
            Some(ReadInto::Memory(memory)) => self.poll_receive_into(cx, connection, memory),
            Some(ReadInto::Pipe { end, most }) if self.is_in_long_body() && connection.can_splice() => {
                self.poll_splice(cx, connection, end, most)
            }
            Some(ReadInto::Pipe { .. }) | None => {
                let is_long = !self.head_complete && connection.answers_long.get();
                self.poll_receive(cx, connection, if is_long { SHORT_READ } else { usize::MAX })
            }
        };
        match received {
            Poll::Pending if sent => Poll::Ready(Ok(0)),
            received => received,
        }
    }

    /// True if the rest of the body probably comes in records that are worth system calls of their own.
    pub(crate) fn is_in_long_body(&self) -> bool {
        self.head_complete && !self.finished && self.end.is_none() && self.records.stdout_length() >= LONG_CONTENT
    }

    /// Announced body content that has not arrived yet, bytes.
    pub(crate) fn content_left(&self) -> usize {
        self.records.stdout_left()
    }

    fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        pipe: BorrowedFd<'_>,
        most: usize,
    ) -> Poll<Result<usize, AttemptError>> {
        let left = self.records.stdout_left();
        if left == 0 {
            return self.poll_receive(cx, connection, self.next_header());
        }
        match ready!(connection.poll_splice(cx, pipe, left.min(most))) {
            Ok(Some(length)) => Poll::Ready(self.placed(length)),
            // The pipe is full.
            Ok(None) => self.poll_receive(cx, connection, left),
            Err(error) => Poll::Ready(Err(AttemptError::HungUp(Some(error)))),
        }
    }

    fn poll_receive_into(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        memory: &mut Vec<u8>,
    ) -> Poll<Result<usize, AttemptError>> {
        let left = self.records.stdout_left();
        if left > 0 && self.is_in_long_body() {
            return Poll::Ready(match ready!(connection.poll_read(cx, memory, left)) {
                Ok(length) => self.placed(length),
                Err(error) => Err(AttemptError::HungUp(Some(error))),
            });
        }
        let most = if self.is_in_long_body() {
            self.next_header()
        } else {
            usize::MAX
        };
        let before = memory.len();
        // Short content is copied once instead of twice.
        std::mem::swap(&mut self.body.bytes, memory);
        let received = self.poll_receive(cx, connection, most);
        std::mem::swap(&mut self.body.bytes, memory);
        received.map_ok(|_| memory.len() - before)
    }

    /// Bytes up to the end of the next header, which decides where the content goes.
    fn next_header(&self) -> usize {
        self.records.before_content().unwrap_or(usize::MAX)
    }

    /// Notes content that bypassed the record reader; a length of 0 is the end of the stream.
    fn placed(&mut self, length: usize) -> Result<usize, AttemptError> {
        if length == 0 {
            return Err(AttemptError::HungUp(None));
        }
        self.records.skip_stdout(length);
        self.was_placed = true;
        Ok(length)
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        most: usize,
    ) -> Poll<Result<usize, AttemptError>> {
        let takes_files = self.files.is_some();
        let received = ready!(connection.poll_receive(cx, most, takes_files, |bytes, descriptor| {
            self.take_descriptor(descriptor)?;
            self.consume(bytes)
        }));
        if self.end.is_some() {
            connection.answers_long.set(self.was_placed);
        }
        Poll::Ready(match received {
            Ok(taken) => taken.map(|()| 0),
            Err(error) => Err(AttemptError::HungUp(Some(error))),
        })
    }

    /// Sends until the socket is full; true if any bytes were sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Result<bool, AttemptError> {
        let mut progress = false;
        while let Some(unsent) = &mut self.unsent {
            if unsent.sent == unsent.bytes.len() && !unsent.fill().map_err(AttemptError::RequestBody)? {
                self.unsent = None;
                break;
            }
            match connection.poll_send(cx, &unsent.bytes[unsent.sent..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(sent)) => {
                    unsent.sent += sent;
                    progress = true;
                }
                // A script that ended without reading its input has left its response in the socket: keep reading.
                Poll::Ready(Err(_)) => {
                    self.unsent = None;
                    self.broken = true;
                }
            }
        }
        Ok(progress)
    }

    /// Processes the bytes of one read.
    fn consume(&mut self, mut bytes: &[u8]) -> Result<(), AttemptError> {
        if bytes.is_empty() {
            return Err(AttemptError::HungUp(None));
        }
        self.answered = true;
        while let Some(record) = self
            .records
            .next(&mut bytes)
            .map_err(|error| AttemptError::BadResponse(error.into()))?
        {
            if self.end.is_some() {
                self.surplus = true;
                return Ok(());
            }
            match record {
                Record::Stdout(content) => self.take_stdout(content, bytes.len())?,
                Record::Stderr(content) => self.take_stderr_content(content),
                Record::File(part) => self.take_file(part)?,
                Record::End(end) => self.take_end(end)?,
            }
        }
        self.surplus = self.end.is_some() && !self.records.is_between_records();
        Ok(())
    }

    fn take_stdout(&mut self, mut content: &[u8], more: usize) -> Result<(), AttemptError> {
        while !self.head_complete && !content.is_empty() {
            if let Some(head) = self
                .parser
                .feed(&mut content)
                .map_err(|error| AttemptError::BadResponse(error.into()))?
            {
                self.head_complete = !head.is_interim();
                self.heads.push(head);
            }
        }
        if self.finished {
            return Ok(());
        }
        let body = self.body.end();
        if body.capacity() == 0 && !content.is_empty() {
            // The rest of this read is mostly body.
            body.reserve(content.len() + more);
        }
        copy::append(body, content);
        Ok(())
    }

    fn take_descriptor(&mut self, descriptor: Option<OwnedFd>) -> Result<(), AttemptError> {
        match &mut self.files {
            Some(files) => files.push(descriptor).map_err(AttemptError::BadResponse),
            None => Ok(()),
        }
    }

    fn take_file(&mut self, part: FilePart) -> Result<(), AttemptError> {
        let files = self.files.as_mut().filter(|_| self.head_complete);
        let slice = files.ok_or(BadResponse::NoHead).and_then(|files| files.open(part));
        let slice = slice.map_err(AttemptError::BadResponse)?;
        if !self.finished {
            self.body.push_file(slice);
        }
        Ok(())
    }

    fn take_stderr_content(&mut self, content: &[u8]) {
        let (stderr, heads) = (&mut self.stderr, &mut self.heads);
        let mut keep = |content: &[u8]| {
            let room = STDERR_LIMIT - stderr.len();
            stderr.extend_from_slice(&content[..content.len().min(room)]);
        };
        let Some(marker) = &mut self.marker else {
            return keep(content);
        };
        marker.feed(content, keep, |announcement| match announcement {
            Announcement::Finished => self.finished = true,
            Announcement::EarlyHints(lines) if !self.head_complete && heads.len() < MOST_HINTS => {
                heads.extend(early_hints(&lines));
            }
            Announcement::EarlyHints(_) => {}
        });
    }

    fn take_end(&mut self, end: EndRequest) -> Result<(), AttemptError> {
        self.end = Some(end);
        match end.protocol_status {
            0 if self.head_complete => Ok(()),
            0 => Err(AttemptError::BadResponse(BadResponse::NoHead)),
            status => Err(AttemptError::BadResponse(BadResponse::Refused(status))),
        }
    }

    /// The blocks of the head that arrived since the last call.
    pub(crate) fn take_heads(&mut self) -> Vec<CgiHead> {
        std::mem::take(&mut self.heads)
    }

    /// The next piece of the body that has arrived.
    pub(crate) fn take_body(&mut self) -> Option<Piece> {
        self.body.take()
    }

    /// STDERR of the script since the last call, at most 64 KiB.
    pub(crate) fn take_stderr(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stderr)
    }

    /// True if any byte of a response arrived.
    pub(crate) fn answered(&self) -> bool {
        self.answered
    }

    /// True once the response is complete and its script continues.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished && self.head_complete && self.end.is_none()
    }

    /// True after END_REQUEST.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// True if the connection can carry the next request.
    pub(crate) fn is_reusable(&self) -> bool {
        let stays = |end: EndRequest| !self.of_own_worker || end.app_status & WORKER_ENDS == 0;
        self.keep_conn && self.end.is_some_and(stays) && self.unsent.is_none() && !self.broken && !self.surplus
    }

    /// Memory that the booted script of our own worker keeps after this request, bytes.
    pub(crate) fn kept_memory(&self) -> Option<u64> {
        let status = self.end.filter(|_| self.of_own_worker)?.app_status & !WORKER_ENDS;
        (status != 0).then(|| u64::from(status) * MEMORY_UNIT)
    }

    fn begin(&self) -> [u8; 16] {
        begin_request(self.keep_conn)
    }
}

/// The records in front of STDIN, with room for `more` bytes.
fn beginning(begin: [u8; 16], params: &[u8], more: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(begin.len() + params.len() + HEADER_LEN + more);
    bytes.extend(begin);
    bytes.extend_from_slice(params);
    bytes.extend(END_PARAMS);
    bytes
}

impl Unsent {
    /// Puts the next piece of the file into a record, and the end of STDIN after the last; false if nothing is left.
    ///
    /// # Errors
    /// The file cannot be read or is shorter than announced.
    fn fill(&mut self) -> io::Result<bool> {
        let Some(rest) = &mut self.file else { return Ok(false) };
        if self.sent > 0 {
            self.bytes.clear();
            self.sent = 0;
        }
        let length = (rest.end - rest.offset).min(FILE_PIECE as u64) as usize;
        if length > 0 {
            self.bytes
                .extend(Header::new(RecordType::Stdin, length as u16).encode());
            let content = self.bytes.len();
            self.bytes.resize(content + length, 0);
            rest.file.read_exact_at(&mut self.bytes[content..], rest.offset)?;
            rest.offset += length as u64;
        }
        if rest.offset == rest.end {
            self.bytes.extend(END_STDIN);
            self.file = None;
        }
        Ok(true)
    }
}
