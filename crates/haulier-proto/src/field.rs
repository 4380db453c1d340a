//! Field lines: names, values, and finding them (RFC 9110 §5).
//!
//! All names and values of a message lie in one buffer, in the order they came; a line is four numbers. The fields that
//! the server reads on every request are found without a search: each has the number of its first line.

/// Field names that the server itself reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    Host,
    Connection,
    ContentLength,
    ContentType,
    TransferEncoding,
    Expect,
    Range,
    IfRange,
    IfMatch,
    IfNoneMatch,
    IfModifiedSince,
    IfUnmodifiedSince,
    AcceptEncoding,
    Cookie,
    Authorization,
    UserAgent,
    Referer,
}

impl Known {
    const COUNT: usize = 17;

    /// The known field of this name, in any letter case.
    fn of(name: &[u8]) -> Option<Self> {
        let (known, spelled) = Self::candidate(name)?;
        is_spelled(name, spelled).then_some(known)
    }

    /// The known field of this name, which is in lower case already, as all are in HTTP/2.
    fn of_lower_case(name: &[u8]) -> Option<Self> {
        let (known, spelled) = Self::candidate(name)?;
        (name == spelled).then_some(known)
    }

    /// The only known field that this name can be.
    #[inline]
    fn candidate(name: &[u8]) -> Option<(Self, &'static [u8])> {
        let found: (Self, &[u8]) = match name.len() {
            4 => (Self::Host, b"host"),
            5 => (Self::Range, b"range"),
            6 if name[0] | 0x20 == b'e' => (Self::Expect, b"expect"),
            6 => (Self::Cookie, b"cookie"),
            7 => (Self::Referer, b"referer"),
            8 if name[3] | 0x20 == b'r' => (Self::IfRange, b"if-range"),
            8 => (Self::IfMatch, b"if-match"),
            10 if name[0] | 0x20 == b'c' => (Self::Connection, b"connection"),
            10 => (Self::UserAgent, b"user-agent"),
            12 => (Self::ContentType, b"content-type"),
            13 if name[0] | 0x20 == b'a' => (Self::Authorization, b"authorization"),
            13 => (Self::IfNoneMatch, b"if-none-match"),
            14 => (Self::ContentLength, b"content-length"),
            15 => (Self::AcceptEncoding, b"accept-encoding"),
            17 if name[0] | 0x20 == b't' => (Self::TransferEncoding, b"transfer-encoding"),
            17 => (Self::IfModifiedSince, b"if-modified-since"),
            19 => (Self::IfUnmodifiedSince, b"if-unmodified-since"),
            _ => return None,
        };
        Some(found)
    }
}

/// True if `name` is `spelled`, a known name of the same length, in any letter case. Compares eight bytes at a time: it
/// is called for every field of every request.
#[inline]
fn is_spelled(name: &[u8], spelled: &[u8]) -> bool {
    // Bytes that differ in more than the bit of the letter case. Of what stands in known names, letters alone have the
    // bit 0x40.
    fn differs(name: u64, spelled: u64) -> u64 {
        (name ^ spelled) & !((spelled & 0x4040_4040_4040_4040) >> 1)
    }
    debug_assert_eq!(name.len(), spelled.len());
    let (names, name_rest) = name.as_chunks::<8>();
    let (words, word_rest) = spelled.as_chunks::<8>();
    let whole = names.iter().zip(words).fold(0, |found, (name, word)| {
        found | differs(u64::from_ne_bytes(*name), u64::from_ne_bytes(*word))
    });
    let rest = name_rest.iter().zip(word_rest).fold(0, |found, (&name, &word)| {
        found | differs(u64::from(name), u64::from(word))
    });
    whole | rest == 0
}

/// A part of a buffer. Heads are far below 4 GiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BufferRange {
    start: u32,
    end: u32,
}

impl BufferRange {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    /// The place of `part` in `whole`, of which it is a slice.
    pub(crate) fn within(whole: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        Self::new(start, start + part.len())
    }

    pub(crate) fn of(self, whole: &[u8]) -> &[u8] {
        &whole[self.start as usize..self.end as usize]
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The place of one field line in the buffer.
#[derive(Debug, Clone, Copy)]
struct FieldPlace {
    name: BufferRange,
    value: BufferRange,
}

/// The field lines of one message.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    lines: Vec<FieldPlace>,
    /// Number of the first line of each known field, plus one; 0 = absent.
    first: [u16; Known::COUNT],
    /// Bit n: known field n stands on more than one line.
    repeated: u32,
}

impl Fields {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list with room for `lines` lines of `bytes` bytes in all.
    #[must_use]
    pub fn with_room(lines: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            lines: Vec::with_capacity(lines),
            ..Self::default()
        }
    }

    /// Adds a line whose name and value lie in a buffer that [`Fields::over`] will bring. `whole` is that buffer.
    pub(crate) fn push_part_of(&mut self, whole: &[u8], name: &[u8], value: &[u8]) {
        let (name_range, value_range) = (BufferRange::within(whole, name), BufferRange::within(whole, value));
        self.push(
            FieldPlace {
                name: name_range,
                value: value_range,
            },
            Known::of(name),
        );
    }

    /// Takes over the buffer that the lines point into.
    pub(crate) fn over(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Puts bytes into the buffer that belong to no line yet.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> BufferRange {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        BufferRange::new(start, self.bytes.len())
    }

    /// Adds a line of bytes stored before, whose name is in lower case.
    pub(crate) fn push_stored(&mut self, name: BufferRange, value: BufferRange) {
        let known = Known::of_lower_case(name.of(&self.bytes));
        self.push(FieldPlace { name, value }, known);
    }

    /// Adds a line at the end, whose name is in lower case.
    pub(crate) fn append_lower_case(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (self.store(name), self.store(value));
        self.push_stored(name, value);
    }

    /// Takes the buffer out for another use, and drops the lines.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.clear();
        bytes
    }

    /// Everything in the buffer: for a parsed head, the head as it came.
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all lines and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
        self.first = [0; Known::COUNT];
        self.repeated = 0;
    }

    fn push(&mut self, line: FieldPlace, known: Option<Known>) {
        self.lines.push(line);
        if let Some(known) = known {
            self.note(known, self.lines.len());
        }
    }

    fn note(&mut self, known: Known, number: usize) {
        let first = &mut self.first[known as usize];
        if *first == 0 {
            *first = u16::try_from(number).unwrap_or(0);
        } else {
            self.repeated |= 1 << known as u8;
        }
    }

    /// Adds a line at the end; lines of the same name stay.
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.as_ref());
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value.as_ref());
        let end = self.bytes.len();
        let known = Known::of(&self.bytes[start..middle]);
        self.push(
            FieldPlace {
                name: BufferRange::new(start, middle),
                value: BufferRange::new(middle, end),
            },
            known,
        );
    }

    /// Puts this line in place of all lines of the name.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.remove(name.as_ref());
        self.append(name, value);
    }

    /// Drops all lines of the name and says whether there were any.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        self.retain(|found, _| !found.eq_ignore_ascii_case(name))
    }

    /// Keeps the lines `keep` says yes to, in their order; says whether any was dropped.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
        let bytes = &self.bytes;
        let before = self.lines.len();
        self.lines
            .retain(|line| keep(line.name.of(bytes), line.value.of(bytes)));
        let dropped = self.lines.len() != before;
        if dropped {
            self.index_again();
        }
        dropped
    }

    fn index_again(&mut self) {
        self.first = [0; Known::COUNT];
        self.repeated = 0;
        for number in 0..self.lines.len() {
            if let Some(known) = Known::of(self.line(number).0) {
                self.note(known, number + 1);
            }
        }
    }

    fn line(&self, number: usize) -> (&[u8], &[u8]) {
        let line = self.lines[number];
        (line.name.of(&self.bytes), line.value.of(&self.bytes))
    }

    /// The value of the first line of a known field.
    #[must_use]
    #[inline]
    pub fn known(&self, known: Known) -> Option<&[u8]> {
        match self.first[known as usize] {
            0 => None,
            number => Some(self.line(usize::from(number) - 1).1),
        }
    }

    /// True if a known field has more than one line.
    #[must_use]
    #[inline]
    pub fn is_repeated(&self, known: Known) -> bool {
        self.repeated & (1 << known as u8) != 0
    }

    /// The value of the first line of this name, in any letter case.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The values of all lines of this name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// True if there is a line of this name.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// Name and value of every line, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.lines.len()).map(|number| self.line(number))
    }

    /// The number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// True if there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

/// The members of a comma-separated list, without the white space around them; empty members are skipped
/// (RFC 9110 §5.6.1). Only for lists of tokens: a quoted comma would be cut.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// True for a byte that a token may contain (RFC 9110 §5.6.2).
#[must_use]
pub const fn is_token_byte(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

/// True if this may be sent as a field name: a token.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

/// True if this may be sent as a field value: it has no control bytes but the tab (RFC 9110 §5.5).
#[must_use]
pub fn is_value(value: &[u8]) -> bool {
    // The loop does not end at a bad byte: so it runs on many bytes at once.
    value.iter().fold(true, |good, &byte| {
        good & ((byte >= b' ' && byte != 0x7f) | (byte == b'\t'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_differs_in_any_bit_but_the_letter_case_is_another() {
        let names = [
            "host",
            "if-range",
            "connection",
            "if-unmodified-since",
            "transfer-encoding",
        ];
        for name in names {
            for at in 0..name.len() * 8 {
                let mut other = name.as_bytes().to_vec();
                other[at / 8] ^= 1 << (at % 8);
                let expected = other.eq_ignore_ascii_case(name.as_bytes());
                assert_eq!(is_spelled(&other, name.as_bytes()), expected, "{other:?}");
            }
        }
    }

    #[test]
    fn known_fields_are_found_in_any_letter_case() {
        let names: [(&str, Known); Known::COUNT] = [
            ("Host", Known::Host),
            ("CONNECTION", Known::Connection),
            ("content-length", Known::ContentLength),
            ("Content-Type", Known::ContentType),
            ("Transfer-Encoding", Known::TransferEncoding),
            ("expect", Known::Expect),
            ("Range", Known::Range),
            ("If-Range", Known::IfRange),
            ("If-Match", Known::IfMatch),
            ("If-None-Match", Known::IfNoneMatch),
            ("If-Modified-Since", Known::IfModifiedSince),
            ("If-Unmodified-Since", Known::IfUnmodifiedSince),
            ("Accept-Encoding", Known::AcceptEncoding),
            ("Cookie", Known::Cookie),
            ("Authorization", Known::Authorization),
            ("User-Agent", Known::UserAgent),
            ("Referer", Known::Referer),
        ];
        for (name, known) in names {
            let mut fields = Fields::new();
            fields.append("X-Other", "1");
            fields.append(name, "value");
            assert_eq!(fields.known(known), Some(&b"value"[..]), "{name}");
            assert!(!fields.is_repeated(known));
            fields.append(name, "again");
            assert_eq!(fields.known(known), Some(&b"value"[..]));
            assert!(fields.is_repeated(known));
        }
    }

    #[test]
    fn a_name_of_the_same_length_is_not_a_known_field() {
        for name in [
            "hoss",
            "ranges",
            "xookie",
            "if-rang3",
            "if-nope",
            "content-typo",
            "transfer-encodinq",
        ] {
            assert_eq!(Known::of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn set_replaces_every_line_and_the_index_follows() {
        let mut fields = Fields::new();
        fields.append("Connection", "a");
        fields.append("X", "1");
        fields.append("connection", "b");
        fields.set("Connection", "close");
        assert_eq!(fields.known(Known::Connection), Some(&b"close"[..]));
        assert!(!fields.is_repeated(Known::Connection));
        assert_eq!(fields.len(), 2);
        assert!(fields.remove("connection"));
        assert!(!fields.remove("connection"));
        assert_eq!(fields.known(Known::Connection), None);
    }

    #[test]
    fn tokens_drops_empty_members() {
        let found: Vec<_> = tokens(b" close ,, keep-alive,").collect();
        assert_eq!(found, [&b"close"[..], b"keep-alive"]);
    }

    #[test]
    fn values_with_line_breaks_are_refused() {
        assert!(is_value(b"text; charset=\"utf-8\"\t\xe9"));
        for bad in [&b"a\r\nb"[..], b"a\0", b"\x7f", b"\n"] {
            assert!(!is_value(bad));
        }
        assert!(is_name(b"X-A_b") && !is_name(b"") && !is_name(b"a b") && !is_name(b"a:"));
    }
}
