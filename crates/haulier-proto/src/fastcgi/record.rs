//! Records: an eight byte header, content, padding (FastCGI specification 1.0, §3.3).
//!
//! [`RecordReader`] takes bytes as the socket delivers them and returns the content as slices of the same bytes. It
//! keeps only a header that was cut in two, and the eight bytes of an END_REQUEST.

/// The only request id in use.
pub const REQUEST_ID: u16 = 1;
/// The version every record carries.
pub const VERSION: u8 = 1;
/// Bytes in front of a record's content.
pub const HEADER_LEN: usize = 8;
/// Most content of one record, bytes.
pub const MAX_CONTENT: usize = 65_535;

/// The types of record (§8) that an application sends or a responder receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordType {
    /// The server opens a request.
    BeginRequest,
    /// The server aborts. PHP ignores it, so haulier closes the connection instead.
    AbortRequest,
    /// The application is done.
    EndRequest,
    /// Name-value pairs; an empty record ends them.
    Params,
    /// The request body; an empty record ends it.
    Stdin,
    /// The response.
    Stdout,
    /// Text for the log.
    Stderr,
    /// Between haulier and its own workers: a part of a file takes this place in the response, or in the request body.
    /// Its descriptor comes with the record (SCM_RIGHTS).
    File,
    /// Any other number.
    Other(u8),
}

impl RecordType {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::BeginRequest => 1,
            Self::AbortRequest => 2,
            Self::EndRequest => 3,
            Self::Params => 4,
            Self::Stdin => 5,
            Self::Stdout => 6,
            Self::Stderr => 7,
            Self::File => 12, // the first number that the specification leaves free
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::BeginRequest,
            2 => Self::AbortRequest,
            3 => Self::EndRequest,
            4 => Self::Params,
            5 => Self::Stdin,
            6 => Self::Stdout,
            7 => Self::Stderr,
            12 => Self::File,
            other => Self::Other(other),
        }
    }
}

/// The eight bytes in front of a record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its type.
    pub kind: RecordType,
    /// The request it belongs to; 0 is the connection itself.
    pub request_id: u16,
    /// Bytes of content.
    pub content_length: u16,
    /// Bytes after the content, to be ignored.
    pub padding_length: u8,
}

impl Header {
    /// A header for [`REQUEST_ID`], without padding.
    pub const fn new(kind: RecordType, content_length: u16) -> Self {
        Self {
            kind,
            request_id: REQUEST_ID,
            content_length,
            padding_length: 0,
        }
    }

    /// The header as bytes.
    pub const fn encode(self) -> [u8; HEADER_LEN] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [length_high, length_low] = self.content_length.to_be_bytes();
        [
            VERSION,
            self.kind.number(),
            id_high,
            id_low,
            length_high,
            length_low,
            self.padding_length,
            0,
        ]
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The version is not 1: the peer does not speak FastCGI.
    pub const fn decode(bytes: [u8; HEADER_LEN]) -> Result<Self, RecordError> {
        if bytes[0] != VERSION {
            return Err(RecordError::Version { found: bytes[0] });
        }
        Ok(Self {
            kind: RecordType::from_number(bytes[1]),
            request_id: u16::from_be_bytes([bytes[2], bytes[3]]),
            content_length: u16::from_be_bytes([bytes[4], bytes[5]]),
            padding_length: bytes[6],
        })
    }
}

/// BEGIN_REQUEST for a responder that keeps the connection open, or closes it after its answer (§5.1): header and
/// content.
#[must_use]
pub const fn begin_request(keep_conn: bool) -> [u8; 16] {
    const ROLE_RESPONDER: u8 = 1;
    const KEEP_CONN: u8 = 1;
    let header = Header::new(RecordType::BeginRequest, 8).encode();
    let mut record = [0; 16];
    let mut at = 0;
    while at < HEADER_LEN {
        record[at] = header[at];
        at += 1;
    }
    record[9] = ROLE_RESPONDER;
    record[10] = if keep_conn { KEEP_CONN } else { 0 };
    record
}

/// The empty record that ends PARAMS.
pub const END_PARAMS: [u8; HEADER_LEN] = Header::new(RecordType::Params, 0).encode();
/// The empty record that ends STDIN. PHP waits forever if it comes before CONTENT_LENGTH bytes.
pub const END_STDIN: [u8; HEADER_LEN] = Header::new(RecordType::Stdin, 0).encode();

/// Bytes of the content of END_REQUEST.
const END_LENGTH: usize = 8;

/// The content of END_REQUEST (§5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit status of the program; stock PHP always sends 0.
    pub app_status: u32,
    /// 0 = complete, 1 = cannot multiplex, 2 = overloaded, 3 = unknown role.
    pub protocol_status: u8,
}

impl EndRequest {
    const fn decode(content: [u8; END_LENGTH]) -> Self {
        let [a, b, c, d, protocol_status, ..] = content;
        Self {
            app_status: u32::from_be_bytes([a, b, c, d]),
            protocol_status,
        }
    }
}

/// The content of a record about a file: offset and length, both in network order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePart {
    /// Offset in the file, bytes.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

impl FilePart {
    /// Bytes of the content.
    pub const LENGTH: usize = 16;

    /// The whole record.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN + Self::LENGTH] {
        let mut record = [0; HEADER_LEN + Self::LENGTH];
        record[..HEADER_LEN].copy_from_slice(&Header::new(RecordType::File, Self::LENGTH as u16).encode());
        record[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&self.start.to_be_bytes());
        record[HEADER_LEN + 8..].copy_from_slice(&self.length.to_be_bytes());
        record
    }

    const fn decode(bytes: [u8; Self::LENGTH]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self {
            start: (both >> 64) as u64,
            length: both as u64,
        }
    }
}

/// The next finding of [`RecordReader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// Some response bytes, not empty; a record may come in several pieces.
    Stdout(&'a [u8]),
    /// Some log bytes.
    Stderr(&'a [u8]),
    /// A part of the file whose descriptor came with the record.
    File(FilePart),
    /// The request is done.
    End(EndRequest),
}

/// A fault in the records that a responder sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The version byte is wrong.
    #[error("FastCGI version {found} instead of 1")]
    Version {
        /// The bytes found instead.
        found: u8,
    },
    /// A record for a request that was never opened.
    #[error("a record for request {found}, which was never opened")]
    RequestId {
        /// The id in the record.
        found: u16,
    },
    /// A record type that an application does not send.
    #[error("an unexpected record of type {number}")]
    Unexpected {
        /// The number of the type.
        number: u8,
    },
    /// END_REQUEST without its eight bytes.
    #[error("an END_REQUEST of {length} bytes instead of 8")]
    EndLength {
        /// Bytes of content announced.
        length: u16,
    },
    /// A record about a file without its sixteen bytes.
    #[error("a record about a file of {length} bytes instead of 16")]
    FileLength {
        /// Bytes of content announced.
        length: u16,
    },
}

/// The reader's position in a record.
#[derive(Debug, Clone, Copy)]
enum ReaderPosition {
    /// `filled` bytes of the next header are in `partial`.
    Header { filled: u8 },
    /// Inside content and padding; both count what is still to come.
    Content { kind: RecordType, left: u16, padding: u8 },
    /// Inside the padding.
    Padding { left: u8 },
}

/// Reads the records that an application sends, in pieces of any size.
#[derive(Debug, Clone)]
pub struct RecordReader {
    position: ReaderPosition,
    /// Content of the last STDOUT record that began, bytes.
    stdout_length: u16,
    /// The responder is a worker of haulier's own, which may send parts of files.
    takes_files: bool,
    /// A header or a content of fixed length of which only the first bytes have come.
    partial: [u8; FilePart::LENGTH],
}

impl Default for RecordReader {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordReader {
    /// A reader before the first header.
    pub const fn new() -> Self {
        Self {
            position: ReaderPosition::Header { filled: 0 },
            stdout_length: 0,
            takes_files: false,
            partial: [0; FilePart::LENGTH],
        }
    }

    /// Accepts records about files too.
    #[must_use]
    pub const fn with_files(self) -> Self {
        Self {
            takes_files: true,
            ..self
        }
    }

    /// The next piece of content in `input`, which is advanced past it; `None` when `input` is used up.
    ///
    /// # Errors
    /// [`RecordError`]. The connection cannot be used further.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Record<'a>>, RecordError> {
        loop {
            match self.position {
                ReaderPosition::Header { filled } => {
                    let Some(header) = self.header(usize::from(filled), input)? else {
                        return Ok(None);
                    };
                    self.position = self.enter(header)?;
                }
                ReaderPosition::Padding { left } => {
                    let taken = take(input, usize::from(left));
                    let left = left - taken.len() as u8;
                    self.position = if left == 0 {
                        ReaderPosition::Header { filled: 0 }
                    } else {
                        ReaderPosition::Padding { left }
                    };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                ReaderPosition::Content {
                    kind: RecordType::EndRequest,
                    left,
                    padding,
                } => {
                    let end = self.fixed::<END_LENGTH>(RecordType::EndRequest, left, padding, input);
                    return Ok(end.map(|content| Record::End(EndRequest::decode(content))));
                }
                ReaderPosition::Content {
                    kind: RecordType::File,
                    left,
                    padding,
                } => {
                    let part = self.fixed(RecordType::File, left, padding, input);
                    return Ok(part.map(|content| Record::File(FilePart::decode(content))));
                }
                ReaderPosition::Content { kind, left, padding } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let content = take(input, usize::from(left));
                    self.leave(kind, left - content.len() as u16, padding);
                    let record = if kind == RecordType::Stderr {
                        Record::Stderr(content)
                    } else {
                        Record::Stdout(content)
                    };
                    return Ok(Some(record));
                }
            }
        }
    }

    /// True between two records: all content and padding has been read.
    pub const fn is_between_records(&self) -> bool {
        matches!(self.position, ReaderPosition::Header { filled: 0 })
    }

    /// Content of the last STDOUT record that began, bytes; after a long one, another long one often follows.
    pub const fn stdout_length(&self) -> u16 {
        self.stdout_length
    }

    /// Bytes up to the next content: the rest of a header, with the padding before it. `None` inside content.
    pub const fn before_content(&self) -> Option<usize> {
        match self.position {
            ReaderPosition::Header { filled } => Some(HEADER_LEN - filled as usize),
            ReaderPosition::Padding { left } => Some(HEADER_LEN + left as usize),
            ReaderPosition::Content { .. } => None,
        }
    }

    /// Content of the STDOUT record that comes next, bytes; 0 if another record does.
    pub const fn stdout_left(&self) -> usize {
        match self.position {
            ReaderPosition::Content {
                kind: RecordType::Stdout,
                left,
                ..
            } => left as usize,
            _ => 0,
        }
    }

    /// Notes that content of a STDOUT record was taken past the reader, at most [`stdout_left`](Self::stdout_left)
    /// bytes.
    ///
    /// # Panics
    /// If it was more.
    pub fn skip_stdout(&mut self, length: usize) {
        let left = self.stdout_left();
        assert!(
            length <= left,
            "{length} bytes were taken of content that has {left} left"
        );
        if let ReaderPosition::Content { kind, padding, .. } = self.position {
            self.leave(kind, (left - length) as u16, padding);
        }
    }

    fn header(&mut self, filled: usize, input: &mut &[u8]) -> Result<Option<Header>, RecordError> {
        let taken = take(input, HEADER_LEN - filled);
        self.partial[filled..filled + taken.len()].copy_from_slice(taken);
        let filled = filled + taken.len();
        match self.partial.first_chunk() {
            Some(&header) if filled == HEADER_LEN => Header::decode(header).map(Some),
            _ => {
                self.position = ReaderPosition::Header { filled: filled as u8 };
                Ok(None)
            }
        }
    }

    fn enter(&mut self, header: Header) -> Result<ReaderPosition, RecordError> {
        if header.request_id != REQUEST_ID {
            return Err(RecordError::RequestId {
                found: header.request_id,
            });
        }
        match header.kind {
            RecordType::EndRequest if usize::from(header.content_length) != END_LENGTH => Err(RecordError::EndLength {
                length: header.content_length,
            }),
            RecordType::File if !self.takes_files => Err(RecordError::Unexpected {
                number: RecordType::File.number(),
            }),
            RecordType::File if usize::from(header.content_length) != FilePart::LENGTH => {
                Err(RecordError::FileLength {
                    length: header.content_length,
                })
            }
            RecordType::File => Ok(position_after(
                RecordType::File,
                header.content_length,
                header.padding_length,
            )),
            kind @ (RecordType::EndRequest | RecordType::Stdout | RecordType::Stderr) => {
                if kind == RecordType::Stdout {
                    self.stdout_length = header.content_length;
                }
                Ok(position_after(kind, header.content_length, header.padding_length))
            }
            other => Err(RecordError::Unexpected { number: other.number() }),
        }
    }

    /// A content of `N` bytes once it is complete; `left` of them were still to come.
    fn fixed<const N: usize>(
        &mut self,
        kind: RecordType,
        left: u16,
        padding: u8,
        input: &mut &[u8],
    ) -> Option<[u8; N]> {
        let taken = take(input, usize::from(left));
        let filled = N - usize::from(left);
        self.partial[filled..filled + taken.len()].copy_from_slice(taken);
        let left = left - taken.len() as u16;
        self.leave(kind, left, padding);
        self.partial.first_chunk().copied().filter(|_| left == 0)
    }

    fn leave(&mut self, kind: RecordType, left: u16, padding: u8) {
        self.position = position_after(kind, left, padding);
    }
}

/// The state after the header of a record with `left` bytes of content and `padding` bytes after them.
fn position_after(kind: RecordType, left: u16, padding: u8) -> ReaderPosition {
    match (left, padding) {
        (0, 0) => ReaderPosition::Header { filled: 0 },
        (0, left) => ReaderPosition::Padding { left },
        (left, padding) => ReaderPosition::Content { kind, left, padding },
    }
}

/// The first `most` bytes of `input`, or all there are; `input` is advanced.
fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: RecordType, content: &[u8], padding: u8) -> Vec<u8> {
        let header = Header {
            padding_length: padding,
            ..Header::new(kind, content.len() as u16)
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + usize::from(padding), 0xff);
        bytes
    }

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        files: Vec<FilePart>,
        end: Option<EndRequest>,
        error: Option<RecordError>,
    }

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
        read_by(RecordReader::new().with_files(), pieces)
    }

    fn read_by<'a>(mut reader: RecordReader, pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
        let mut seen = Seen::default();
        for mut piece in pieces {
            loop {
                match reader.next(&mut piece) {
                    Ok(None) => break,
                    Ok(Some(Record::Stdout(bytes))) => seen.stdout.extend_from_slice(bytes),
                    Ok(Some(Record::Stderr(bytes))) => seen.stderr.extend_from_slice(bytes),
                    Ok(Some(Record::File(part))) => seen.files.push(part),
                    Ok(Some(Record::End(end))) => seen.end = Some(end),
                    Err(error) => {
                        seen.error = Some(error);
                        return seen;
                    }
                }
            }
            assert!(
                piece.is_empty(),
                "the reader says it needs more and leaves bytes behind"
            );
        }
        seen
    }

    #[test]
    fn a_whole_answer_in_one_piece_is_taken_apart() {
        let mut bytes = record(RecordType::Stdout, b"hello ", 3);
        bytes.extend(record(RecordType::Stdout, b"", 0));
        bytes.extend(record(RecordType::Stderr, b"oops", 4));
        bytes.extend(record(RecordType::Stdout, b"world", 0));
        bytes.extend(record(RecordType::EndRequest, &[0, 0, 1, 2, 0, 9, 9, 9], 0));
        let seen = read([&bytes[..]]);
        assert_eq!(seen.stdout, b"hello world");
        assert_eq!(seen.stderr, b"oops");
        assert_eq!(
            seen.end,
            Some(EndRequest {
                app_status: 0x102,
                protocol_status: 0
            })
        );
    }

    #[test]
    fn a_record_of_65535_bytes_with_full_padding_is_read() {
        let content = vec![b'x'; MAX_CONTENT];
        assert_eq!(read([&record(RecordType::Stdout, &content, 255)[..]]).stdout, content);
    }

    #[test]
    fn empty_records_with_padding_are_skipped() {
        let mut bytes = record(RecordType::Stdout, b"", 200);
        bytes.extend(record(RecordType::Stdout, b"a", 1));
        assert_eq!(read([&bytes[..]]).stdout, b"a");
    }

    #[test]
    fn what_an_application_may_not_send_is_refused() {
        let other_id = Header {
            request_id: 2,
            ..Header::new(RecordType::Stdout, 0)
        }
        .encode();
        assert_eq!(read([&other_id[..]]).error, Some(RecordError::RequestId { found: 2 }));
        let params = record(RecordType::Params, b"x", 0);
        assert_eq!(read([&params[..]]).error, Some(RecordError::Unexpected { number: 4 }));
        let short_end = record(RecordType::EndRequest, &[0; 7], 0);
        assert_eq!(read([&short_end[..]]).error, Some(RecordError::EndLength { length: 7 }));
        assert_eq!(
            read([&b"HTTP/1.1 200 OK"[..]]).error,
            Some(RecordError::Version { found: b'H' })
        );
    }

    #[test]
    fn a_part_of_a_file_comes_from_a_worker_of_our_own_alone() {
        let mut content = [0; FilePart::LENGTH];
        content[6..8].copy_from_slice(&[1, 2]);
        content[14..].copy_from_slice(&[3, 4]);
        let file = record(RecordType::File, &content, 2);
        let part = FilePart {
            start: 0x102,
            length: 0x304,
        };
        assert_eq!(read([&file[..]]).files, [part]);
        assert_eq!(read([&part.encode()[..]]).files, [part]);
        assert_eq!(read(file.chunks(1)).files, [part]);
        let refused = read_by(RecordReader::new(), [&file[..]]);
        assert_eq!(refused.error, Some(RecordError::Unexpected { number: 12 }));
        let short = record(RecordType::File, &content[..15], 0);
        assert_eq!(read([&short[..]]).error, Some(RecordError::FileLength { length: 15 }));
    }

    #[test]
    fn content_may_be_taken_past_the_reader() {
        let long = vec![b'x'; 50_000];
        let mut bytes = record(RecordType::Stderr, b"oops", 0);
        bytes.extend(record(RecordType::Stdout, &long, 5));
        bytes.extend(record(RecordType::Stdout, b"end", 0));
        let mut reader = RecordReader::new();
        assert_eq!((reader.before_content(), reader.stdout_left()), (Some(8), 0));
        let (mut first, mut rest) = bytes.split_at(8 + 4 + 3);
        assert_eq!(reader.next(&mut first), Ok(Some(Record::Stderr(b"oops"))));
        assert_eq!(reader.next(&mut first), Ok(None));
        assert_eq!((reader.before_content(), reader.stdout_left()), (Some(5), 0));
        let mut header = &rest[..5];
        rest = &rest[5..];
        assert_eq!(reader.next(&mut header), Ok(None));
        assert_eq!((reader.stdout_left(), reader.stdout_length()), (50_000, 50_000));

        reader.skip_stdout(20_000);
        assert_eq!((reader.before_content(), reader.stdout_left()), (None, 30_000));
        reader.skip_stdout(30_000);
        rest = &rest[50_000..];
        assert_eq!((reader.before_content(), reader.stdout_left()), (Some(5 + 8), 0));
        assert!(!reader.is_between_records(), "its padding is still to come");
        assert_eq!(reader.next(&mut rest), Ok(Some(Record::Stdout(b"end"))));
        assert_eq!((reader.stdout_length(), reader.is_between_records()), (3, true));
    }

    #[test]
    fn begin_request_asks_for_a_responder_and_says_what_becomes_of_the_connection() {
        assert_eq!(begin_request(true), [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(begin_request(false), [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(END_PARAMS, [1, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(END_STDIN, [1, 5, 0, 1, 0, 0, 0, 0]);
    }

    fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn any_header_survives_encoding(kind: u8, request_id: u16, content_length: u16, padding_length: u8) {
            let header = Header { kind: RecordType::from_number(kind), request_id, content_length, padding_length };
            prop_assert_eq!(Header::decode(header.encode()), Ok(header));
            prop_assert_eq!(header.kind.number(), kind);
        }

        #[test]
        fn any_split_of_any_records_gives_the_same(
            records in prop::collection::vec((0..4u8, prop::collection::vec(any::<u8>(), 0..40), any::<u8>()), 0..8),
            cuts in prop::collection::vec(any::<usize>(), 0..30),
        ) {
            let mut bytes = Vec::new();
            for (kind, content, padding) in &records {
                match kind {
                    0 => bytes.extend(record(RecordType::Stdout, content, *padding)),
                    1 => bytes.extend(record(RecordType::Stderr, content, *padding)),
                    2 => bytes.extend(record(RecordType::File, &[*padding; FilePart::LENGTH], *padding)),
                    _ => bytes.extend(record(RecordType::EndRequest, &[*padding; 8], *padding)),
                }
            }
            let whole = read([&bytes[..]]);
            prop_assert_eq!(&whole.error, &None);
            prop_assert_eq!(&whole, &read(pieces(&bytes, &cuts)));
            prop_assert_eq!(&whole, &read(bytes.chunks(1)));
        }

        #[test]
        fn any_split_of_garbage_gives_the_same(
            bytes in prop::collection::vec(0..9u8, 0..300), cuts in prop::collection::vec(any::<usize>(), 0..9),
        ) {
            prop_assert_eq!(read([&bytes[..]]), read(pieces(&bytes, &cuts)));
        }
    }
}
