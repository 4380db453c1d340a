//! A target under one load while it is measured: its slices and their sum.

use super::Level;
use super::observation::{PartUse, SliceObservation};
use crate::result::{GeneratorUse, Point, Second, ServerUse, Slice, Total};
use crate::sample::{Stretch, Tally};
use crate::surroundings;

pub(super) struct PointTally {
    pub(super) target: usize,
    level: Level,
    pub(super) slices: Vec<Slice>,
    tally: Tally,
    timeline: Vec<Second>,
    server: Option<ServerUse>,
    generator_rss_bytes: u64,
}

impl PointTally {
    pub(super) fn new(target: usize, level: Level) -> Self {
        Self {
            target,
            level,
            slices: Vec::new(),
            tally: Tally::default(),
            timeline: Vec::new(),
            server: None,
            generator_rss_bytes: 0,
        }
    }

    /// Adds a slice of a round; `order` is its number in the run.
    pub(super) fn add(&mut self, round: u32, order: u32, tally: &Tally, observation: &SliceObservation) {
        let server = observation.server(tally.requests);
        self.slices.push(Slice {
            round,
            order,
            start_s: observation.start_s,
            duration_s: tally.elapsed as f64 / 1e9,
            requests: tally.requests,
            failed: tally.failures.all(),
            requests_per_second: tally.rate(),
            p50_us: tally.latency.percentile(50.0),
            p95_us: tally.latency.percentile(95.0),
            p99_us: tally.latency.percentile(99.0),
            max_us: tally.latency.max(),
            first_byte_us: tally.first_byte.percentile(50.0),
            connections_opened: tally.connections_opened,
            generator_cpu: tally.cpu.busiest,
            server,
            kernel: observation.kernel,
            others_cpu_s: observation.others_cpu_s(tally),
        });
        self.add_timeline(tally, observation);
        self.server = merge_server(self.server, server, self.tally.requests, tally.requests);
        self.tally.append(tally);
        self.generator_rss_bytes = self.generator_rss_bytes.max(surroundings::own_memory());
    }

    fn add_timeline(&mut self, tally: &Tally, observation: &SliceObservation) {
        for Stretch { from, length, moment } in tally.seconds.stretches(tally.elapsed) {
            let PartUse {
                cores,
                rss_bytes,
                busy_workers,
            } = observation.between(from, from + length);
            self.timeline.push(Second {
                at_s: observation.start_s + from,
                length_s: length,
                requests: moment.latency.count(),
                failed: moment.failed,
                p50_us: moment.latency.percentile(50.0),
                p99_us: moment.latency.percentile(99.0),
                server_cores: cores,
                server_rss_bytes: rss_bytes,
                busy_workers,
            });
        }
    }

    /// The point of the document, and the whole tally.
    pub(super) fn finish(self) -> (Point, Tally) {
        let tally = self.tally;
        let is_open = tally.service.count() > 0;
        let answers = tally.answers();
        let each = |nanoseconds: u64| match answers {
            0 => 0.0,
            answers => nanoseconds as f64 / 1e3 / answers as f64,
        };
        let total = Total {
            duration_s: tally.elapsed as f64 / 1e9,
            requests: tally.requests,
            requests_per_second: tally.rate(),
            failures: tally.failures,
            statuses: tally.statuses.iter().copied().collect(),
            connections_opened: tally.connections_opened,
            bytes: tally.bytes,
            latency: tally.latency.distribution(),
            service: is_open.then(|| tally.service.distribution()),
            first_byte: tally.first_byte.distribution(),
            connect: (tally.connect.count() > 0).then(|| tally.connect.distribution()),
            sent_late: is_open.then(|| tally.sent_late.distribution()),
            waited_for_connection: is_open.then_some(tally.waited),
            generator: GeneratorUse {
                cpu: tally.cpu.busiest,
                cpu_us_per_request: each(tally.cpu.total),
                user_us_per_request: each(tally.cpu.user),
                rss_bytes: self.generator_rss_bytes,
            },
            server: self.server,
            timeline: self.timeline,
        };
        let point = Point {
            target: self.target,
            connections: self.level.connections,
            rate: self.level.rate,
            slices: self.slices,
            total,
        };
        (point, tally)
    }
}

/// Use of the server over two groups of slices: the mean of costs by requests, the maximum of peaks.
fn merge_server(before: Option<ServerUse>, after: Option<ServerUse>, had: u64, more: u64) -> Option<ServerUse> {
    let (Some(before), Some(after)) = (before, after) else {
        return before.or(after);
    };
    let average = |one: Option<f64>, two: Option<f64>| match (one, two) {
        (Some(one), Some(two)) if had + more > 0 => Some((one * had as f64 + two * more as f64) / (had + more) as f64),
        _ => one.or(two),
    };
    Some(ServerUse {
        cpu_us_per_request: average(before.cpu_us_per_request, after.cpu_us_per_request),
        php_cpu_us_per_request: average(before.php_cpu_us_per_request, after.php_cpu_us_per_request),
        cores: average(before.cores, after.cores),
        rss_bytes: before.rss_bytes.max(after.rss_bytes),
        pss_bytes: before.pss_bytes.max(after.pss_bytes),
        processes: before.processes.max(after.processes),
        worker_us_per_request: average(before.worker_us_per_request, after.worker_us_per_request),
        peak_busy_workers: before.peak_busy_workers.max(after.peak_busy_workers),
        peak_queue: before.peak_queue.max(after.peak_queue),
        workers_asked: before.workers_asked || after.workers_asked,
    })
}
