//! What PHP's processes wrote to their stderr lately, outside of requests: the last words of one that crashed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lines that are kept.
const LINES: usize = 20;
/// Letters of a line that are kept.
const LINE: usize = 1000;

/// The last lines of a pool, each with its time.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<VecDeque<(Instant, String)>>);

impl Heard {
    /// Notes a line.
    pub(crate) fn note(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back((Instant::now(), line.chars().take(LINE).collect()));
    }

    /// The end of what a request wrote, and the lines that have come since then: of its worker, or of another one.
    pub(crate) fn last_words(&self, stderr: &[u8], since: Instant) -> String {
        let stderr = String::from_utf8_lossy(stderr);
        let of_request: Vec<&str> = stderr.lines().collect();
        let of_request = &of_request[of_request.len().saturating_sub(LINES)..];
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_processes = lines
            .iter()
            .filter(|(time, _)| *time >= since)
            .map(|(_, line)| line.as_str());
        let all: Vec<&str> = of_request.iter().copied().chain(of_processes).collect();
        all.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_the_ends_of_both_streams() {
        let heard = Heard::default();
        heard.note("before");
        let begun = Instant::now();
        assert_eq!(heard.last_words(b"", begun), "");
        (0..30).for_each(|number| heard.note(&format!("line {number}")));
        let words = heard.last_words(b"of the script\n", begun);
        assert_eq!(words.lines().count(), 21);
        assert!(
            words.starts_with("of the script\nline 10\n") && words.ends_with("line 29"),
            "{words}"
        );
        heard.note(&"ä".repeat(LINE));
        assert!(heard.last_words(b"", begun).len() < 3 * LINE);
    }
}
