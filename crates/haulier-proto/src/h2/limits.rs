//! Limits of one connection, and the budgets that count them.

use std::time::{Duration, Instant};

use super::settings::Settings;

/// The time over which hostile behaviour is counted.
const PERIOD: Duration = Duration::from_secs(60);

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Streams open at once; a further one is refused.
    pub streams: u32,
    /// Bytes of a request body that may be under way unread on one stream.
    pub stream_window: u32,
    /// The same for the whole connection: the memory that uploads may hold.
    pub connection_window: u32,
    /// A request's field lines as RFC 9113 §6.5.2 counts them: names, values, 32 bytes each. Above it: 431.
    pub header_list: u32,
    /// A request's field lines, pieces of a cookie counted one by one. Above it: 431.
    pub fields: u32,
    /// `:path`, bytes. Above it: 414.
    pub path: u32,
    /// Field lines of all open streams together, counted as `header_list` counts; a further stream is refused.
    pub all_heads: u32,
    /// Bytes of the dynamic table that the client may fill in our decoder.
    pub table: u32,
    /// CONTINUATION frames of one field block. Above it the connection ends.
    pub continuations: u32,
    /// Streams reset in a minute: by the client (CVE-2023-44487), or by us for the client's fault (CVE-2025-8671).
    pub resets: u32,
    /// Frames in a minute that cost work and carry no data: SETTINGS, PING, PRIORITY, empty DATA, unknown ones, and
    /// WINDOW_UPDATE beyond what our own DATA calls for.
    pub control_frames: u32,
    /// The time that an answer may wait for the client to open its window.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window: 64 * 1024,
            connection_window: 1024 * 1024,
            header_list: 32 * 1024,
            fields: 100,
            path: 16 * 1024,
            all_heads: 512 * 1024,
            table: 4096,
            continuations: 8,
            resets: 200,
            control_frames: 1000,
            stall: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The limits that the client is told.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            header_table_size: self.table,
            // A server must not send ENABLE_PUSH = 1 (RFC 9113 §6.5.2): as the default it is not sent.
            enable_push: true,
            max_concurrent_streams: self.streams,
            initial_window_size: self.stream_window,
            max_header_list_size: self.header_list,
            ..Settings::default()
        }
    }

    /// Bytes of a compressed block held until it is complete: a list that is merely too large is still answered by 431.
    pub(super) fn block(&self) -> usize {
        self.header_list as usize * 2
    }
}

/// Counts one kind of behaviour, minute by minute.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinuteBudget {
    most: u32,
    spent: u32,
    since: Instant,
}

impl MinuteBudget {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        Self {
            most,
            spent: 0,
            since: now,
        }
    }

    /// Counts one event; false if a minute allows no more.
    #[must_use]
    pub(super) fn spend(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= PERIOD {
            self.since = now;
            self.spent = 0;
        }
        self.spent = self.spent.saturating_add(1);
        self.spent <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_new_every_minute() {
        let start = Instant::now();
        let mut budget = MinuteBudget::new(2, start);
        assert!(budget.spend(start) && budget.spend(start + Duration::from_secs(59)));
        assert!(!budget.spend(start + Duration::from_secs(59)));
        assert!(budget.spend(start + Duration::from_secs(60)));
    }
}
