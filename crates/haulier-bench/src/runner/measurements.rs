//! Figures and answers that one thread collects.

use crate::answer::Captured;
use crate::job::SliceJob;
use crate::result::Failures;
use crate::sample::Tally;

/// Picks the counter of a failure.
pub(super) type FailureClass = fn(&mut Failures) -> &mut u64;

/// The tally of a thread, and the answers that it keeps.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) tally: Tally,
    /// The first answer of the first connection, if it is wanted.
    captured: Captured,
    is_capturing: bool,
    /// The answer of each connection, if all answers are kept.
    answers: Vec<Captured>,
}

impl Measurements {
    pub(super) fn new(job: &SliceJob, connections: u32) -> Self {
        Self {
            tally: Tally::default(),
            captured: Captured::default(),
            is_capturing: job.capture,
            answers: vec![Captured::default(); if job.keep_answers { connections as usize } else { 0 }],
        }
    }

    /// The place for the answer on a connection, if it is kept.
    pub(super) fn capture(&mut self, id: usize) -> Option<&mut Captured> {
        match self.answers.get_mut(id) {
            Some(answer) => Some(answer),
            // Of one connection only: the pieces of two answers must not mix.
            None => (id == 0 && self.is_capturing).then_some(&mut self.captured),
        }
    }

    /// Keeps the answer on a connection, which is complete.
    pub(super) fn end_capture(&mut self, id: usize) {
        self.is_capturing &= id != 0;
        if let Some(answer) = self.answers.get_mut(id) {
            self.tally.seen.push(std::mem::take(answer));
        }
    }

    /// Notes version and cipher suite of the first connection.
    pub(super) fn note_tls(&mut self, id: usize, words: impl FnOnce() -> Option<String>) {
        if id == 0 && self.is_capturing {
            self.captured.tls = words();
        }
    }

    pub(super) fn note_failure(&mut self, class: FailureClass, now: u64) {
        *class(&mut self.tally.failures) += 1;
        self.tally.seconds.fail(now);
        self.tally.elapsed = now;
    }

    /// Counts a due request without an answer. Its latency is at least its time so far: without it the longest times
    /// would be missing, and percentiles would look better the more of them there are.
    pub(super) fn note_unanswered(&mut self, due: u64, now: u64) {
        self.tally.failures.unanswered += 1;
        self.tally.latency.record(now.saturating_sub(due));
        self.tally.seconds.fail(now);
    }

    /// The tally, and the first answer.
    pub(super) fn finish(self) -> (Tally, Captured) {
        let first = self.tally.seen.first().cloned();
        (self.tally, first.unwrap_or(self.captured))
    }
}
