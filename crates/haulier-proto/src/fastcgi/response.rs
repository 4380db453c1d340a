//! The head of a CGI response (RFC 3875 §6) as PHP writes it into STDOUT.
//!
//! Lines end in LF or CRLF, also mixed. `Status:` gives the status, 200 without it. A block with a 1xx status is
//! interim: 100 and 101 are dropped, because the server decides about continuing and upgrading; others (103) are
//! returned before the final head. A byte that could end a line early in an HTTP response (CR, NUL) is refused. A line
//! that is no field is dropped if another line is one.

use std::ops::Range;

/// A fault in the head of a CGI response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The blocks together are longer than allowed.
    #[error("the response head is longer than {limit} bytes")]
    TooLong {
        /// The limit, bytes.
        limit: usize,
    },
    /// A NUL, or a CR that ends no line.
    #[error("a control character in the response head")]
    ControlCharacter,
    /// No field: every line is without a colon, has an empty or invalid name, or is a continuation line.
    #[error("a response head of lines that are no fields")]
    NotAField,
    /// `Status:` without three digits between 100 and 999.
    #[error("a Status field without a status")]
    Status,
}

/// A complete block of the head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgiHead {
    status: Option<u16>,
    block: Vec<u8>,
    fields: Vec<FieldPlace>,
    dropped: Option<Range<u32>>,
}

/// The place of a field in the block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldPlace {
    name: Range<u32>,
    value: Range<u32>,
}

/// The meaning of Location in a head without Status (RFC 3875 §6.2.2 and §6.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgiRedirect<'a> {
    /// None: the head has a Status, or no Location.
    None,
    /// The client is redirected; the status is 302.
    Client,
    /// The server answers with this path and query instead, as if it had been a GET; the body is dropped.
    Local(&'a [u8]),
}

impl CgiHead {
    /// The status: that of Status, else 302 if there is a Location, else 200.
    pub fn status(&self) -> u16 {
        match self.status {
            Some(status) => status,
            None if self.field("location").is_some() => 302,
            None => 200,
        }
    }

    /// True for 1xx: another block follows.
    pub fn is_interim(&self) -> bool {
        self.status.is_some_and(|status| status < 200)
    }

    /// Names and values in the order they came, Status left out. Values carry no white space around them, no CR, LF
    /// or NUL; names are tokens (RFC 9110 §5.6.2).
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + Clone {
        self.fields
            .iter()
            .map(|field| (self.bytes(&field.name), self.bytes(&field.value)))
    }

    /// The value of the first field called `name`, in any letter case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields()
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The first line that is no field, and was dropped.
    pub fn dropped(&self) -> Option<&[u8]> {
        self.dropped.as_ref().map(|line| self.bytes(line))
    }

    /// The redirect that Location asks for when there is no Status.
    pub fn redirect(&self) -> CgiRedirect<'_> {
        match (self.status, self.field("location")) {
            // `//host/` names another host, though it begins like a path.
            (None, Some(path)) if path.starts_with(b"/") && !path.starts_with(b"//") => CgiRedirect::Local(path),
            (None, Some(_)) => CgiRedirect::Client,
            _ => CgiRedirect::None,
        }
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.block[range.start as usize..range.end as usize]
    }
}

/// Finds the head in STDOUT, which may come in pieces of any size.
#[derive(Debug, Clone)]
pub struct HeadParser {
    limit: usize,
    /// Bytes of all blocks so far: an application that sends interim blocks for ever reaches the limit, too.
    length: usize,
    /// The start of the present line in the block.
    line_start: usize,
    head: CgiHead,
}

impl HeadParser {
    /// A parser that takes at most `limit` bytes of head, interim blocks included.
    pub const fn new(limit: usize) -> Self {
        let head = CgiHead {
            status: None,
            block: Vec::new(),
            fields: Vec::new(),
            dropped: None,
        };
        Self {
            limit,
            length: 0,
            line_start: 0,
            head,
        }
    }

    /// Takes the bytes of the head from `input`, which is advanced, and returns the next block once it is complete.
    /// After a block that is not interim, `input` is the beginning of the body and the parser is done.
    ///
    /// # Errors
    /// [`HeadError`]. The response is a 502.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<CgiHead>, HeadError> {
        while !input.is_empty() {
            let line_end = input.iter().position(|&byte| byte == b'\n');
            let (taken, rest) = input.split_at(line_end.map_or(input.len(), |end| end + 1));
            *input = rest;
            self.length += taken.len();
            if self.length > self.limit {
                return Err(HeadError::TooLong { limit: self.limit });
            }
            self.head.block.extend_from_slice(taken);
            if line_end.is_some() && self.line()? {
                let head = std::mem::take(&mut self.head);
                self.line_start = 0;
                if !matches!(head.status, Some(100 | 101)) {
                    return Ok(Some(head));
                }
            }
        }
        Ok(None)
    }

    /// Reads the line that just became complete; true when it was the empty one.
    fn line(&mut self) -> Result<bool, HeadError> {
        let start = self.line_start;
        let line = &self.head.block[start..];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.line_start = self.head.block.len();
        if line.is_empty() {
            let has_nothing = self.head.fields.is_empty() && self.head.status.is_none();
            return match self.head.dropped {
                // The program has printed text without a head.
                Some(_) if has_nothing => Err(HeadError::NotAField),
                _ => Ok(true),
            };
        }
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err(HeadError::ControlCharacter);
        }
        // PHP sends this in place of Status if cgi.rfc2616_headers = 1.
        if start == 0 && line.starts_with(b"HTTP/1.") {
            self.head.status = Some(status(line.get(9..).unwrap_or_default())?);
            return Ok(false);
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
        let name = &line[..colon];
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            let line = range(start, line.len());
            self.head.dropped.get_or_insert(line);
            return Ok(false);
        }
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"status") {
            self.head.status = Some(status(value)?);
            return Ok(false);
        }
        let leading = line[colon + 1..].len() - line[colon + 1..].trim_ascii_start().len();
        let value_start = start + colon + 1 + leading;
        let field = FieldPlace {
            name: range(start, name.len()),
            value: range(value_start, value.len()),
        };
        self.head.fields.push(field);
        Ok(false)
    }
}

/// A place in a block, which never reaches 4 GiB: the limit is far below.
fn range(start: usize, length: usize) -> Range<u32> {
    start as u32..(start + length) as u32
}

/// Three digits, then nothing or a space and a reason.
fn status(value: &[u8]) -> Result<u16, HeadError> {
    let (digits, rest) = value.split_first_chunk::<3>().ok_or(HeadError::Status)?;
    if !digits.iter().all(u8::is_ascii_digit) || rest.first().is_some_and(|byte| !matches!(byte, b' ' | b'\t')) {
        return Err(HeadError::Status);
    }
    let status = digits
        .iter()
        .fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
    if status < 100 {
        Err(HeadError::Status)
    } else {
        Ok(status)
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The blocks in `pieces`, and the body after them.
    fn parse<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limit: usize,
    ) -> Result<(Vec<CgiHead>, Vec<u8>), HeadError> {
        let (mut parser, mut heads, mut body) = (HeadParser::new(limit), Vec::<CgiHead>::new(), Vec::new());
        for mut piece in pieces {
            while !piece.is_empty() && heads.last().is_none_or(CgiHead::is_interim) {
                heads.extend(parser.feed(&mut piece)?);
            }
            body.extend_from_slice(piece);
        }
        Ok((heads, body))
    }

    fn head(text: &str) -> CgiHead {
        let (mut heads, _) = parse([text.as_bytes()], 65_536).expect("a good head");
        heads.pop().expect("a complete head")
    }

    fn error(bytes: &[u8]) -> HeadError {
        parse([bytes], 65_536).expect_err("a bad head")
    }

    fn fields(head: &CgiHead) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).expect("ASCII");
        head.fields().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn lines_end_in_lf_crlf_or_both() {
        for text in [
            "A: 1\nB: 2\n\nbody",
            "A: 1\r\nB: 2\r\n\r\nbody",
            "A: 1\r\nB:2\n\r\nbody",
            "A: 1\nB: \t2 \r\n\nbody",
        ] {
            let (heads, body) = parse([text.as_bytes()], 100).expect(text);
            assert_eq!(fields(&heads[0]), [("A", "1"), ("B", "2")], "{text:?}");
            assert_eq!(body, b"body", "{text:?}");
        }
    }

    #[test]
    fn the_status_is_200_without_status_and_302_with_location_alone() {
        assert_eq!(head("Content-Type: text/html\n\n").status(), 200);
        assert_eq!(head("Location: https://example.org/\n\n").status(), 302);
        assert_eq!(head("Status: 201 Created\nLocation: /made\n\n").status(), 201);
        assert_eq!(head("status:404\n\n").status(), 404);
        assert_eq!(head("\n").status(), 200);
    }

    #[test]
    fn status_is_not_among_the_fields() {
        assert_eq!(fields(&head("Status: 404 Not Found\nA: b\n\n")), [("A", "b")]);
    }

    #[test]
    fn the_status_line_of_rfc2616_headers_counts_as_status() {
        let head = head("HTTP/1.1 403 Forbidden\r\nA: b\r\n\r\n");
        assert_eq!((head.status(), fields(&head)), (403, vec![("A", "b")]));
        assert_eq!(error(b"HTTP/1.1\n\n"), HeadError::Status);
    }

    #[test]
    fn location_without_status_redirects_the_client_or_ourselves() {
        assert_eq!(
            head("Location: /other?x\n\n").redirect(),
            CgiRedirect::Local(b"/other?x")
        );
        assert_eq!(head("Location: http://h/\n\n").redirect(), CgiRedirect::Client);
        assert_eq!(head("Location: //h/\n\n").redirect(), CgiRedirect::Client);
        assert_eq!(head("Status: 302\nLocation: /other\n\n").redirect(), CgiRedirect::None);
        assert_eq!(head("A: b\n\n").redirect(), CgiRedirect::None);
    }

    #[test]
    fn early_hints_come_first_and_100_and_101_never() {
        let text = b"Status: 100\n\nStatus: 103 Early Hints\nLink: </a.css>\n\nStatus: 101\nUpgrade: x\n\nA: b\n\nbody";
        let (heads, body) = parse([&text[..]], 1000).expect("good heads");
        assert_eq!(heads.iter().map(CgiHead::status).collect::<Vec<_>>(), [103, 200]);
        assert_eq!(fields(&heads[0]), [("Link", "</a.css>")]);
        assert_eq!(fields(&heads[1]), [("A", "b")]);
        assert_eq!(body, b"body");
    }

    #[test]
    fn every_set_cookie_is_kept() {
        let head = head("Set-Cookie: a=1\nX: y\nset-cookie: b=2\n\n");
        assert_eq!(
            fields(&head),
            [("Set-Cookie", "a=1"), ("X", "y"), ("set-cookie", "b=2")]
        );
        assert_eq!(head.field("SET-COOKIE"), Some(&b"a=1"[..]));
    }

    #[test]
    fn what_would_split_a_response_is_refused() {
        assert_eq!(error(b"A: b\rSet-Cookie: c\n\n"), HeadError::ControlCharacter);
        assert_eq!(error(b"A: b\0c\n\n"), HeadError::ControlCharacter);
        assert_eq!(error(b"A: b\n\r\r\n"), HeadError::ControlCharacter);
        for line in ["no colon", ": nameless", "na me: x", "name : x", "n\u{e4}me: x"] {
            assert_eq!(error(format!("{line}\n\n").as_bytes()), HeadError::NotAField, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_field_is_dropped_beside_fields() {
        for line in [
            "no colon",
            ": nameless",
            "na me: x",
            "name : x",
            " c: d",
            "n\u{e4}me: x",
        ] {
            let head = head(&format!("A: b\n{line}\nsecond\r\nC: d\n\n"));
            assert_eq!(fields(&head), [("A", "b"), ("C", "d")], "{line}");
            assert_eq!(head.dropped(), Some(line.as_bytes()));
        }
        assert_eq!(head("Status: 404\nno colon\n\n").status(), 404);
        assert_eq!(head("A: b\n\n").dropped(), None);
    }

    #[test]
    fn a_status_that_is_none_is_refused() {
        for status in ["", "20", "abc", "2000", "200OK", "099", "-20", "20 0"] {
            assert_eq!(
                error(format!("Status: {status}\n\n").as_bytes()),
                HeadError::Status,
                "{status:?}"
            );
        }
    }

    #[test]
    fn the_limit_counts_every_block() {
        assert!(parse([&b"A: 12\n\n"[..]], 7).is_ok());
        assert_eq!(parse([&b"A: 123\n\n"[..]], 7), Err(HeadError::TooLong { limit: 7 }));
        assert_eq!(parse([&[b'a'; 100][..]], 99), Err(HeadError::TooLong { limit: 99 }));
        assert!(parse([&b"Status: 103\n\n".repeat(100)[..]], 1000).is_err());
        assert!(parse([&b"Status: 100\n\n".repeat(100)[..]], 1000).is_err());
        assert!(parse([&b"A: 12\n\n and a body beyond it"[..]], 7).is_ok());
    }

    fn line() -> impl Strategy<Value = String> {
        prop_oneof![
            "[A-Za-z-]{1,8}: ?[ -~]{0,20}\r?\n",
            "Status: [0-9]{3}( [a-z]{0,5})?\r?\n",
            "Location: /{0,2}[a-z]{0,5}\n",
            "\r?\n",
            "[\\x00-\\x20:a-c]{0,6}\n?",
        ]
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            lines in prop::collection::vec(line(), 0..12), cuts in prop::collection::vec(any::<usize>(), 0..9),
        ) {
            let text = lines.concat().into_bytes();
            let whole = parse([&text[..]], 120);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            prop_assert_eq!(&whole, &parse(cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]), 120));
            prop_assert_eq!(&whole, &parse(text.chunks(1), 120));
        }

        #[test]
        fn no_field_can_split_a_response(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut text = b"X: ".to_vec();
            text.extend(bytes);
            text.extend(b"\n\n");
            for head in parse([&text[..]], 1000).map(|(heads, _)| heads).unwrap_or_default() {
                for (name, value) in head.fields() {
                    prop_assert!(!name.is_empty() && name.iter().all(|&byte| is_token(byte)));
                    prop_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
                }
            }
        }
    }
}
