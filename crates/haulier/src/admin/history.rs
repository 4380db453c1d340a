//! The history for the dashboard's charts: a quarter of an hour by the second, a day by the minute, in memory of a fixed
//! size.
//!
//! A [`Sample`] has the numbers of a span of time; several make one of their whole span. That is how seconds become
//! minutes, and how both become as many points as a chart can show.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_php::PoolStatus;
use haulier_server::metrics::{DurationHistogram, HandlerTotals, SiteTotals, Totals};

/// Seconds kept: a quarter of an hour.
const SECONDS: usize = 900;
/// Minutes kept: a day.
const MINUTES: usize = 1440;
/// Samples of a second that make a minute.
const MINUTE: usize = 60;
/// Points of a chart: more would be less than two pixels apart on a phone.
const POINTS: usize = 120;

/// All counters at one moment.
#[derive(Debug)]
pub(super) struct MetricsReading {
    pub(super) at: Instant,
    pub(super) totals: Totals,
    pub(super) pools: Vec<(Arc<str>, PoolStatus)>,
}

/// Numbers of a span of time.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) end: Instant,
    pub(super) seconds: f64,
    /// Responses by handler, in the order of [`SiteTotals::handlers`], of all sites and of none.
    pub(super) requests: Vec<u64>,
    pub(super) times: DurationHistogram,
    pub(super) bytes: u64,
    /// Worker time saved.
    pub(super) saved: Duration,
    pub(super) pools: Vec<PoolSample>,
}

/// Numbers of a pool in that time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PoolSample {
    pub(super) name: Arc<str>,
    pub(super) workers: usize,
    /// Workers busy on average.
    pub(super) busy: f64,
    /// Most requests seen waiting.
    pub(super) queued: usize,
    /// Workers that went away with a request.
    pub(super) crashes: u64,
}

impl Sample {
    /// The numbers between two readings.
    pub(super) fn between(earlier: &MetricsReading, later: &MetricsReading) -> Self {
        let span = later.at.saturating_duration_since(earlier.at);
        let (before, after) = (Sums::of(&earlier.totals), Sums::of(&later.totals));
        let requests = after.requests.iter().enumerate();
        let requests =
            requests.map(|(number, now)| now.saturating_sub(before.requests.get(number).copied().unwrap_or(0)));
        let pools = later.pools.iter().map(|(name, now)| {
            let before = earlier
                .pools
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, before)| before);
            PoolSample::between(name, before, now, span)
        });
        Self {
            end: later.at,
            seconds: span.as_secs_f64(),
            requests: requests.collect(),
            times: after.times.since(&before.times),
            bytes: after.bytes.saturating_sub(before.bytes),
            saved: after.saved.saturating_sub(before.saved),
            pools: pools.collect(),
        }
    }

    /// All samples merged into one; `None` if there are none.
    fn merged<'s>(samples: impl IntoIterator<Item = &'s Self>) -> Option<Self> {
        let mut samples = samples.into_iter();
        let first = samples.next()?.clone();
        Some(samples.fold(first, Self::and))
    }

    fn and(mut self, later: &Self) -> Self {
        let requests = self.requests.iter_mut().zip(&later.requests);
        requests.for_each(|(sum, more)| *sum += more);
        // A reload may have removed or added a pool in between.
        let pools = later.pools.iter().map(|pool| {
            let before = self.pools.iter().find(|before| before.name == pool.name);
            before.map_or_else(|| pool.clone(), |before| before.and(self.seconds, pool, later.seconds))
        });
        self.pools = pools.collect();
        self.end = later.end;
        self.seconds += later.seconds;
        self.times = self.times.and(&later.times);
        self.bytes += later.bytes;
        self.saved += later.saved;
        self
    }

    /// A number as a rate per second.
    pub(super) fn rate(&self, number: u64) -> f64 {
        number as f64 / self.seconds.max(0.001)
    }
}

impl PoolSample {
    fn between(name: &Arc<str>, before: Option<&PoolStatus>, now: &PoolStatus, span: Duration) -> Self {
        let before = before.copied().unwrap_or_default();
        // The counters of a pool that is new here may cover more than this span: no more than all workers were busy.
        let busy =
            now.load.busy_time.saturating_sub(before.load.busy_time).as_secs_f64() / span.as_secs_f64().max(0.001);
        Self {
            name: Arc::clone(name),
            workers: now.load.capacity,
            busy: busy.min(now.load.capacity as f64),
            queued: now.load.queued,
            crashes: now.counts.crashes.saturating_sub(before.counts.crashes),
        }
    }

    fn and(&self, seconds: f64, later: &Self, later_seconds: f64) -> Self {
        let whole = (seconds + later_seconds).max(0.001);
        Self {
            name: Arc::clone(&later.name),
            workers: later.workers,
            busy: (self.busy * seconds + later.busy * later_seconds) / whole,
            queued: self.queued.max(later.queued),
            crashes: self.crashes + later.crashes,
        }
    }
}

/// The counters of all sites and of none, added up.
struct Sums {
    requests: Vec<u64>,
    times: DurationHistogram,
    bytes: u64,
    saved: Duration,
}

impl Sums {
    fn of(totals: &Totals) -> Self {
        let mut sums = Self {
            requests: vec![0; totals.none.handlers().count()],
            times: DurationHistogram::default(),
            bytes: 0,
            saved: Duration::ZERO,
        };
        let sites = totals.sites.iter().map(|(_, site)| site);
        sites.chain([&totals.none]).for_each(|site| sums.add(site));
        sums
    }

    fn add(&mut self, site: &SiteTotals) {
        for (sum, (_, handler)) in self.requests.iter_mut().zip(site.handlers()) {
            *sum += HandlerTotals::requests(handler);
            self.times = self.times.and(&handler.times);
            self.bytes += handler.bytes;
        }
        self.saved += site.saved;
    }
}

/// The range of a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Range {
    #[default]
    QuarterHour,
    Day,
}

impl Range {
    /// Its length.
    pub(super) fn span(self) -> Duration {
        match self {
            Self::QuarterHour => Duration::from_secs(SECONDS as u64),
            Self::Day => Duration::from_secs((MINUTES * MINUTE) as u64),
        }
    }
}

/// Samples of the last quarter of an hour and of the last day.
#[derive(Debug, Default)]
pub(super) struct History {
    seconds: Ring,
    minutes: Ring,
}

/// The newest samples, the oldest first.
#[derive(Debug, Default)]
struct Ring {
    samples: VecDeque<Sample>,
    /// Samples taken so far.
    taken: usize,
}

impl Ring {
    fn push(&mut self, sample: Sample, most: usize) {
        if self.samples.len() >= most {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.taken += 1;
    }

    /// Samples merged in groups of this size. Groups keep their members as time goes on, so that the curve moves without
    /// changing its shape; the first and the last may be smaller.
    fn by(&self, together: usize) -> Vec<Sample> {
        let first = self.taken - self.samples.len();
        let numbered: Vec<_> = self.samples.iter().enumerate().collect();
        let same =
            |(a, _): &(usize, &Sample), (b, _): &(usize, &Sample)| (first + a) / together == (first + b) / together;
        let groups = numbered.chunk_by(same);
        groups
            .filter_map(|group| Sample::merged(group.iter().map(|(_, sample)| *sample)))
            .collect()
    }
}

impl History {
    /// Takes in a second.
    pub(super) fn push(&mut self, sample: Sample) {
        self.seconds.push(sample, SECONDS);
        if self.seconds.taken.is_multiple_of(MINUTE) {
            let last = self.seconds.samples.iter().rev().take(MINUTE).rev();
            if let Some(minute) = Sample::merged(last) {
                self.minutes.push(minute, MINUTES);
            }
        }
    }

    /// The points of a chart of this range, the oldest first.
    pub(super) fn points(&self, range: Range) -> Vec<Sample> {
        match range {
            Range::QuarterHour => self.seconds.by(SECONDS / POINTS),
            Range::Day => {
                let mut points = self.minutes.by(MINUTES / POINTS);
                // The minute that has just begun.
                let rest = self.seconds.taken % MINUTE;
                points.extend(Sample::merged(self.seconds.samples.iter().rev().take(rest).rev()));
                points
            }
        }
    }

    /// Worker time saved in the last day.
    pub(super) fn saved(&self) -> Duration {
        let rest = self.seconds.taken % MINUTE;
        let minutes: Duration = self.minutes.samples.iter().map(|minute| minute.saved).sum();
        let seconds: Duration = self
            .seconds
            .samples
            .iter()
            .rev()
            .take(rest)
            .map(|second| second.saved)
            .sum();
        minutes + seconds
    }
}

#[cfg(test)]
mod tests {
    use haulier_php::{PoolCounts, UpstreamLoad};

    use super::*;

    /// A second with this number of requests and one pool.
    fn second(begin: Instant, number: u64, requests: u64, busy: f64, queued: usize) -> Sample {
        Sample {
            end: begin + Duration::from_secs(number),
            seconds: 1.0,
            requests: vec![requests, 0],
            times: DurationHistogram::default(),
            bytes: 10 * requests,
            saved: Duration::from_millis(100),
            pools: vec![PoolSample {
                name: "php".into(),
                workers: 4,
                busy,
                queued,
                crashes: u64::from(queued > 0),
            }],
        }
    }

    #[test]
    fn several_samples_make_one_of_their_whole_span() {
        let begin = Instant::now();
        let samples = [
            second(begin, 1, 10, 1.0, 0),
            second(begin, 2, 20, 3.0, 5),
            second(begin, 3, 0, 2.0, 2),
        ];
        let whole = Sample::merged(&samples).expect("there are some");
        assert_eq!((whole.seconds, whole.bytes, whole.requests[0]), (3.0, 300, 30));
        assert_eq!(whole.rate(whole.requests[0]), 10.0);
        assert_eq!(whole.end, begin + Duration::from_secs(3));
        let pool = &whole.pools[0];
        assert_eq!((pool.busy, pool.queued, pool.crashes), (2.0, 5, 2));
        assert!(Sample::merged([]).is_none());
    }

    #[test]
    fn a_day_is_kept_in_memory_of_a_fixed_size() {
        let begin = Instant::now();
        let mut history = History::default();
        for number in 0..90_030 {
            history.push(second(begin, number, 1, 1.0, 0));
        }
        assert_eq!(
            (history.seconds.samples.len(), history.minutes.samples.len()),
            (SECONDS, MINUTES)
        );
        let quarter = history.points(Range::QuarterHour);
        assert!((POINTS..=POINTS + 10).contains(&quarter.len()), "{}", quarter.len());
        assert_eq!(quarter.iter().map(|sample| sample.requests[0]).sum::<u64>(), 900);
        let day = history.points(Range::Day);
        assert!((POINTS..=POINTS + 2).contains(&day.len()), "{}", day.len());
        assert_eq!(
            day.last().map(|sample| sample.seconds),
            Some(30.0),
            "the minute that has begun"
        );
        assert_eq!(
            history.saved(),
            Duration::from_millis(100) * (MINUTES * MINUTE + 30) as u32
        );
    }

    #[test]
    fn points_stay_the_same_as_time_goes_on() {
        let begin = Instant::now();
        let mut history = History::default();
        for number in 0..1003 {
            history.push(second(begin, number, number, 1.0, 0));
        }
        let ends = |history: &History| {
            let points = history.points(Range::QuarterHour);
            points[1..points.len() - 1]
                .iter()
                .map(|point| (point.end, point.requests[0]))
                .collect::<Vec<_>>()
        };
        let before = ends(&history);
        history.push(second(begin, 1003, 1, 1.0, 0));
        let after = ends(&history);
        assert!(after.iter().filter(|point| before.contains(point)).count() >= before.len() - 1);
    }

    #[test]
    fn readings_are_compared_by_name_and_a_pool_that_began_in_between_counts_from_its_start() {
        let begin = Instant::now();
        let status = |busy, crashes| PoolStatus {
            load: UpstreamLoad {
                capacity: 4,
                busy_time: Duration::from_secs(busy),
                ..UpstreamLoad::default()
            },
            counts: PoolCounts {
                crashes,
                ..PoolCounts::default()
            },
            ..PoolStatus::default()
        };
        let reading = |seconds, pools| MetricsReading {
            at: begin + Duration::from_secs(seconds),
            totals: Totals::default(),
            pools,
        };
        let earlier = reading(0, vec![("gone".into(), status(9, 9)), ("php".into(), status(10, 1))]);
        let later = reading(2, vec![("php".into(), status(13, 2)), ("new".into(), status(100, 0))]);
        let sample = Sample::between(&earlier, &later);
        assert_eq!(sample.seconds, 2.0);
        let pools: Vec<_> = sample
            .pools
            .iter()
            .map(|pool| (&*pool.name, pool.busy, pool.crashes))
            .collect();
        assert_eq!(pools, [("php", 1.5, 1), ("new", 4.0, 0)]);
        assert!(sample.requests.iter().all(|&requests| requests == 0));
    }
}
