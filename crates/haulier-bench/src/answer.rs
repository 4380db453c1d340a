//! Finds answers in the bytes of a connection (RFC 9112 §6.3, FastCGI §3.3).
//!
//! `haulier-proto` parses heads and framing. A head equal to the previous one keeps its meaning, so most answers of a
//! run cost one comparison instead of a parser.

use haulier_proto::chunked::Decoder;
use haulier_proto::fastcgi::{HeadParser, Record, RecordReader};
use haulier_proto::framing::FramingError;
use haulier_proto::head::Method;
use haulier_proto::response_head::{ResponseHead, ResponseHeadError, ResponseLength, ResponseLimits};
use serde::{Deserialize, Serialize};

use super::job::{Expected, Protocol};

/// The largest head, bytes.
const MOST_HEAD: usize = 64 * 1024;

/// The reason that an answer is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Not the protocol, or an ambiguous framing.
    Protocol,
    /// The connection ended within the answer.
    Short,
}

impl From<ResponseHeadError> for Fault {
    fn from(_: ResponseHeadError) -> Self {
        Self::Protocol
    }
}

impl From<FramingError> for Fault {
    fn from(_: FramingError) -> Self {
        Self::Protocol
    }
}

/// The meaning of a head.
#[derive(Debug, Clone, Copy)]
struct Meaning {
    status: u16,
    length: ResponseLength,
    keeps_alive: bool,
    /// Such a body is not compared with the expected one.
    is_coded: bool,
}

/// The last head of a request, and its meaning.
#[derive(Debug, Default)]
pub(super) struct KnownHead {
    bytes: Vec<u8>,
    meaning: Option<Meaning>,
}

/// One answer while it arrives.
#[derive(Debug)]
pub(super) struct AnswerReader {
    state: ParseState,
    /// 0 until the head is complete.
    status: u16,
    /// Bytes of the body so far.
    body: u64,
    keeps_alive: bool,
    is_coded: bool,
    differs: bool,
    /// The beginning of a head that came in several pieces.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum ParseState {
    Head,
    Known { left: u64 },
    Chunked(Box<Decoder>),
    UntilClose,
    FastCgi(Box<Records>),
    Done,
}

#[derive(Debug)]
struct Records {
    reader: RecordReader,
    head: HeadParser,
    in_body: bool,
}

/// A complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Complete {
    pub(super) status: u16,
    pub(super) body: u64,
    pub(super) keeps_alive: bool,
    /// The body is not the expected one.
    pub(super) differs: bool,
}

/// The surroundings of an answer while it is read.
pub(super) struct AnswerContext<'a> {
    pub(super) known: &'a mut KnownHead,
    pub(super) is_head: bool,
    pub(super) expected: &'a Expected,
    /// Room for decoded chunks.
    pub(super) scratch: &'a mut Vec<u8>,
    /// Receives the bytes of the head and the body, if they are wanted.
    pub(super) capture: Option<&'a mut Captured>,
}

/// An answer kept for a closer look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Status line and field lines; for FastCGI the CGI head.
    pub head: Vec<u8>,
    /// The body without the framing of chunks, still coded.
    pub body: Vec<u8>,
    pub status: u16,
    pub keeps_alive: bool,
    /// Version and cipher suite, `TLSv1.3,TLS13_AES_256_GCM_SHA384`; `None` without TLS.
    pub tls: Option<String>,
}

impl AnswerReader {
    pub(super) fn new(protocol: Protocol) -> Self {
        let mut answer = Self {
            state: ParseState::Done,
            status: 0,
            body: 0,
            keeps_alive: false,
            is_coded: false,
            differs: false,
            partial: Vec::new(),
        };
        answer.expect(protocol);
        answer
    }

    /// Prepares for another answer.
    pub(super) fn expect(&mut self, protocol: Protocol) {
        self.state = match protocol {
            Protocol::Http1 => ParseState::Head,
            // `streams` reads these answers.
            Protocol::Http2 => ParseState::Done,
            Protocol::FastCgi => ParseState::FastCgi(Box::new(Records {
                reader: RecordReader::new(),
                head: HeadParser::new(MOST_HEAD),
                in_body: false,
            })),
        };
        self.status = 0;
        self.body = 0;
        self.differs = false;
        self.partial.clear();
    }

    /// Reads bytes that have arrived. `None` if the answer is not complete.
    pub(super) fn take(
        &mut self,
        mut input: &[u8],
        context: &mut AnswerContext<'_>,
    ) -> Result<Option<Complete>, Fault> {
        loop {
            match &mut self.state {
                ParseState::Head => match self.head(input, context)? {
                    Some(rest) => input = rest,
                    None => return Ok(None),
                },
                ParseState::Known { left } => {
                    let length = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                    let (body, rest) = input.split_at(length);
                    *left -= length as u64;
                    if *left == 0 {
                        self.state = ParseState::Done;
                    }
                    self.body(body, context);
                    input = rest;
                }
                ParseState::Chunked(decoder) => {
                    context.scratch.clear();
                    let taken = decoder.decode(input, context.scratch, usize::MAX);
                    let taken = taken.map_err(|_| Fault::Protocol)?;
                    if decoder.is_done() {
                        self.state = ParseState::Done;
                    }
                    let body = std::mem::take(context.scratch);
                    self.body(&body, context);
                    *context.scratch = body;
                    input = &input[taken..];
                }
                ParseState::UntilClose => {
                    self.body(input, context);
                    return Ok(None);
                }
                ParseState::FastCgi(_) => {
                    if !self.records(input, context)? {
                        return Ok(None);
                    }
                    input = &[];
                }
                // Bytes after an answer that no request asked for.
                ParseState::Done if !input.is_empty() => return Err(Fault::Protocol),
                ParseState::Done => return Ok(Some(self.complete())),
            }
            if input.is_empty() && !matches!(self.state, ParseState::Done) {
                return Ok(None);
            }
        }
    }

    /// Takes the end of the connection.
    pub(super) fn end(&mut self) -> Result<Complete, Fault> {
        if matches!(self.state, ParseState::UntilClose) {
            self.state = ParseState::Done;
            return Ok(self.complete());
        }
        Err(Fault::Short)
    }

    /// True until its first byte has come.
    pub(super) fn is_untouched(&self) -> bool {
        self.status == 0 && self.partial.is_empty()
    }

    fn complete(&self) -> Complete {
        Complete {
            status: self.status,
            body: self.body,
            keeps_alive: self.keeps_alive,
            differs: self.differs,
        }
    }

    /// Reads a head and returns the bytes after it; `None` if the head is not complete.
    fn head<'i>(&mut self, input: &'i [u8], context: &mut AnswerContext<'_>) -> Result<Option<&'i [u8]>, Fault> {
        let known = &mut *context.known;
        if let (Some(meaning), true) = (
            known.meaning,
            self.partial.is_empty() && input.starts_with(&known.bytes),
        ) {
            let (head, rest) = input.split_at(known.bytes.len());
            self.enter(meaning, head, context);
            return Ok(Some(rest));
        }
        // The end of the head may begin in the last three bytes of the earlier pieces.
        let before = self.partial.len();
        self.partial.extend_from_slice(input);
        let Some(end) = end_of_head(&self.partial, before.saturating_sub(3)) else {
            return if self.partial.len() > MOST_HEAD {
                Err(Fault::Protocol)
            } else {
                Ok(None)
            };
        };
        let rest = &input[end - before..];
        self.partial.truncate(end);
        let mut bytes = std::mem::take(&mut self.partial);
        let copy = bytes.clone();
        let head = ResponseHead::parse(&mut bytes, &ResponseLimits::default())?.ok_or(Fault::Protocol)?;
        if head.is_interim() {
            return Ok(Some(rest));
        }
        let method = if context.is_head { Method::Head } else { Method::Get };
        let meaning = Meaning {
            status: head.status(),
            length: head.body_length(method)?,
            keeps_alive: head.keeps_alive() && head.status() != 101,
            is_coded: is_coded(head.fields().get("content-encoding")),
        };
        self.enter(meaning, &copy, context);
        *context.known = KnownHead {
            bytes: copy,
            meaning: Some(meaning),
        };
        Ok(Some(rest))
    }

    fn enter(&mut self, meaning: Meaning, head: &[u8], context: &mut AnswerContext<'_>) {
        self.status = meaning.status;
        self.is_coded = meaning.is_coded;
        // Only closing ends such a body, even if the head says keep-alive.
        self.keeps_alive = meaning.keeps_alive && meaning.length != ResponseLength::UntilClose;
        self.state = match meaning.length {
            ResponseLength::Known(0) => ParseState::Done,
            ResponseLength::Known(left) => ParseState::Known { left },
            ResponseLength::Chunked => ParseState::Chunked(Box::default()),
            ResponseLength::UntilClose => ParseState::UntilClose,
        };
        if let Some(capture) = &mut context.capture {
            capture.head = head.to_vec();
            capture.body.clear();
            capture.status = self.status;
            capture.keeps_alive = self.keeps_alive;
        }
    }

    fn body(&mut self, piece: &[u8], context: &mut AnswerContext<'_>) {
        self.differs |= !self.is_coded && context.expected.differs(self.body, piece);
        self.body += piece.len() as u64;
        if let Some(capture) = &mut context.capture {
            capture.body.extend_from_slice(piece);
        }
    }

    /// True at the end of the request.
    fn records(&mut self, mut input: &[u8], context: &mut AnswerContext<'_>) -> Result<bool, Fault> {
        // Taken out during this call, because `body` changes the rest of the answer.
        let ParseState::FastCgi(mut records) = std::mem::replace(&mut self.state, ParseState::Done) else {
            return Err(Fault::Protocol);
        };
        while let Some(record) = records.reader.next(&mut input).map_err(|_| Fault::Protocol)? {
            match record {
                Record::Stdout(mut piece) => {
                    if !records.in_body {
                        self.cgi_head(&mut records, &mut piece, context)?;
                    }
                    if records.in_body && !piece.is_empty() {
                        self.body(piece, context);
                    }
                }
                // Only workers of haulier's own send files, and to haulier alone: the reader refuses them here.
                Record::Stderr(_) | Record::File(_) => {}
                Record::End(end) => {
                    let is_good = records.in_body && end.protocol_status == 0;
                    self.keeps_alive = records.reader.is_between_records() && input.is_empty();
                    return if is_good { Ok(true) } else { Err(Fault::Protocol) };
                }
            }
        }
        self.state = ParseState::FastCgi(records);
        Ok(false)
    }

    fn cgi_head(
        &mut self,
        records: &mut Records,
        piece: &mut &[u8],
        context: &mut AnswerContext<'_>,
    ) -> Result<(), Fault> {
        while let Some(head) = records.head.feed(piece).map_err(|_| Fault::Protocol)? {
            if head.is_interim() {
                continue;
            }
            records.in_body = true;
            self.status = head.status();
            self.is_coded = head.field("content-encoding").is_some();
            if let Some(capture) = &mut context.capture {
                capture.status = head.status();
                capture.keeps_alive = true;
                capture.body.clear();
                capture.head = head.fields().fold(Vec::new(), |mut text, (name, value)| {
                    text.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
                    text
                });
            }
            break;
        }
        Ok(())
    }
}

/// True if a value of Content-Encoding names a coding.
pub(super) fn is_coded(encoding: Option<&[u8]>) -> bool {
    encoding.is_some_and(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity"))
}

/// Position after the empty line, searched from `from` on.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == b'\n') {
        at += found + 1;
        match bytes[at..] {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds an answer in pieces; says how it ended, if it did.
    fn read(
        answer: &mut AnswerReader,
        known: &mut KnownHead,
        expected: &Expected,
        pieces: &[&[u8]],
    ) -> Result<Option<Complete>, Fault> {
        let mut scratch = Vec::new();
        let mut context = AnswerContext {
            known,
            is_head: false,
            expected,
            scratch: &mut scratch,
            capture: None,
        };
        for piece in pieces {
            if let Some(complete) = answer.take(piece, &mut context)? {
                return Ok(Some(complete));
            }
        }
        Ok(None)
    }

    fn read_one(pieces: &[&[u8]]) -> Result<Option<Complete>, Fault> {
        let mut answer = AnswerReader::new(Protocol::Http1);
        read(&mut answer, &mut KnownHead::default(), &Expected::default(), pieces)
    }

    fn good(body: u64) -> Result<Option<Complete>, Fault> {
        Ok(Some(Complete {
            status: 200,
            body,
            keeps_alive: true,
            differs: false,
        }))
    }

    #[test]
    fn an_answer_ends_where_its_framing_says() {
        assert_eq!(
            read_one(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"]),
            good(5)
        );
        assert_eq!(read_one(&[b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]), good(0));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(read_one(&[chunked]), good(5));
        assert_eq!(
            read_one(&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"]),
            Ok(None)
        );
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(read_one(&[interim]), good(2));
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut answer = AnswerReader::new(Protocol::Http1);
        let head = b"HTTP/1.1 200 OK\r\n\r\nabc";
        let taken = read(&mut answer, &mut KnownHead::default(), &Expected::default(), &[head]);
        assert_eq!(taken, Ok(None));
        let complete = answer.end().expect("complete");
        assert_eq!((complete.body, complete.keeps_alive), (3, false));
    }

    #[test]
    fn an_end_before_the_end_is_short() {
        for text in ["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"] {
            let mut answer = AnswerReader::new(Protocol::Http1);
            let mut known = KnownHead::default();
            assert_eq!(
                read(&mut answer, &mut known, &Expected::default(), &[text.as_bytes()]),
                Ok(None)
            );
            assert_eq!(answer.end(), Err(Fault::Short), "{text:?}");
        }
    }

    #[test]
    fn bytes_after_an_answer_are_a_fault() {
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi HTTP/1.1 200 OK\r\n";
        assert_eq!(read_one(&[two]), Err(Fault::Protocol));
        assert_eq!(read_one(&[b"SSH-2.0-OpenSSH_9.2\r\n\r\n"]), Err(Fault::Protocol));
        assert_eq!(read_one(&[&[b'x'; 70_000]]), Err(Fault::Protocol));
    }

    #[test]
    fn a_head_seen_before_is_known_and_another_is_read_anew() {
        let (mut answer, mut known) = (AnswerReader::new(Protocol::Http1), KnownHead::default());
        let texts = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nho", 200),
            ("HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\n!", 404),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200),
        ];
        for (text, status) in texts {
            answer.expect(Protocol::Http1);
            let found = read(&mut answer, &mut known, &Expected::default(), &[text.as_bytes()]);
            assert_eq!(found.map(|complete| complete.map(|one| one.status)), Ok(Some(status)));
        }
    }

    #[test]
    fn a_body_that_differs_is_noticed_wherever_it_does() {
        let expected = Expected {
            body: Some(b"hello".to_vec()),
            ..Expected::default()
        };
        for (body, differs) in [("hello", false), ("hellO", true), ("Hello", true), ("hello!", true)] {
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let (head, tail) = text.as_bytes().split_at(text.len() - 2);
            let mut answer = AnswerReader::new(Protocol::Http1);
            let found = read(&mut answer, &mut KnownHead::default(), &expected, &[head, tail]);
            assert_eq!(
                found.map(|complete| complete.map(|one| one.differs)),
                Ok(Some(differs)),
                "{body}"
            );
        }
    }

    #[test]
    fn a_fastcgi_answer_ends_with_its_end_record() {
        let stdout = b"Status: 404 No\r\nContent-Type: text/plain\r\n\r\nnot here";
        let record = |kind: u8, content: &[u8]| {
            let length = (content.len() as u16).to_be_bytes();
            [&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat()
        };
        let bytes = [record(6, stdout), record(7, b"a warning"), record(3, &[0; 8])].concat();
        for cut in 0..bytes.len() {
            let mut answer = AnswerReader::new(Protocol::FastCgi);
            let (first, second) = bytes.split_at(cut);
            let found = read(
                &mut answer,
                &mut KnownHead::default(),
                &Expected::default(),
                &[first, second],
            );
            let complete = found.expect("good").expect("complete");
            assert_eq!(
                (complete.status, complete.body, complete.keeps_alive),
                (404, 8, true),
                "cut at {cut}"
            );
        }
    }

    proptest! {
        #[test]
        fn an_answer_is_the_same_however_it_arrives(cuts in proptest::collection::vec(0usize..120, 0..6)) {
            let text = b"HTTP/1.1 200 OK\r\nServer: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n";
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).filter(|piece| !piece.is_empty()).collect();
            prop_assert_eq!(read_one(&pieces), good(29));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_one(&[b"HTTP/1.1 200 OK\r\n", &bytes]);
            let mut answer = AnswerReader::new(Protocol::FastCgi);
            let _ = read(&mut answer, &mut KnownHead::default(), &Expected::default(), &[&bytes]);
        }
    }
}
