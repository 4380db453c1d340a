//! Chunked transfer coding, both ways (RFC 9112 §7.1).
//!
//! The decoder takes bytes and reports how many it took; it reads no socket. It also limits extensions and trailers,
//! because no other module sees those bytes. Extensions are checked, counted and dropped; so are trailers, unless the
//! decoder was made to keep them. A line ends with CR LF and with nothing else, so that no two servers find different
//! ends (CVE-2025-55315).

use crate::encode;
use crate::field::{Fields, is_token_byte};

/// Longest chunk extension on one line, bytes.
const MOST_EXTENSION: usize = 4 * 1024;
/// Longest trailer section, bytes with its line ends.
const MOST_TRAILERS: usize = 32 * 1024;
/// Sixteen hexadecimal digits are 64 bits: no size overflows.
const MOST_DIGITS: u8 = 16;

/// The last chunk with an empty trailer section.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends the size line of a chunk of `length` bytes, at least 1; its data and CR LF follow.
pub fn write_chunk_head(out: &mut Vec<u8>, length: u64) {
    debug_assert!(length > 0, "a chunk of length 0 ends the body");
    let digits = (length.max(1).ilog2() / 4 + 1) as usize;
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(length >> (place * 4)) as usize & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk with these trailers (RFC 9112 §7.1.2).
pub fn write_end(out: &mut Vec<u8>, trailers: &Fields) {
    out.extend_from_slice(b"0\r\n");
    encode::fields(out, trailers);
    out.extend_from_slice(b"\r\n");
}

/// A fault in a chunked body. Its end is not known, so the connection cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// A size line that does not begin with a hexadecimal digit, or continues with another byte.
    #[error("malformed chunk size")]
    Size,
    /// More than 16 digits.
    #[error("chunk size of more than 16 digits")]
    SizeTooLong,
    /// An extension that is no name with an optional value, or that has a control byte.
    #[error("malformed chunk extension")]
    Extension,
    /// More than 4 KiB.
    #[error("chunk extension too long")]
    ExtensionTooLong,
    /// CR without LF, or LF without CR.
    #[error("line does not end with CR LF")]
    LineEnd,
    /// No CR LF after the data.
    #[error("chunk data longer than its size")]
    DataEnd,
    /// A trailer line that is no field line.
    #[error("malformed trailer")]
    Trailer,
    /// More than 32 KiB.
    #[error("trailers too long")]
    TrailersTooLong,
}

/// The element that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// The first digit of a size.
    SizeStart,
    /// A further digit, an extension, or the end of the line.
    Size {
        digits: u8,
    },
    /// White space between size and extension: only more of it or `;` may follow.
    BeforeExtension,
    /// White space before the name of an extension, or its first byte.
    ExtensionStart,
    ExtensionName,
    /// White space after a name: a value or another extension must follow.
    AfterName,
    /// White space before a value, or its first byte.
    ValueStart,
    Value,
    Quoted,
    /// The byte after a backslash.
    QuotedPair,
    /// After a closing quote.
    ValueEnd,
    /// White space after a value: another extension must follow.
    AfterValue,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// The first byte of a trailer line, or the end.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

/// Decodes a chunked body, in pieces of any size.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: ChunkState,
    /// While the size is read, its value so far; then the bytes of the chunk still to come.
    remaining: u64,
    /// Bytes of the extension on this line; then of all trailers.
    overhead: usize,
    /// The trailer section so far, if it is kept.
    trailers: Option<Vec<u8>>,
}

impl Decoder {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: ChunkState::SizeStart,
            remaining: 0,
            overhead: 0,
            trailers: None,
        }
    }

    /// A decoder that keeps the trailers for [`Decoder::take_trailers`].
    #[must_use]
    pub const fn with_trailers() -> Self {
        Self {
            state: ChunkState::SizeStart,
            remaining: 0,
            overhead: 0,
            trailers: Some(Vec::new()),
        }
    }

    /// The trailers, once the body is complete. A decoder of [`Decoder::new`] has none.
    #[must_use]
    pub fn take_trailers(&mut self) -> Fields {
        let mut trailers = Fields::new();
        let section = self.trailers.take().unwrap_or_default();
        for line in section.split(|&byte| byte == b'\r') {
            if let Some(colon) = line.iter().position(|&byte| byte == b':') {
                trailers.append(&line[..colon], line[colon + 1..].trim_ascii());
            }
        }
        trailers
    }

    /// True if the whole body was taken; the bytes after it belong to the next message.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.state, ChunkState::Done)
    }

    /// Bytes of the present chunk that are still to come.
    #[must_use]
    pub const fn announced(&self) -> u64 {
        match self.state {
            ChunkState::Data => self.remaining,
            _ => 0,
        }
    }

    /// Takes bytes of `input` and appends the body bytes among them to `out`, at most `room`. Returns the number of
    /// bytes taken: all, unless the body ended or the room did.
    ///
    /// # Errors
    /// [`ChunkError`] at the first byte that RFC 9112 §7.1 does not allow, or that is beyond a limit. Body bytes before
    /// it may have been appended. Later calls fail again.
    pub fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, room: usize) -> Result<usize, ChunkError> {
        let (mut taken, mut room) = (0, room);
        while let Some(&byte) = input.get(taken) {
            if self.state == ChunkState::Data {
                let length = self.data_length(input.len() - taken, room);
                if length == 0 {
                    break;
                }
                out.extend_from_slice(&input[taken..taken + length]);
                self.take_data(length);
                taken += length;
                room -= length;
            } else if self.state == ChunkState::Done {
                break;
            } else {
                self.state = self.step(byte)?;
                taken += 1;
            }
        }
        Ok(taken)
    }

    fn data_length(&self, available: usize, room: usize) -> usize {
        let most = available.min(room);
        usize::try_from(self.remaining).map_or(most, |remaining| remaining.min(most))
    }

    fn take_data(&mut self, length: usize) {
        self.remaining -= length as u64;
        if self.remaining == 0 {
            self.state = ChunkState::DataReturn;
        }
    }

    /// One byte of the framing.
    fn step(&mut self, byte: u8) -> Result<ChunkState, ChunkError> {
        match self.state {
            ChunkState::SizeStart => self.size_digit(byte, 0),
            ChunkState::Size { digits } => self.after_digit(byte, digits),
            ChunkState::BeforeExtension => self.before_extension(byte),
            ChunkState::ExtensionStart
            | ChunkState::ExtensionName
            | ChunkState::AfterName
            | ChunkState::ValueStart
            | ChunkState::Value
            | ChunkState::Quoted
            | ChunkState::QuotedPair
            | ChunkState::ValueEnd
            | ChunkState::AfterValue => self.extension(byte),
            ChunkState::SizeLineFeed => line_feed(byte, self.after_size()),
            ChunkState::DataReturn if byte == b'\r' => Ok(ChunkState::DataLineFeed),
            ChunkState::DataLineFeed if byte == b'\n' => Ok(ChunkState::SizeStart),
            ChunkState::DataReturn | ChunkState::DataLineFeed => Err(ChunkError::DataEnd),
            ChunkState::TrailerStart | ChunkState::TrailerName | ChunkState::TrailerValue => self.trailer(byte),
            ChunkState::TrailerLineFeed => {
                self.count(MOST_TRAILERS, ChunkError::TrailersTooLong)?;
                line_feed(byte, ChunkState::TrailerStart)
            }
            ChunkState::LastLineFeed => line_feed(byte, ChunkState::Done),
            ChunkState::Data | ChunkState::Done => unreachable!("decode() takes these bytes itself"),
        }
    }

    fn size_digit(&mut self, byte: u8, before: u8) -> Result<ChunkState, ChunkError> {
        let digit = (byte as char).to_digit(16).ok_or(ChunkError::Size)?;
        if before == MOST_DIGITS {
            return Err(ChunkError::SizeTooLong);
        }
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(ChunkState::Size { digits: before + 1 })
    }

    fn after_digit(&mut self, byte: u8, digits: u8) -> Result<ChunkState, ChunkError> {
        match byte {
            b'\r' => Ok(ChunkState::SizeLineFeed),
            b'\n' => Err(ChunkError::LineEnd),
            b';' | b' ' | b'\t' => self.before_extension(byte),
            _ => self.size_digit(byte, digits),
        }
    }

    /// RFC 9112 §7.1.1: `BWS ";"`, so white space alone is not allowed before the line end.
    fn before_extension(&mut self, byte: u8) -> Result<ChunkState, ChunkError> {
        self.count(MOST_EXTENSION, ChunkError::ExtensionTooLong)?;
        match byte {
            b';' => Ok(ChunkState::ExtensionStart),
            b' ' | b'\t' => Ok(ChunkState::BeforeExtension),
            _ => Err(ChunkError::Size),
        }
    }

    /// RFC 9112 §7.1.1: `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
    fn extension(&mut self, byte: u8) -> Result<ChunkState, ChunkError> {
        use ChunkState::{
            AfterName, AfterValue, ExtensionName, ExtensionStart, Quoted, QuotedPair, Value, ValueEnd, ValueStart,
        };
        match (self.state, byte) {
            (ExtensionName | Value | ValueEnd, b'\r') => return Ok(ChunkState::SizeLineFeed),
            (_, b'\n') => return Err(ChunkError::LineEnd),
            _ => self.count(MOST_EXTENSION, ChunkError::ExtensionTooLong)?,
        }
        match (self.state, byte) {
            (ExtensionStart | ValueStart, b' ' | b'\t') => Ok(self.state),
            (ExtensionStart | ExtensionName, _) if is_token_byte(byte) => Ok(ExtensionName),
            (ExtensionName | AfterName, b' ' | b'\t') => Ok(AfterName),
            (ExtensionName | AfterName, b'=') => Ok(ValueStart),
            (ValueStart, b'"') => Ok(Quoted),
            (ValueStart | Value, _) if is_token_byte(byte) => Ok(Value),
            (Value | ValueEnd | AfterValue, b' ' | b'\t') => Ok(AfterValue),
            (ExtensionName | AfterName | Value | ValueEnd | AfterValue, b';') => Ok(ExtensionStart),
            (Quoted, b'"') => Ok(ValueEnd),
            (Quoted, b'\\') => Ok(QuotedPair),
            (Quoted | QuotedPair, b'\t' | b' '..=0x7e | 0x80..) => Ok(Quoted),
            _ => Err(ChunkError::Extension),
        }
    }

    fn after_size(&mut self) -> ChunkState {
        self.overhead = 0;
        if self.remaining == 0 {
            ChunkState::TrailerStart
        } else {
            ChunkState::Data
        }
    }

    /// A byte of the trailer section before its line feeds. A line that is no field line is refused even where trailers
    /// are dropped: a request may hide there.
    fn trailer(&mut self, byte: u8) -> Result<ChunkState, ChunkError> {
        if self.state == ChunkState::TrailerStart && byte == b'\r' {
            return Ok(ChunkState::LastLineFeed);
        }
        self.count(MOST_TRAILERS, ChunkError::TrailersTooLong)?;
        if let Some(trailers) = &mut self.trailers {
            trailers.push(byte);
        }
        match (self.state, byte) {
            (ChunkState::TrailerValue, b'\r') => Ok(ChunkState::TrailerLineFeed),
            (_, b'\n') => Err(ChunkError::LineEnd),
            (ChunkState::TrailerValue, b'\t' | b' '..=0x7e | 0x80..) => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerName, b':') => Ok(ChunkState::TrailerValue),
            (ChunkState::TrailerStart | ChunkState::TrailerName, _) if is_token_byte(byte) => {
                Ok(ChunkState::TrailerName)
            }
            _ => Err(ChunkError::Trailer),
        }
    }

    fn count(&mut self, most: usize, error: ChunkError) -> Result<(), ChunkError> {
        if self.overhead == most {
            return Err(error);
        }
        self.overhead += 1;
        Ok(())
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

fn line_feed(byte: u8, next: ChunkState) -> Result<ChunkState, ChunkError> {
    if byte == b'\n' {
        Ok(next)
    } else {
        Err(ChunkError::LineEnd)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Body, bytes taken and whether that was all, or the error.
    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        decode_pieces([input])
    }

    fn decode_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let (mut decoder, mut out, mut taken) = (Decoder::new(), Vec::new(), 0);
        for piece in pieces {
            taken += decoder.decode(piece, &mut out, usize::MAX)?;
        }
        Ok((out, taken, decoder.is_done()))
    }

    fn whole(input: &[u8], body: &[u8]) {
        assert_eq!(
            decode(input),
            Ok((body.to_vec(), input.len(), true)),
            "{:?}",
            String::from_utf8_lossy(input)
        );
    }

    #[test]
    fn chunks_become_a_body() {
        whole(b"0\r\n\r\n", b"");
        whole(b"5\r\nhello\r\n0\r\n\r\n", b"hello");
        whole(b"5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", b"hello world");
        whole(
            b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            b"01234567890123456789",
        );
        whole(b"0000000000000002\r\n\r\n\r\n0\r\n\r\n", b"\r\n");
    }

    #[test]
    fn what_follows_the_last_chunk_is_not_taken() {
        let input = b"1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
        assert_eq!(decode(input), Ok((b"x".to_vec(), 11, true)));
    }

    #[test]
    fn extensions_and_trailers_are_dropped() {
        whole(b"5;name=value;q=\"a b\"\r\nhello\r\n0;last\r\n\r\n", b"hello");
        whole(b"5 \t;name\r\nhello\r\n0\r\n\r\n", b"hello");
        whole(
            b"5 ; a ; b = c;d=\"\\\"\\\\;\xc3\xa9\t\" ;e\r\nhello\r\n0\r\nDigest: x\r\nContent-Length:\t9\r\nEmpty:\r\n\r\n",
            b"hello",
        );
    }

    /// Malformed chunks, each of which some server is known to have accepted.
    #[test]
    fn malformed_chunks_are_refused() {
        for (input, error) in [
            ("\r\n", ChunkError::Size),
            ("g\r\n", ChunkError::Size),
            ("0x5\r\nhello\r\n", ChunkError::Size),
            ("+5\r\nhello\r\n", ChunkError::Size),
            ("-5\r\nhello\r\n", ChunkError::Size),
            ("5_0\r\nhello\r\n", ChunkError::Size),
            (" 5\r\nhello\r\n", ChunkError::Size),
            ("\t5\r\n", ChunkError::Size),
            ("5 \r\nhello\r\n", ChunkError::Size),
            ("5 5\r\nhello\r\n", ChunkError::Size),
            (";a\r\n", ChunkError::Size),
            ("5\0\r\n", ChunkError::Size),
            ("\u{ff15}\r\nhello\r\n", ChunkError::Size),
            ("00000000000000005\r\nhello\r\n", ChunkError::SizeTooLong),
            ("10000000000000000\r\n", ChunkError::SizeTooLong),
            ("5\nhello\r\n", ChunkError::LineEnd),
            ("5\rhello\r\n", ChunkError::LineEnd),
            ("5\r\rhello\r\n", ChunkError::LineEnd),
            ("5;a\nhello\r\n", ChunkError::LineEnd),
            ("5;a\rb\r\nhello\r\n", ChunkError::LineEnd),
            ("5;a\0\r\nhello\r\n", ChunkError::Extension),
            ("5;a\u{7f}\r\nhello\r\n", ChunkError::Extension),
            ("5;\r\nhello\r\n", ChunkError::Extension),
            ("5; \r\nhello\r\n", ChunkError::Extension),
            ("5;a;\r\nhello\r\n", ChunkError::Extension),
            ("5;;a\r\nhello\r\n", ChunkError::Extension),
            ("5;a \r\nhello\r\n", ChunkError::Extension),
            ("5;a b\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\r\nhello\r\n", ChunkError::Extension),
            ("5;=b\r\nhello\r\n", ChunkError::Extension),
            ("5;a=b \r\nhello\r\n", ChunkError::Extension),
            ("5;a=b=c\r\nhello\r\n", ChunkError::Extension),
            ("5;bad[=x\r\nhello\r\n", ChunkError::Extension),
            ("5;a=b[\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\"b\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\"b\\\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\"b\"c\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\"b\" \r\nhello\r\n", ChunkError::Extension),
            ("5;\u{e9}\r\nhello\r\n", ChunkError::Extension),
            ("5;a=\"b\n\"\r\nhello\r\n", ChunkError::LineEnd),
            ("5\r\nhello0\r\n\r\n", ChunkError::DataEnd),
            ("5\r\nhello\n0\r\n\r\n", ChunkError::DataEnd),
            ("5\r\nhello\r0\r\n\r\n", ChunkError::DataEnd),
            ("5\r\nhello world\r\n0\r\n\r\n", ChunkError::DataEnd),
            ("0\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", ChunkError::Trailer),
            ("0\r\nName : value\r\n\r\n", ChunkError::Trailer),
            ("0\r\nName: value\r\n folded\r\n\r\n", ChunkError::Trailer),
            ("0\r\n: value\r\n\r\n", ChunkError::Trailer),
            ("0\r\nName\r\n\r\n", ChunkError::Trailer),
            ("0\r\nName: a\0b\r\n\r\n", ChunkError::Trailer),
            ("0\r\nName: value\n\r\n", ChunkError::LineEnd),
            ("0\r\nName: a\rb\r\n\r\n", ChunkError::LineEnd),
            ("0\r\n\n", ChunkError::LineEnd),
            ("0\r\n\rGET", ChunkError::LineEnd),
        ] {
            assert_eq!(decode(input.as_bytes()), Err(error), "{input:?}");
        }
    }

    #[test]
    fn an_error_stays() {
        let (mut decoder, mut out) = (Decoder::new(), Vec::new());
        assert_eq!(decoder.decode(b"5\nhello", &mut out, 99), Err(ChunkError::LineEnd));
        assert!(decoder.decode(b"\n", &mut out, 99).is_err());
        assert!(!decoder.is_done());
    }

    #[test]
    fn the_largest_size_does_not_overflow() {
        let (mut decoder, mut out) = (Decoder::new(), Vec::new());
        assert_eq!(decoder.decode(b"FFFFFFFFFFFFFFFF\r\nabc", &mut out, usize::MAX), Ok(21));
        assert_eq!(out, b"abc");
        assert_eq!(decoder.announced(), u64::MAX - 3);
    }

    #[test]
    fn extensions_end_at_four_kibibytes_a_line() {
        let chunk = |length: usize| format!("1;{}\r\nx\r\n", "e".repeat(length - 1));
        let twice = format!("{}{}0\r\n\r\n", chunk(MOST_EXTENSION), chunk(MOST_EXTENSION));
        whole(twice.as_bytes(), b"xx");
        assert_eq!(
            decode(chunk(MOST_EXTENSION + 1).as_bytes()),
            Err(ChunkError::ExtensionTooLong)
        );
        let blank = format!("1{};\r\n", " ".repeat(MOST_EXTENSION));
        assert_eq!(decode(blank.as_bytes()), Err(ChunkError::ExtensionTooLong));
    }

    #[test]
    fn trailers_end_at_thirty_two_kibibytes_together() {
        let line = format!("a:{}\r\n", "b".repeat(1020));
        let fits = format!("0\r\n{}\r\n", line.repeat(32));
        whole(fits.as_bytes(), b"");
        let endless = format!("0\r\n{}c", line.repeat(32));
        assert_eq!(decode(endless.as_bytes()), Err(ChunkError::TrailersTooLong));
    }

    #[test]
    fn data_waits_when_there_is_no_room() {
        let (mut decoder, mut out) = (Decoder::new(), Vec::new());
        let input = b"5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(decoder.decode(input, &mut out, 0), Ok(3));
        assert_eq!(decoder.decode(&input[3..], &mut out, 2), Ok(2));
        assert_eq!(decoder.decode(&input[5..], &mut out, 3), Ok(8));
        assert_eq!(decoder.decode(&input[13..], &mut out, 3), Ok(10));
        assert_eq!(out, b"helloabc");
        assert!(decoder.is_done());
    }

    #[test]
    fn chunk_heads_are_plain_hexadecimal() {
        for length in [1, 9, 10, 15, 16, 255, 256, 65_536, u64::MAX] {
            let mut out = Vec::new();
            write_chunk_head(&mut out, length);
            assert_eq!(out, format!("{length:x}\r\n").as_bytes());
        }
    }

    #[test]
    fn trailers_stand_between_the_last_chunk_and_its_end() {
        let mut trailers = Fields::new();
        trailers.append("Server-Timing", "php;dur=1.5");
        let mut out = b"1\r\nx\r\n".to_vec();
        write_end(&mut out, &trailers);
        assert_eq!(out, b"1\r\nx\r\n0\r\nServer-Timing: php;dur=1.5\r\n\r\n");
        assert_eq!(decode(&out), Ok((b"x".to_vec(), out.len(), true)));
    }

    #[test]
    fn trailers_are_kept_by_a_decoder_that_was_made_to() {
        let input = b"1\r\nx\r\n0\r\nServer-Timing: php;dur=1.5\r\nA:\r\nDigest: sha-256=:YQ==: \r\n\r\n";
        for cut in 0..=input.len() {
            let (mut decoder, mut out) = (Decoder::with_trailers(), Vec::new());
            for piece in [&input[..cut], &input[cut..]] {
                assert_eq!(decoder.decode(piece, &mut out, 9), Ok(piece.len()));
            }
            assert!(decoder.is_done());
            let trailers = decoder.take_trailers();
            assert_eq!(trailers.len(), 3);
            assert_eq!(trailers.get("server-timing"), Some(&b"php;dur=1.5"[..]));
            assert_eq!(trailers.get("a"), Some(&b""[..]));
            assert_eq!(trailers.get("digest"), Some(&b"sha-256=:YQ==:"[..]));
        }
        let mut decoder = Decoder::new();
        assert!(decoder.decode(input, &mut Vec::new(), 9).is_ok() && decoder.take_trailers().is_empty());
    }

    fn encode(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for chunk in chunks {
            write_chunk_head(&mut out, chunk.len() as u64);
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(LAST_CHUNK);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            room in 1usize..50,
        ) {
            let encoded = encode(&chunks);
            let (mut decoder, mut out, mut taken) = (Decoder::new(), Vec::new(), 0);
            while taken < encoded.len() {
                let before = out.len();
                taken += decoder.decode(&encoded[taken..], &mut out, room).expect("our own encoding");
                prop_assert!(out.len() - before <= room);
            }
            prop_assert!(decoder.is_done());
            prop_assert_eq!(out, chunks.concat());
        }

        #[test]
        fn any_split_gives_the_same_result(
            input in "([0-9a-f]{1,2}(;e=\"x\")?\r\n|[a-c]{0,4}\r\n|0\r\n|T: v\r\n|\r|\n| ){0,8}",
            places in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let input = input.as_bytes();
            let mut cuts: Vec<usize> = places.iter().map(|place| place.index(input.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut start = 0;
            for cut in cuts {
                pieces.push(&input[start..cut]);
                start = cut;
            }
            pieces.push(&input[start..]);
            prop_assert_eq!(decode_pieces(pieces), decode(input));
        }
    }
}
