//! `fastcgi_finish_request()` and `headers_send()` for php-cgi: a script announces that its response is complete
//! although it continues, or sends field lines of an interim response.
//!
//! php-cgi lacks these functions. The prelude defines them and writes each announcement as a line to STDERR, which
//! php-cgi keeps in order with the body. The line begins with a secret of this process, so no line that a script logs
//! can end its response.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use haulier_proto::fastcgi::{CgiHead, HeadParser};

/// Prefix of the STDERR lines that are announcements: hexadecimal digits, random per process.
pub fn finish_marker() -> &'static str {
    static MARKER: OnceLock<String> = OnceLock::new();
    MARKER.get_or_init(|| {
        let random = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}", random(), random())
    })
}

/// An announcement of a script to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// The response is complete.
    Finished,
    /// Field lines to send as an interim head now, with a [`SEPARATOR`] between them.
    EarlyHints(Vec<u8>),
}

/// Follows the marker before field lines, and separates them. No field line of PHP contains it.
const SEPARATOR: u8 = 0x1f;
/// Longest interim head, bytes.
const LONGEST_HINTS: usize = 16 * 1024;

/// Position of the reader in a line of STDERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InLine {
    /// In the marker, after this number of its bytes.
    Marker(usize),
    /// After the marker, in field lines.
    Hints,
    /// In a log line of a script or of PHP.
    Other,
}

/// Finds announcements in STDERR, which may come in pieces of any size.
#[derive(Debug)]
pub(crate) struct MarkerFinder {
    position: InLine,
    hints: Vec<u8>,
}

impl Default for MarkerFinder {
    fn default() -> Self {
        Self {
            position: InLine::Marker(0),
            hints: Vec::new(),
        }
    }
}

impl MarkerFinder {
    /// Processes a piece of STDERR: log text goes to `keep`, announcements to `announce`.
    pub(crate) fn feed(
        &mut self,
        mut content: &[u8],
        mut keep: impl FnMut(&[u8]),
        mut announce: impl FnMut(Announcement),
    ) {
        let marker = finish_marker().as_bytes();
        while let Some(&next) = content.first() {
            match self.position {
                InLine::Marker(matched) if marker.get(matched) == Some(&next) => {
                    self.position = InLine::Marker(matched + 1);
                    content = &content[1..];
                }
                InLine::Marker(matched) if matched == marker.len() && matches!(next, b'\n' | SEPARATOR) => {
                    content = &content[1..];
                    if next == SEPARATOR {
                        self.position = InLine::Hints;
                    } else {
                        self.position = InLine::Marker(0);
                        announce(Announcement::Finished);
                    }
                }
                InLine::Marker(matched) => {
                    keep(&marker[..matched]);
                    self.position = InLine::Other;
                }
                InLine::Hints => {
                    let (piece, is_end) = rest_of_line(&mut content);
                    let room = LONGEST_HINTS - self.hints.len();
                    self.hints.extend_from_slice(&piece[..piece.len().min(room)]);
                    if is_end {
                        self.position = InLine::Marker(0);
                        announce(Announcement::EarlyHints(std::mem::take(&mut self.hints)));
                    }
                }
                InLine::Other => {
                    let before = content;
                    let (piece, is_end) = rest_of_line(&mut content);
                    keep(&before[..piece.len() + usize::from(is_end)]);
                    if is_end {
                        self.position = InLine::Marker(0);
                    }
                }
            }
        }
    }
}

/// Splits off the rest of the line, with true if it is complete; `content` advances past its line end.
fn rest_of_line<'c>(content: &mut &'c [u8]) -> (&'c [u8], bool) {
    let end = content.iter().position(|&byte| byte == b'\n');
    let (piece, rest) = content.split_at(end.unwrap_or(content.len()));
    *content = rest.get(1..).unwrap_or_default();
    (piece, end.is_some())
}

/// The interim head of these field lines; `None` if they are invalid.
pub(crate) fn early_hints(lines: &[u8]) -> Option<CgiHead> {
    let mut text = b"Status: 103\n".to_vec();
    text.extend(lines.iter().map(|&byte| if byte == SEPARATOR { b'\n' } else { byte }));
    text.extend(b"\n\n");
    let head = HeadParser::new(text.len()).feed(&mut &text[..]).ok().flatten()?;
    head.is_interim().then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of STDERR in pieces of this size, and the announcements in it.
    fn fed(stderr: &str, size: usize) -> (String, Vec<Announcement>) {
        let (mut finder, mut kept, mut announced) = (MarkerFinder::default(), Vec::new(), Vec::new());
        for piece in stderr.as_bytes().chunks(size) {
            finder.feed(piece, |bytes| kept.extend_from_slice(bytes), |one| announced.push(one));
        }
        (String::from_utf8(kept).expect("text"), announced)
    }

    #[test]
    fn the_marker_is_found_as_a_line_in_pieces_of_any_size() {
        let marker = finish_marker();
        for size in [1, 2, 7, 33, 1000] {
            assert_eq!(
                fed(&format!("{marker}\n"), size),
                (String::new(), vec![Announcement::Finished]),
                "{size}"
            );
            let between = format!("before\n{marker}\nbehind\n\n");
            assert_eq!(
                fed(&between, size),
                ("before\nbehind\n\n".into(), vec![Announcement::Finished]),
                "{size}"
            );
            let hints = format!("{marker}\u{1f}Link: </a>\u{1f}Link: </b>\n{marker}\nbehind");
            let announcement = Announcement::EarlyHints(b"Link: </a>\x1fLink: </b>".to_vec());
            assert_eq!(
                fed(&hints, size),
                ("behind".into(), vec![announcement, Announcement::Finished]),
                "{size}"
            );
        }
    }

    #[test]
    fn only_a_line_of_its_own_is_a_marker() {
        let marker = finish_marker();
        for other in [
            format!("x{marker}\n"),
            format!("{marker}x\n"),
            format!(" {marker}\n"),
            format!("{}\n", &marker[1..]),
            format!("{}\n{}\n", &marker[..9], &marker[9..]),
            "0".repeat(marker.len()) + "\n",
            "\n\n".to_owned(),
        ] {
            for size in [1, 5, 1000] {
                assert_eq!(fed(&other, size), (other.clone(), Vec::new()), "{size}");
            }
        }
    }

    #[test]
    fn hints_become_an_interim_head_and_nothing_else() {
        let head = early_hints(b"Link: </a>\x1fLink: </b>").expect("a head");
        assert_eq!((head.status(), head.fields().len()), (103, 2));
        assert_eq!(early_hints(b"Status: 200\x1fLink: </b>"), None);
        assert_eq!(early_hints(b"Link: a\rb"), None);
    }
}
