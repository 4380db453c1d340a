//! The time: read once a tick for deadlines and Date fields, precisely for durations in the log.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use haulier_proto::h2::hpack;

/// The time of the last tick, shared by all requests of a thread.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Instant>,
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
    /// The Date field, encoded for HTTP/2.
    date_block: RefCell<Vec<u8>>,
}

impl Clock {
    /// Interval between calls of [`Clock::tick`].
    pub(crate) const TICK: Duration = Duration::from_millis(100);

    pub(crate) fn new() -> Self {
        let clock = Self {
            now: Cell::new(now()),
            second: Cell::new(0),
            date: RefCell::new([b' '; 29]),
            date_block: RefCell::default(),
        };
        clock.tick();
        clock
    }

    /// Reads the clocks.
    pub(crate) fn tick(&self) {
        self.now.set(now());
        let second = unix_time().as_secs();
        if second != self.second.replace(second) {
            let date = haulier_proto::date::format(second);
            let mut block = self.date_block.borrow_mut();
            block.clear();
            hpack::encode::field(&mut block, b"date", &date);
            *self.date.borrow_mut() = date;
        }
    }

    /// The time of the last tick.
    pub(crate) fn coarse(&self) -> Instant {
        self.now.get()
    }

    /// Appends the value of a Date field.
    pub(crate) fn append_date(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&*self.date.borrow());
    }

    /// Appends the Date field, encoded for HTTP/2.
    pub(crate) fn append_date_block(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.date_block.borrow());
    }
}

/// The precise time, for durations in the log.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time since 1970.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
