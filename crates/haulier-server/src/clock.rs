//! The time: read once a tick for deadlines and Date fields, precisely for durations that are logged.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use haulier_proto::h2::hpack;

/// The time, read once a tick instead of once a request.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Instant>,
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
    /// The Date field as HTTP/2 sends it.
    date_block: RefCell<Vec<u8>>,
}

impl Clock {
    /// How often [`Clock::tick`] is called.
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
        let second = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
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

    /// Appends a Date field as HTTP/2 sends it.
    pub(crate) fn append_date_block(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.date_block.borrow());
    }
}

/// The precise time, for durations that are logged.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
