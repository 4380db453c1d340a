//! Samples of the server and the machine while a slice runs.

use std::time::Instant;

use super::prepared::PreparedTarget;
use crate::metrics::{self, PhpWorkers};
use crate::process::{ProcessUse, Processes};
use crate::result::{KernelCounts, ServerUse};
use crate::sample::Tally;
use crate::surroundings;
use haulier_client::url::Url;

/// Figures of a server at one moment.
struct ServerSample {
    /// Since the slice began, s.
    at: f64,
    processes: ProcessUse,
    workers: Option<PhpWorkers>,
    /// The generator was running; false at both ends of a slice.
    is_under_load: bool,
}

/// A slice that is being observed.
pub(super) struct SliceWatch<'t> {
    processes: &'t Processes,
    page: Option<&'t Url>,
    began: Instant,
    start_s: f64,
    samples: Vec<ServerSample>,
    kernel_before: KernelCounts,
    machine_cpu_before: f64,
    own_cpu_before: f64,
}

/// Observations of a slice.
pub(super) struct SliceObservation {
    pub(super) start_s: f64,
    pub(super) kernel: KernelCounts,
    samples: Vec<ServerSample>,
    asks_workers: bool,
    pss_bytes: Option<u64>,
    /// Processor time of the whole machine, and of this process, s.
    machine_cpu_s: f64,
    own_cpu_s: f64,
}

/// Figures of the server in a part of a slice.
#[derive(Default)]
pub(super) struct PartUse {
    pub(super) cores: Option<f64>,
    pub(super) rss_bytes: Option<u64>,
    pub(super) busy_workers: Option<u32>,
}

impl<'t> SliceWatch<'t> {
    pub(super) fn begin(target: &'t PreparedTarget, start_s: f64) -> Self {
        Self {
            processes: &target.processes,
            page: target.target.watch.metrics.as_ref(),
            start_s,
            samples: Vec::new(),
            kernel_before: surroundings::kernel_counts(),
            machine_cpu_before: surroundings::machine_cpu_s(),
            own_cpu_before: surroundings::own_cpu_s(),
            began: Instant::now(),
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Samples the server; `is_loaded` tells whether the generator is running.
    pub(super) fn sample(&mut self, is_loaded: impl Fn() -> bool) {
        if self.processes.is_empty() && self.page.is_none() {
            return;
        }
        // A page that fails once is a missing sample, not the end of the run.
        let workers = self.page.and_then(|page| metrics::sample(page).ok());
        self.samples.push(ServerSample {
            at: self.began.elapsed().as_secs_f64(),
            processes: self.processes.usage(),
            workers,
            is_under_load: is_loaded(),
        });
    }

    pub(super) fn finish(mut self) -> SliceObservation {
        self.sample(|| false);
        SliceObservation {
            start_s: self.start_s,
            machine_cpu_s: surroundings::machine_cpu_s() - self.machine_cpu_before,
            own_cpu_s: surroundings::own_cpu_s() - self.own_cpu_before,
            pss_bytes: self.processes.pss_bytes(),
            kernel: surroundings::kernel_counts().since(self.kernel_before),
            asks_workers: self.page.is_some(),
            samples: self.samples,
        }
    }
}

impl SliceObservation {
    /// Processor time of all other processes on this machine, s; `None` if the server's is unknown.
    pub(super) fn others_cpu_s(&self, tally: &Tally) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        if last.processes.processes == 0 {
            return None;
        }
        let server = last.processes.cpu_since(&first.processes) / 1e6;
        // The generator is this process, or several that it waits for.
        let generator = self.own_cpu_s.max(tally.cpu.total as f64 / 1e9);
        Some((self.machine_cpu_s - server - generator).max(0.0))
    }

    /// PHP workers in the samples under load.
    fn workers(&self) -> impl Iterator<Item = PhpWorkers> {
        self.samples
            .iter()
            .filter(|sample| sample.is_under_load)
            .filter_map(|sample| sample.workers)
    }

    /// Resources that the server used for this number of requests.
    pub(super) fn server(&self, requests: u64) -> Option<ServerUse> {
        let (began, ended) = (self.samples.first()?, self.samples.last()?);
        let (first, last) = (&began.processes, &ended.processes);
        let each = |amount: f64| (requests > 0).then(|| amount / requests as f64);
        let cpu = last.cpu_since(first);
        let has_processes = last.processes > 0;
        let busy = |sample: &ServerSample| sample.workers.and_then(|workers| workers.busy_seconds);
        let worker_seconds = busy(began).zip(busy(ended)).map(|(before, after)| after - before);
        let rss_bytes = self.samples.iter().map(|sample| sample.processes.rss_bytes).max();
        Some(ServerUse {
            cpu_us_per_request: each(cpu).filter(|_| has_processes),
            php_cpu_us_per_request: each(last.php_cpu_since(first)).filter(|_| last.php_cpu_us > 0),
            cores: has_processes.then(|| cpu / 1e6 / (ended.at - began.at).max(1e-3)),
            rss_bytes: rss_bytes.filter(|_| has_processes),
            pss_bytes: self.pss_bytes.or_else(|| {
                let workers = self.samples.iter().filter_map(|sample| sample.workers);
                workers.filter_map(|one| one.memory_bytes).max()
            }),
            processes: has_processes.then_some(last.processes),
            worker_us_per_request: worker_seconds.and_then(|seconds| each(seconds * 1e6)),
            peak_busy_workers: self.peak_busy_workers(worker_seconds),
            peak_queue: self.workers().filter_map(|one| one.queued).max(),
            workers_asked: self.asks_workers,
        })
    }

    fn peak_busy_workers(&self, worker_seconds: Option<f64>) -> Option<u32> {
        let peak = self.workers().filter_map(|one| one.busy).max();
        match worker_seconds {
            Some(seconds) if seconds <= 0.0 => Some(0),
            // Workers that were busy between the samples only were not seen.
            Some(_) => peak.filter(|busy| *busy > 0),
            None => peak,
        }
    }

    /// Use of the server between two moments of the slice, s.
    pub(super) fn between(&self, from: f64, to: f64) -> PartUse {
        let is_within = |sample: &&ServerSample| (from..=to).contains(&sample.at);
        let samples: Vec<_> = self.samples.iter().filter(is_within).collect();
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return PartUse::default();
        };
        let has_processes = last.processes.processes > 0;
        let cpu = last.processes.cpu_since(&first.processes) / 1e6;
        let loaded = samples.iter().filter(|sample| sample.is_under_load);
        PartUse {
            cores: (has_processes && last.at > first.at).then(|| cpu / (last.at - first.at)),
            rss_bytes: has_processes.then_some(last.processes.rss_bytes),
            busy_workers: loaded.filter_map(|sample| sample.workers?.busy).max(),
        }
    }
}
