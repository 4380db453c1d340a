//! What slices leave behind: of the generator in a tally, of the server in looks at it.

use std::time::Instant;

use super::Level;
use crate::metrics::{self, Workers};
use crate::process::{Look, Processes};
use crate::result::{self, GeneratorUse, Point, Second, ServerUse, Slice, Total};
use crate::sample::{Stretch, Tally};
use crate::surroundings;
use haulier_client::url::Url;

/// A target under one load, while it is measured.
pub(super) struct Gathered {
    pub(super) target: usize,
    pub(super) level: Level,
    pub(super) slices: Vec<Slice>,
    pub(super) tally: Tally,
    pub(super) timeline: Vec<Second>,
    pub(super) server: Option<ServerUse>,
    pub(super) generator: GeneratorUse,
}

/// Readings of a server at one moment.
pub(super) struct Sight {
    /// Since the slice began, s.
    at: f64,
    processes: Look,
    workers: Option<Workers>,
    /// Requests were on their way before and after it; false at both ends of a slice.
    is_under_load: bool,
}

/// What was seen while a slice ran.
pub(super) struct Seen {
    pub(super) start_s: f64,
    pub(super) looks: Vec<Sight>,
    pub(super) asks_workers: bool,
    pub(super) pss_bytes: Option<u64>,
    pub(super) kernel: result::KernelCounts,
    /// Processor time of the whole machine, and of this process, s.
    pub(super) machine_cpu_s: f64,
    pub(super) own_cpu_s: f64,
}

impl Seen {
    /// Looks at the server; `is_loaded` tells whether the generator still runs.
    pub(super) fn look(
        &mut self,
        processes: &Processes,
        page: Option<&Url>,
        began: Instant,
        is_loaded: impl Fn() -> bool,
    ) {
        if processes.is_empty() && page.is_none() {
            return;
        }
        // A page that fails once is missed; the run does not depend on it.
        let workers = page.and_then(|page| metrics::look(page).ok());
        self.looks.push(Sight {
            at: began.elapsed().as_secs_f64(),
            processes: processes.look(),
            workers,
            is_under_load: is_loaded(),
        });
    }

    /// Processor time of everything else on this machine, s; `None` if the server was not watched.
    fn others_cpu_s(&self, tally: &Tally) -> Option<f64> {
        let (first, last) = (self.looks.first()?, self.looks.last()?);
        if last.processes.processes == 0 {
            return None;
        }
        let server = last.processes.cpu_since(&first.processes) / 1e6;
        // The generator is this process, or several beside it that this one waits for.
        let generator = self.own_cpu_s.max(tally.cpu.total as f64 / 1e9);
        Some((self.machine_cpu_s - server - generator).max(0.0))
    }

    /// Readings of PHP workers under load.
    fn workers(&self) -> impl Iterator<Item = Workers> {
        self.looks
            .iter()
            .filter(|sight| sight.is_under_load)
            .filter_map(|sight| sight.workers)
    }

    /// What it cost the server, for each of so many requests.
    pub(super) fn server(&self, requests: u64) -> Option<ServerUse> {
        let (began, ended) = (self.looks.first()?, self.looks.last()?);
        let (first, last) = (&began.processes, &ended.processes);
        let each = |amount: f64| (requests > 0).then(|| amount / requests as f64);
        let cpu = last.cpu_since(first);
        let has_processes = last.processes > 0;
        let busy = |sight: &Sight| sight.workers.and_then(|workers| workers.busy_seconds);
        let worker_seconds = busy(began).zip(busy(ended)).map(|(before, after)| after - before);
        let busiest = self.workers().filter_map(|one| one.busy).max();
        Some(ServerUse {
            cpu_us_per_request: each(cpu).filter(|_| has_processes),
            php_cpu_us_per_request: each(last.php_cpu_since(first)).filter(|_| last.php_cpu_us > 0),
            cores: has_processes.then(|| cpu / 1e6 / (ended.at - began.at).max(1e-3)),
            rss_bytes: self
                .looks
                .iter()
                .map(|sight| sight.processes.rss_bytes)
                .max()
                .filter(|_| has_processes),
            pss_bytes: self.pss_bytes.or_else(|| {
                let workers = self.looks.iter().filter_map(|sight| sight.workers);
                workers.filter_map(|one| one.memory_bytes).max()
            }),
            processes: has_processes.then_some(last.processes),
            worker_us_per_request: worker_seconds.and_then(|seconds| each(seconds * 1e6)),
            peak_busy_workers: match worker_seconds {
                Some(seconds) if seconds <= 0.0 => Some(0),
                // Workers that were busy between the looks alone were not seen.
                Some(_) => busiest.filter(|busy| *busy > 0),
                None => busiest,
            },
            peak_queue: self.workers().filter_map(|one| one.queued).max(),
            workers_asked: self.asks_workers,
        })
    }

    /// The tree's cores, memory and busy workers between two moments of the slice, s.
    pub(super) fn between(&self, from: f64, to: f64) -> (Option<f64>, Option<u64>, Option<u32>) {
        let is_within = |sight: &&Sight| (from..=to).contains(&sight.at);
        let looks: Vec<_> = self.looks.iter().filter(is_within).collect();
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
            return (None, None, None);
        };
        let has_processes = last.processes.processes > 0;
        let cpu = last.processes.cpu_since(&first.processes) / 1e6;
        let cores = (has_processes && last.at > first.at).then(|| cpu / (last.at - first.at));
        let memory = has_processes.then_some(last.processes.rss_bytes);
        let loaded = looks.iter().filter(|sight| sight.is_under_load);
        let busy = loaded.filter_map(|sight| sight.workers?.busy).max();
        (cores, memory, busy)
    }
}

impl Gathered {
    pub(super) fn new(target: usize, level: Level) -> Self {
        Self {
            target,
            level,
            slices: Vec::new(),
            tally: Tally::default(),
            timeline: Vec::new(),
            server: None,
            generator: GeneratorUse::default(),
        }
    }

    pub(super) fn add(&mut self, round: u32, order: u32, tally: &Tally, seen: &Seen) {
        let server = seen.server(tally.requests);
        self.slices.push(Slice {
            round,
            order,
            start_s: seen.start_s,
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
            kernel: seen.kernel,
            others_cpu_s: seen.others_cpu_s(tally),
        });
        for Stretch { from, length, moment } in tally.seconds.stretches(tally.elapsed) {
            let (server_cores, server_rss_bytes, busy_workers) = seen.between(from, from + length);
            self.timeline.push(Second {
                at_s: seen.start_s + from,
                length_s: length,
                requests: moment.latency.count(),
                failed: moment.failed,
                p50_us: moment.latency.percentile(50.0),
                p99_us: moment.latency.percentile(99.0),
                server_cores,
                server_rss_bytes,
                busy_workers,
            });
        }
        self.server = merge_server(self.server, server, self.tally.requests, tally.requests);
        self.tally.append(tally);
        self.generator.rss_bytes = self.generator.rss_bytes.max(surroundings::own_memory());
    }

    pub(super) fn finish(self) -> (Point, Tally) {
        let tally = self.tally;
        let is_open = tally.service.count() > 0;
        let each = |nanoseconds: u64| {
            if tally.answers() == 0 {
                0.0
            } else {
                nanoseconds as f64 / 1e3 / tally.answers() as f64
            }
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
                rss_bytes: self.generator.rss_bytes,
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

/// Costs are averaged over the requests, peaks stay peaks.
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
