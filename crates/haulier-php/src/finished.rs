//! `fastcgi_finish_request()` for php-cgi: a script says that its answer is complete, and goes on.
//!
//! php-cgi has no such function. The prelude defines it, and says it by a line of STDERR, which php-cgi keeps in order
//! with the body. The line is a secret of this process, so that nothing that a script logs can end its answer.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use crate::exchange::Exchange;
use crate::lease::Lease;
use crate::response::log_stderr;

thread_local! {
    /// Held by every script of this thread that goes on behind its answer.
    static SCRIPTS: RefCell<Arc<()>> = RefCell::default();
}

/// The line by which a script says that its answer is complete, without its end: random for the process, hexadecimal.
pub fn finish_marker() -> &'static str {
    let line = marker_line();
    &line[..line.len() - 1]
}

fn marker_line() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| {
        let random = || RandomState::new().build_hasher().finish();
        format!("{:016x}{:016x}\n", random(), random())
    })
}

/// Scripts of this thread that go on behind their answers. They end with the thread's runtime.
pub fn scripts_behind_answers() -> usize {
    SCRIPTS.with_borrow(|scripts| Arc::strong_count(scripts) - 1)
}

/// Finds the marker in STDERR, whatever pieces it comes in.
#[derive(Debug, Default)]
pub(crate) struct MarkerFinder {
    /// Bytes of the line so far, all of which are the marker's; `None` in a line that is another one.
    matched: Option<usize>,
    /// A line has begun.
    in_line: bool,
}

impl MarkerFinder {
    /// Takes what came of STDERR; gives everything but the marker to `keep`. True if the marker was complete in it.
    pub(crate) fn feed(&mut self, mut content: &[u8], mut keep: impl FnMut(&[u8])) -> bool {
        let (line, mut found) = (marker_line().as_bytes(), false);
        while !content.is_empty() {
            if !std::mem::replace(&mut self.in_line, true) {
                self.matched = Some(0);
            }
            let end = content
                .iter()
                .position(|&byte| byte == b'\n')
                .map_or(content.len(), |end| end + 1);
            let (piece, rest) = content.split_at(end);
            content = rest;
            self.in_line = !piece.ends_with(b"\n");
            let Some(matched) = self.matched else {
                keep(piece);
                continue;
            };
            if line[matched..].starts_with(piece) {
                self.matched = Some(matched + piece.len());
                found |= matched + piece.len() == line.len();
            } else {
                self.matched = None;
                keep(&line[..matched]);
                keep(piece);
            }
        }
        found
    }
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

    /// What is kept of STDERR that comes in pieces of this size, and whether the marker was in it.
    fn fed(stderr: &str, size: usize) -> (String, bool) {
        let (mut finder, mut kept, mut found) = (MarkerFinder::default(), Vec::new(), false);
        for piece in stderr.as_bytes().chunks(size) {
            found |= finder.feed(piece, |bytes| kept.extend_from_slice(bytes));
        }
        (String::from_utf8(kept).expect("text"), found)
    }

    #[test]
    fn the_marker_is_found_as_a_line_in_whatever_pieces_it_comes() {
        let marker = finish_marker();
        for size in [1, 2, 7, 33, 1000] {
            assert_eq!(fed(&format!("{marker}\n"), size), (String::new(), true), "{size}");
            let between = format!("before\n{marker}\nbehind\n");
            assert_eq!(fed(&between, size), ("before\nbehind\n".into(), true), "{size}");
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
                assert_eq!(fed(&other, size), (other.clone(), false), "{size}");
            }
        }
    }
}
