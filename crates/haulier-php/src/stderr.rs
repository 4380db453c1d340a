//! PHP's standard error: its last lines for crash reports, and log lines.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Lines kept.
const LINES: usize = 20;
/// Characters kept of a line.
const LINE: usize = 1000;

/// The last lines that the processes of a pool wrote to stderr outside of requests, each with its time.
#[derive(Debug, Default)]
pub(crate) struct StderrTail(Mutex<VecDeque<(Instant, String)>>);

impl StderrTail {
    /// Adds a line.
    pub(crate) fn push(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back((Instant::now(), line.chars().take(LINE).collect()));
    }

    /// The last lines that a request wrote, then the lines of processes since it began, which may be of other workers.
    pub(crate) fn tail(&self, stderr: &[u8], since: Instant) -> String {
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

/// Logs STDERR output that arrived after the response head was passed on.
pub(crate) fn log_late_stderr(pid: Option<u32>, request: &str, stderr: &[u8]) {
    if !stderr.is_empty() {
        let stderr = String::from_utf8_lossy(stderr);
        tracing::warn!(
            pid,
            request,
            stderr = stderr.trim_end(),
            "PHP wrote to its error log after the head of its response"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_that_of_both_streams() {
        let stderr = StderrTail::default();
        stderr.push("before");
        let begun = Instant::now();
        assert_eq!(stderr.tail(b"", begun), "");
        (0..30).for_each(|number| stderr.push(&format!("line {number}")));
        let tail = stderr.tail(b"of the script\n", begun);
        assert_eq!(tail.lines().count(), 21);
        assert!(
            tail.starts_with("of the script\nline 10\n") && tail.ends_with("line 29"),
            "{tail}"
        );
        stderr.push(&"ä".repeat(LINE));
        assert!(stderr.tail(b"", begun).len() < 3 * LINE);
    }
}
