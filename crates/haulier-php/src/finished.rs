//! `fastcgi_finish_request()` and `headers_send()` for php-cgi: a script says that its answer is complete, and goes on, or
//! that its links are worth an interim response.
//!
//! php-cgi has no such functions. The prelude defines them, and says it by a line of STDERR, which php-cgi keeps in order
//! with the body. Its beginning is a secret of this process, so that nothing that a script logs can end its answer.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use haulier_proto::fastcgi::{CgiHead, HeadParser};
use tokio::time::Sleep;

use crate::exchange::Exchange;
use crate::lease::Lease;
use crate::response::log_stderr;

thread_local! {
    /// Held by every script of this thread that goes on behind its answer.
    static SCRIPTS: RefCell<Arc<()>> = RefCell::default();
}

/// What a line of STDERR begins with that is a script's word to the server: random for the process, hexadecimal.
pub fn finish_marker() -> &'static str {
    static MARKER: OnceLock<String> = OnceLock::new();
    MARKER.get_or_init(|| {
        let random = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}", random(), random())
    })
}

/// Scripts of this thread that go on behind their answers. They end with the thread's runtime.
pub fn scripts_behind_answers() -> usize {
    SCRIPTS.with_borrow(|scripts| Arc::strong_count(scripts) - 1)
}

/// What a script says to the server beside its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// Its answer is complete.
    Finished,
    /// These field lines are to be sent as an interim head now; [`SEPARATOR`] stands between them.
    EarlyHints(Vec<u8>),
}

/// Stands behind the marker where field lines follow, and between these. No field line of PHP has one.
const SEPARATOR: u8 = 0x1f;
/// Longest field lines of an interim head, bytes.
const LONGEST_HINTS: usize = 16 * 1024;

/// Where in a line of STDERR the reading stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InLine {
    /// All of it so far are the first bytes of the marker: so many.
    Marker(usize),
    /// Behind the marker, in field lines.
    Hints,
    /// In what a script or PHP logs.
    Other,
}

/// Finds in STDERR what scripts say to the server, whatever pieces it comes in.
#[derive(Debug)]
pub(crate) struct MarkerFinder {
    place: InLine,
    hints: Vec<u8>,
}

impl Default for MarkerFinder {
    fn default() -> Self {
        Self {
            place: InLine::Marker(0),
            hints: Vec::new(),
        }
    }
}

impl MarkerFinder {
    /// Takes what came of STDERR; gives everything that is for the log to `keep`, and what is for the server to `say`.
    pub(crate) fn feed(&mut self, mut content: &[u8], mut keep: impl FnMut(&[u8]), mut say: impl FnMut(Word)) {
        let marker = finish_marker().as_bytes();
        while let Some(&next) = content.first() {
            match self.place {
                InLine::Marker(matched) if marker.get(matched) == Some(&next) => {
                    self.place = InLine::Marker(matched + 1);
                    content = &content[1..];
                }
                InLine::Marker(matched) if matched == marker.len() && matches!(next, b'\n' | SEPARATOR) => {
                    content = &content[1..];
                    if next == SEPARATOR {
                        self.place = InLine::Hints;
                    } else {
                        self.place = InLine::Marker(0);
                        say(Word::Finished);
                    }
                }
                InLine::Marker(matched) => {
                    keep(&marker[..matched]);
                    self.place = InLine::Other;
                }
                InLine::Hints => {
                    let (piece, is_end) = rest_of_line(&mut content);
                    let room = LONGEST_HINTS - self.hints.len();
                    self.hints.extend_from_slice(&piece[..piece.len().min(room)]);
                    if is_end {
                        self.place = InLine::Marker(0);
                        say(Word::EarlyHints(std::mem::take(&mut self.hints)));
                    }
                }
                InLine::Other => {
                    let before = content;
                    let (piece, is_end) = rest_of_line(&mut content);
                    keep(&before[..piece.len() + usize::from(is_end)]);
                    if is_end {
                        self.place = InLine::Marker(0);
                    }
                }
            }
        }
    }
}

/// What is there of a line, without its end, and whether that is there; `content` is advanced past both.
fn rest_of_line<'c>(content: &mut &'c [u8]) -> (&'c [u8], bool) {
    let end = content.iter().position(|&byte| byte == b'\n');
    let (piece, rest) = content.split_at(end.unwrap_or(content.len()));
    *content = rest.get(1..).unwrap_or_default();
    (piece, end.is_some())
}

/// The interim head of these field lines, if that is what they make.
pub(crate) fn early_hints(lines: &[u8]) -> Option<CgiHead> {
    let mut text = b"Status: 103\n".to_vec();
    text.extend(lines.iter().map(|&byte| if byte == SEPARATOR { b'\n' } else { byte }));
    text.extend(b"\n\n");
    let head = HeadParser::new(text.len()).feed(&mut &text[..]).ok().flatten()?;
    head.is_interim().then_some(head)
}

/// A script that goes on behind its answer: what it still writes is dropped, and its worker is free when it ends.
#[derive(Debug)]
pub(crate) struct Behind {
    exchange: Exchange,
    /// `None` once the worker was given back.
    lease: Option<Lease>,
    label: String,
    begun: Instant,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    _counted: Arc<()>,
}

impl Behind {
    /// Has the current runtime look after the rest of a script.
    pub(crate) fn start(exchange: Exchange, mut lease: Lease, label: String) {
        lease.note(|| label.clone());
        let behind = Self {
            exchange,
            limit: lease.timeout(),
            lease: Some(lease),
            label,
            begun: Instant::now(),
            timer: None,
            _counted: SCRIPTS.with_borrow(Arc::clone),
        };
        tokio::spawn(behind);
    }

    /// Whether the script has had its time. A script that never stops writing leaves its timer no turn.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun.elapsed() >= self.limit {
            return Poll::Ready(());
        }
        let left = self.limit.saturating_sub(self.begun.elapsed());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        timer.as_mut().poll(cx)
    }
}

impl Future for Behind {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        while let Some(lease) = &this.lease {
            let step = this.exchange.poll_step(cx, lease.connection(), None);
            let is_over = matches!(step, Poll::Ready(Err(_))) || this.exchange.is_complete();
            if !is_over && (step.is_pending() || this.begun.elapsed() >= this.limit) {
                ready!(this.poll_limit(cx));
            } else if !is_over {
                continue;
            }
            let (lease, stderr) = (
                this.lease.take().expect("it was there above"),
                this.exchange.take_stderr(),
            );
            match step {
                Poll::Ready(Err(failure)) => _ = lease.give_up(failure, &stderr, &this.label),
                _ if is_over => {
                    log_stderr(lease.pid(), &this.label, &stderr);
                    lease.finish(this.exchange.is_reusable());
                }
                _ => _ = lease.time_out_behind(this.limit, &stderr, &this.label),
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of STDERR that comes in pieces of this size, and what was said in it.
    fn fed(stderr: &str, size: usize) -> (String, Vec<Word>) {
        let (mut finder, mut kept, mut said) = (MarkerFinder::default(), Vec::new(), Vec::new());
        for piece in stderr.as_bytes().chunks(size) {
            finder.feed(piece, |bytes| kept.extend_from_slice(bytes), |word| said.push(word));
        }
        (String::from_utf8(kept).expect("text"), said)
    }

    #[test]
    fn the_marker_is_found_as_a_line_in_whatever_pieces_it_comes() {
        let marker = finish_marker();
        for size in [1, 2, 7, 33, 1000] {
            assert_eq!(
                fed(&format!("{marker}\n"), size),
                (String::new(), vec![Word::Finished]),
                "{size}"
            );
            let between = format!("before\n{marker}\nbehind\n\n");
            assert_eq!(
                fed(&between, size),
                ("before\nbehind\n\n".into(), vec![Word::Finished]),
                "{size}"
            );
            let hints = format!("{marker}\u{1f}Link: </a>\u{1f}Link: </b>\n{marker}\nbehind");
            let word = Word::EarlyHints(b"Link: </a>\x1fLink: </b>".to_vec());
            assert_eq!(
                fed(&hints, size),
                ("behind".into(), vec![word, Word::Finished]),
                "{size}"
            );
        }
    }

    #[test]
    fn what_is_no_line_of_its_own_is_no_marker() {
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
