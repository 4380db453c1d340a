//! Slice by slice: how long each is, in which order they come, and what is seen while one runs.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::gathered::{Gathered, Seen};
use super::{Campaign, CampaignError, Level, Limit, Progress, SLICE};
use crate::job::{Arrivals, Job};
use crate::sample::Tally;
use crate::{result, spread, surroundings};

/// Between two looks at the server.
const LOOK: Duration = Duration::from_millis(250);
/// Until the first of them. Each further one waits twice as long, up to [`LOOK`]: a slice of 200 quick requests is seen too.
const FIRST_LOOK: Duration = Duration::from_millis(10);

impl Campaign<'_> {
    fn is_mirrored(&self) -> bool {
        self.targets.len() > 1
    }

    pub(super) fn rounds(&self) -> u32 {
        let is_comparison = self.is_mirrored() || self.levels.len() > 1;
        let default = match (is_comparison, self.options.ladder) {
            (true, false) => 5,
            _ => 1,
        };
        self.options.rounds.unwrap_or(default).max(1)
    }

    pub(super) fn limit(&self, is_second: bool) -> Limit {
        if self.is_replay() {
            return Limit {
                count: None,
                time: None,
            };
        }
        let halves = if self.is_mirrored() { 2 } else { 1 };
        let parts = self.rounds() * halves;
        let time = self.options.slice.or_else(|| Some(self.options.duration? / parts));
        let is_timed_by_nature = self.options.rate.is_some() || self.options.ladder;
        match (self.options.count, time) {
            (None, None) if is_timed_by_nature => Limit {
                count: None,
                time: Some(SLICE),
            },
            (count, time) => {
                let default = if time.is_none() { Some(200) } else { None };
                let share = |all: u64| {
                    all / u64::from(halves) + u64::from(!is_second && !all.is_multiple_of(u64::from(halves)))
                };
                Limit {
                    count: count.or(default).map(share),
                    time,
                }
            }
        }
    }

    pub(super) fn is_replay(&self) -> bool {
        self.options.mix.as_ref().is_some_and(|mix| !mix.times.is_empty())
    }

    pub(super) fn warmup(&self) -> Duration {
        let is_long = self.is_mirrored() || self.levels.len() > 1 || self.options.duration.is_some();
        let is_wanted = is_long && self.options.template.manners.warms_up && !self.is_replay();
        self.options.warmup.unwrap_or(if is_wanted {
            Duration::from_secs(1)
        } else {
            Duration::ZERO
        })
    }

    pub(super) fn measure(&mut self) -> Result<(), CampaignError> {
        let halves: u32 = if self.is_mirrored() { 2 } else { 1 };
        let blocks = self.rounds() * self.levels.len() as u32;
        self.slices = (0, blocks * self.targets.len() as u32 * halves);
        for level in self.levels.clone() {
            for target in 0..self.targets.len() {
                self.gathered.push(Gathered::new(target, level));
            }
        }
        for round in 0..self.rounds() {
            let mut levels: Vec<usize> = (0..self.levels.len()).collect();
            if round % 2 == 1 {
                levels.reverse();
            }
            for level in levels {
                let mut order: Vec<usize> = (0..self.targets.len()).collect();
                self.random.shuffle(&mut order);
                let mirrored: Vec<usize> = order.iter().rev().copied().collect();
                for target in order {
                    self.gather(round, level, target, false)?;
                }
                if self.is_mirrored() {
                    for target in mirrored {
                        self.gather(round, level, target, true)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn gather(&mut self, round: u32, level: usize, target: usize, is_second: bool) -> Result<(), CampaignError> {
        let (place, level) = (level * self.targets.len() + target, self.levels[level]);
        if self.is_stopped() {
            return Ok(());
        }
        let warmup = self.warmup();
        if !self.targets[target].is_warm && !warmup.is_zero() {
            let limit = Limit {
                count: None,
                time: Some(warmup),
            };
            self.slice(target, level, limit, true)?;
            self.targets[target].is_warm = true;
        }
        if self.is_stopped() {
            return Ok(());
        }
        let (tally, seen) = self.slice(target, level, self.limit(is_second), false)?;
        let order = self.slices.0;
        self.slices.0 += 1;
        self.gathered[place].add(round, order, &tally, &seen);
        Ok(())
    }

    /// Runs one slice in threads of its own, and looks at the server meanwhile.
    pub(super) fn slice(
        &mut self,
        target: usize,
        level: Level,
        limit: Limit,
        is_warmup: bool,
    ) -> Result<(Tally, Seen), CampaignError> {
        let job = self.job(target, level, limit);
        let prepared = &self.targets[target];
        let (processes, page) = (&prepared.processes, prepared.target.watch.metrics.as_ref());
        let kernel = surroundings::kernel_counts();
        let mut seen = Seen {
            start_s: self.start.elapsed().as_secs_f64(),
            looks: Vec::new(),
            asks_workers: page.is_some(),
            pss_bytes: None,
            kernel: result::KernelCounts::default(),
            machine_cpu_s: 0.0,
            own_cpu_s: 0.0,
        };
        let (machine_cpu, own_cpu) = (surroundings::machine_cpu_s(), surroundings::own_cpu_s());
        let began = Instant::now();
        self.shared.done.store(0, Ordering::Relaxed);
        let shared = self.shared;
        let result = thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            let job = &job;
            seen.look(processes, page, began, || false);
            let generator = scope.spawn(move || {
                // Dropped at the end, whichever way that comes.
                let _done = done;
                spread::run(job, shared)
            });
            let mut pause = FIRST_LOOK;
            while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = (2 * pause).min(LOOK);
                seen.look(processes, page, began, || !generator.is_finished());
                (self.look)(&Progress {
                    target: &prepared.target.name,
                    connections: level.connections,
                    rate: level.rate,
                    slice: self.slices.0 + 1,
                    slices: self.slices.1,
                    is_warmup,
                    answers: shared.done.load(Ordering::Relaxed),
                    count: limit.count,
                    elapsed: began.elapsed(),
                });
            }
            generator
                .join()
                .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
        });
        let (tally, captured) = result?;
        seen.look(processes, page, began, || false);
        seen.machine_cpu_s = surroundings::machine_cpu_s() - machine_cpu;
        seen.own_cpu_s = surroundings::own_cpu_s() - own_cpu;
        seen.pss_bytes = processes.pss_bytes();
        seen.kernel = surroundings::kernel_counts().since(kernel);
        self.first = self.first.take().or(captured);
        Ok((tally, seen))
    }

    pub(super) fn job(&self, target: usize, level: Level, limit: Limit) -> Job {
        let (options, prepared) = (self.options, &self.targets[target]);
        let arrivals = match (&options.mix, level.rate) {
            (Some(mix), _) if !mix.times.is_empty() => Arrivals::Schedule(mix.times.clone()),
            (_, Some(rate)) => Arrivals::Open {
                rate,
                spacing: options.spacing,
                seed: options.seed.wrapping_add(u64::from(self.slices.0)),
            },
            (_, None) => Arrivals::Closed,
        };
        let sources = match options.source {
            Some(source) => vec![source],
            None => spread::sources(&prepared.destination, level.connections),
        };
        Job {
            destination: prepared.destination.clone(),
            protocol: prepared.target.address.protocol(options.template.http2),
            tls: prepared.tls.clone(),
            tunnel: prepared.tunnel.clone(),
            requests: prepared.requests.clone(),
            order: prepared.order.clone(),
            connections: level.connections,
            first_connection: 0,
            streams: options.streams,
            threads: self.threads(level.connections),
            count: limit.count,
            time: limit.time,
            arrivals,
            keep_alive: options.template.keep_alive,
            timeout: options.timeout,
            read_rate: options.read_rate,
            send_rate: options.send_rate,
            buffers: options.buffers,
            sources,
            expected: prepared.expected.clone(),
            stop: options.stop,
            capture: options.capture,
            keep_answers: options.keep_answers,
            times_processing: options.template.manners.times_processing,
            keep_times: options.keep_times,
        }
    }

    pub(super) fn threads(&self, connections: u32) -> u32 {
        let default = (self.machine.cores / 4).max(1);
        self.options.threads.unwrap_or(default).clamp(1, connections.max(1))
    }
}
