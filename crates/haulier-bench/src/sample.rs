//! Tallies of requests: one for each thread, added up afterwards. Their size does not depend on the number of requests.

use serde::{Deserialize, Serialize};

use super::answer::Captured;
use super::histogram::Histogram;
use super::result::{Bytes, Failures};

/// Entries of a timeline, beyond which two become one.
const MOST_SECONDS: usize = 120;

/// Counts and times of one thread, process or slice.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Complete, good answers.
    pub requests: u64,
    /// Those of them that an open loop sent after its end. They count in the latency, but in no rate.
    pub after_end: u64,
    pub failures: Failures,
    /// Answers by status. A list, because a run has few of them.
    pub statuses: Vec<(u16, u64)>,
    pub connections_opened: u64,
    /// Complete answers after which the server kept the connection.
    pub kept_alive: u64,
    pub bytes: Bytes,
    /// From the moment the request was due (open loop) or begun (closed loop) to the last byte. A request without an
    /// answer in an open loop counts with its time so far.
    pub latency: Histogram,
    /// From sending to the last byte; open loop only.
    pub service: Histogram,
    /// Latency without the time to connect; as `ab` only.
    pub processing: Histogram,
    /// From sending to the first byte.
    pub first_byte: Histogram,
    /// From the first packet of a connection until it was established, TLS included.
    pub connect: Histogram,
    /// Delay of sending while a connection was free; open loop only.
    pub sent_late: Histogram,
    /// Requests due while all connections were busy; open loop only.
    pub waited: u64,
    pub seconds: Timeline,
    /// From the start to the last answer, or the end of the time given; ns.
    pub elapsed: u64,
    pub cpu: GeneratorCpu,
    /// Every answer, if they are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Captured>,
    /// Times of every request, if they are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<RequestTimes>,
}

/// The times of one request, µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTimes {
    /// Start, since 1970.
    pub started: u64,
    /// Until the connection was established; 0 on a kept one.
    pub connect: u64,
    /// From sending to the first byte.
    pub wait: u64,
    /// Until the last byte.
    pub total: u64,
}

/// CPU time of the generator.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct GeneratorCpu {
    /// User and system time of all threads, ns.
    pub total: u64,
    /// Of that in user mode, to 10 ms, ns.
    pub user: u64,
    /// Share of a core that the busiest thread used, 0 to 1.
    pub busiest: f64,
}

impl Tally {
    /// Adds the tally of another thread or process of the same slice.
    pub fn merge(&mut self, other: &Self) {
        self.add_counts(other);
        self.seconds.merge(&other.seconds);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// Adds the tally of a later slice.
    pub fn append(&mut self, other: &Self) {
        self.add_counts(other);
        self.elapsed += other.elapsed;
    }

    fn add_counts(&mut self, other: &Self) {
        self.requests += other.requests;
        self.after_end += other.after_end;
        self.failures.add(&other.failures);
        for (status, count) in &other.statuses {
            self.count_status(*status, *count);
        }
        self.connections_opened += other.connections_opened;
        self.kept_alive += other.kept_alive;
        self.bytes.received += other.bytes.received;
        self.bytes.sent += other.bytes.sent;
        self.bytes.body += other.bytes.body;
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.processing.add(&other.processing);
        self.first_byte.add(&other.first_byte);
        self.connect.add(&other.connect);
        self.sent_late.add(&other.sent_late);
        self.waited += other.waited;
        self.cpu.total += other.cpu.total;
        self.cpu.user += other.cpu.user;
        self.cpu.busiest = self.cpu.busiest.max(other.cpu.busiest);
        self.times.extend_from_slice(&other.times);
        self.seen.extend_from_slice(&other.seen);
    }

    pub(super) fn count_status(&mut self, status: u16, times: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += times,
            None => self.statuses.push((status, times)),
        }
    }

    /// Complete answers, including those that failed by status, length or body.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.requests + self.failures.status + self.failures.length + self.failures.body
    }

    /// Good answers a second, to requests sent before the end.
    #[must_use]
    pub fn rate(&self) -> f64 {
        per_second(self.requests - self.after_end, self.elapsed)
    }
}

/// `count` per second; 0 without time.
pub(super) fn per_second(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 {
        0.0
    } else {
        count as f64 * 1e9 / nanoseconds as f64
    }
}

/// Answers by time: seconds, or 2, 4, 8 … of them together in a long slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timeline {
    /// Seconds of one entry.
    pub width: u64,
    pub entries: Vec<Moment>,
    /// Time of the last answer or failure since the start, ns.
    pub last: u64,
}

/// An entry with its start and length.
#[derive(Debug, Clone)]
pub struct Stretch {
    /// Since the start of the slice, s.
    pub from: f64,
    /// s; shorter than an entry if the slice ended within it.
    pub length: f64,
    pub moment: Moment,
}

/// One entry of a [`Timeline`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Moment {
    pub failed: u64,
    pub latency: CoarseTimes,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            width: 1,
            entries: Vec::new(),
            last: 0,
        }
    }
}

impl Timeline {
    /// Counts a good answer at `now` that took `latency`; ns.
    pub(super) fn record(&mut self, now: u64, latency: u64) {
        self.at(now).latency.record(latency);
    }

    pub(super) fn fail(&mut self, now: u64) {
        self.at(now).failed += 1;
    }

    /// The entries of a slice that took `elapsed` (ns), including empty ones.
    ///
    /// A last entry shorter than half its width joins the one before it: its few requests make no rate.
    #[must_use]
    pub fn stretches(&self, elapsed: u64) -> Vec<Stretch> {
        let (end, width) = (elapsed.max(self.last) as f64 / 1e9, self.width as f64);
        let mut stretches: Vec<Stretch> = Vec::new();
        for place in 0..self.entries.len().max((end / width).ceil() as usize) {
            let from = place as f64 * width;
            let length = (end - from).min(width);
            let moment = self.entries.get(place).cloned().unwrap_or_default();
            match stretches.last_mut() {
                Some(before) if length < width / 2.0 => {
                    before.length += length.max(0.0);
                    before.moment.add(&moment);
                }
                _ => stretches.push(Stretch { from, length, moment }),
            }
        }
        stretches
    }

    fn at(&mut self, now: u64) -> &mut Moment {
        self.last = self.last.max(now);
        let mut place = (now / 1_000_000_000 / self.width) as usize;
        while place >= MOST_SECONDS {
            self.halve();
            place /= 2;
        }
        if place >= self.entries.len() {
            self.entries.resize_with(place + 1, Moment::default);
        }
        &mut self.entries[place]
    }

    fn halve(&mut self) {
        let pairs = self.entries.chunks(2).map(|pair| {
            let mut both = pair[0].clone();
            if let Some(second) = pair.get(1) {
                both.add(second);
            }
            both
        });
        self.entries = pairs.collect();
        self.width *= 2;
    }

    fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.width < other.width {
            self.halve();
        }
        while other.width < self.width {
            other.halve();
        }
        if self.entries.len() < other.entries.len() {
            self.entries.resize_with(other.entries.len(), Moment::default);
        }
        for (mine, theirs) in self.entries.iter_mut().zip(&other.entries) {
            mine.add(theirs);
        }
        self.last = self.last.max(other.last);
    }
}

impl Moment {
    fn add(&mut self, other: &Self) {
        self.failed += other.failed;
        self.latency.add(&other.latency);
    }
}

/// Times to about 3 %, in 4 KB: 32 steps for each power of two.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CoarseTimes {
    count: u64,
    /// By step; as long as the longest time needs.
    steps: Vec<u32>,
}

const STEPS: u64 = 32;

impl CoarseTimes {
    fn record(&mut self, nanoseconds: u64) {
        let step = step_of(nanoseconds / 1000);
        if step >= self.steps.len() {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] = self.steps[step].saturating_add(1);
        self.count += 1;
    }

    fn add(&mut self, other: &Self) {
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), 0);
        }
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count += other.count;
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time `percent` of the samples stayed within, µs; 0 without samples.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return value_of(step);
            }
        }
        0
    }
}

/// Below 64 every value has its own step; above, a power of two has 32.
fn step_of(microseconds: u64) -> usize {
    if microseconds < 2 * STEPS {
        return microseconds as usize;
    }
    let shift = u64::from(microseconds.ilog2() - STEPS.ilog2());
    (shift * STEPS + (microseconds >> shift)) as usize
}

/// The middle of a step.
fn value_of(step: usize) -> u64 {
    let step = step as u64;
    if step < 2 * STEPS {
        return step;
    }
    let shift = step / STEPS - 1;
    ((step - shift * STEPS) << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn steps_are_fine_enough_and_without_gaps() {
        let mut before = 0;
        for exponent in 0..40 {
            for value in [1u64 << exponent, (1 << exponent) + (1 << exponent) / 3] {
                let step = step_of(value);
                assert!(step >= before, "{value}");
                before = step;
                let back = value_of(step) as f64;
                assert!((back / value as f64 - 1.0).abs() < 0.033, "{value} became {back}");
            }
        }
        for value in 0..100_000 {
            assert!(step_of(value + 1) - step_of(value) <= 1, "{value}");
        }
    }

    #[test]
    fn a_long_slice_is_kept_in_wider_entries() {
        let mut timeline = Timeline::default();
        for second in 0..1000 {
            timeline.record(second * SECOND, 5_000_000);
        }
        timeline.fail(3 * SECOND);
        assert!(timeline.entries.len() <= MOST_SECONDS);
        assert_eq!(timeline.width, 16);
        assert_eq!(
            timeline.entries.iter().map(|entry| entry.latency.count()).sum::<u64>(),
            1000
        );
        assert_eq!(timeline.entries[0].failed, 1);
        let median = timeline.entries[5].latency.percentile(50.0) as f64;
        assert!((median / 5000.0 - 1.0).abs() < 0.033, "{median}");
    }

    #[test]
    fn the_entries_of_a_slice_are_as_long_as_the_slice_lets_them_be() {
        let stretches = |answers: &[u64], elapsed_ms: u64| {
            let mut timeline = Timeline::default();
            for ms in answers {
                timeline.record(ms * 1_000_000, 1_000_000);
            }
            let stretches = timeline.stretches(elapsed_ms * 1_000_000);
            let one = |one: &Stretch| (one.from, (one.length * 1e3).round() as u64, one.moment.latency.count());
            stretches.iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(stretches(&[], 0), []);
        assert_eq!(stretches(&[5, 12, 20], 20), [(0.0, 20, 3)], "a slice of 20 ms");
        assert_eq!(stretches(&[5, 1500], 1700), [(0.0, 1000, 1), (1.0, 700, 1)]);
        assert_eq!(
            stretches(&[5, 1001], 1001),
            [(0.0, 1001, 2)],
            "a millisecond makes no rate"
        );
        assert_eq!(
            stretches(&[5], 3000),
            [(0.0, 1000, 1), (1.0, 1000, 0), (2.0, 1000, 0)],
            "silence is shown"
        );
        assert_eq!(
            stretches(&[5, 1700], 1000),
            [(0.0, 1000, 1), (1.0, 700, 1)],
            "answers behind the end"
        );
    }

    #[test]
    fn timelines_of_different_widths_add_up() {
        let (mut short, mut long) = (Timeline::default(), Timeline::default());
        short.record(SECOND, 1000);
        long.record(200 * SECOND, 1000);
        short.merge(&long);
        assert_eq!(short.width, 2);
        assert_eq!(short.entries[0].latency.count(), 1);
        assert_eq!(short.entries[100].latency.count(), 1);
    }

    #[test]
    fn threads_run_side_by_side_and_slices_one_after_the_other() {
        let tally = |elapsed| Tally {
            requests: 10,
            elapsed,
            statuses: vec![(200, 10)],
            ..Tally::default()
        };
        let mut threads = tally(SECOND);
        threads.merge(&tally(2 * SECOND));
        assert_eq!((threads.requests, threads.elapsed), (20, 2 * SECOND));
        let mut slices = tally(SECOND);
        slices.append(&tally(2 * SECOND));
        assert_eq!(
            (slices.elapsed, slices.statuses.as_slice()),
            (3 * SECOND, &[(200, 20)][..])
        );
        assert!((slices.rate() - 20.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn requests_sent_after_the_end_count_in_no_rate() {
        let tally = Tally {
            requests: 10,
            after_end: 4,
            elapsed: SECOND,
            ..Tally::default()
        };
        let mut both = tally.clone();
        both.merge(&tally);
        assert_eq!((both.requests, both.after_end, both.rate()), (20, 8, 12.0));
    }
}
