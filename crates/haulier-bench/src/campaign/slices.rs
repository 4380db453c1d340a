//! The slices of a run, in their order.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::division::{Division, Limit};
use super::observation::{SliceObservation, SliceWatch};
use super::point_tally::PointTally;
use super::{Campaign, CampaignError, Level, Progress};
use crate::job::{Arrivals, SliceJob};
use crate::sample::Tally;
use crate::spread;

/// Longest pause between two samples of the server.
const MOST_PAUSE: Duration = Duration::from_millis(250);
/// Pause before the first sample. It doubles up to [`MOST_PAUSE`], so that a slice of 200 quick requests has samples, too.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

impl Campaign<'_> {
    pub(super) fn division(&self) -> Division<'_> {
        Division {
            options: self.options,
            targets: self.targets.len(),
            levels: self.levels.len(),
        }
    }

    pub(super) fn measure(&mut self) -> Result<(), CampaignError> {
        self.slices_planned = self.division().slices();
        for level in &self.levels {
            let points = (0..self.targets.len()).map(|target| PointTally::new(target, *level));
            self.collected.points.extend(points);
        }
        for round in 0..self.division().rounds() {
            let mut levels: Vec<usize> = (0..self.levels.len()).collect();
            if round % 2 == 1 {
                levels.reverse();
            }
            for level in levels {
                for (target, is_second) in self.order() {
                    self.measure_target(round, level, target, is_second)?;
                }
            }
        }
        Ok(())
    }

    /// The targets of a round in random order, then in reverse: each with whether it is the second time.
    fn order(&mut self) -> Vec<(usize, bool)> {
        let mut order: Vec<usize> = (0..self.targets.len()).collect();
        self.random.shuffle(&mut order);
        let mirrored = order.iter().rev().filter(|_| self.division().is_mirrored());
        let first = order.iter().map(|target| (*target, false));
        first.chain(mirrored.map(|target| (*target, true))).collect()
    }

    fn is_stopped(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed)
    }

    /// Measures one slice of a target, after a warm-up if it is the first one.
    fn measure_target(
        &mut self,
        round: u32,
        level: usize,
        target: usize,
        is_second: bool,
    ) -> Result<(), CampaignError> {
        let (point, level) = (level * self.targets.len() + target, self.levels[level]);
        if self.is_stopped() {
            return Ok(());
        }
        let warmup = self.division().warmup();
        if !self.targets[target].is_warm && !warmup.is_zero() {
            self.slice(target, level, Limit::time(warmup), true)?;
            self.targets[target].is_warm = true;
        }
        if self.is_stopped() {
            return Ok(());
        }
        let limit = self.division().limit(is_second);
        let (tally, observation) = self.slice(target, level, limit, false)?;
        self.collected.points[point].add(round, self.slices_done, &tally, &observation);
        self.slices_done += 1;
        Ok(())
    }

    /// Runs one slice on threads of its own, and samples the server meanwhile.
    pub(super) fn slice(
        &mut self,
        target: usize,
        level: Level,
        limit: Limit,
        is_warmup: bool,
    ) -> Result<(Tally, SliceObservation), CampaignError> {
        let job = self.job(target, level, limit);
        let prepared = &self.targets[target];
        let control = self.control;
        control.done.store(0, Ordering::Relaxed);
        let mut watch = SliceWatch::begin(prepared, self.start.elapsed_s());
        let result = thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            let job = &job;
            watch.sample(|| false);
            let generator = scope.spawn(move || {
                // Dropped at the end, even after a panic.
                let _done = done;
                spread::run(job, control)
            });
            let mut pause = FIRST_PAUSE;
            while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = (2 * pause).min(MOST_PAUSE);
                watch.sample(|| !generator.is_finished());
                (self.on_progress)(&Progress {
                    target: &prepared.target.name,
                    connections: level.connections,
                    rate: level.rate,
                    slice: self.slices_done + 1,
                    slices: self.slices_planned,
                    is_warmup,
                    answers: control.done.load(Ordering::Relaxed),
                    count: limit.count,
                    elapsed: watch.began().elapsed(),
                });
            }
            generator
                .join()
                .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
        });
        let (tally, captured) = result?;
        let observation = watch.finish();
        self.collected.first = self.collected.first.take().or(captured);
        Ok((tally, observation))
    }

    pub(super) fn job(&self, target: usize, level: Level, limit: Limit) -> SliceJob {
        let (options, prepared) = (self.options, &self.targets[target]);
        SliceJob {
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
            arrivals: self.arrivals(level),
            keep_alive: options.template.keep_alive,
            timeout: options.timeout,
            read_rate: options.read_rate,
            send_rate: options.send_rate,
            buffers: options.buffers,
            sources: match options.source {
                Some(source) => vec![source],
                None => spread::sources(&prepared.destination, level.connections),
            },
            expected: prepared.expected.clone(),
            stop: options.stop,
            capture: options.capture,
            keep_answers: options.keep_answers,
            times_processing: options.template.mode.times_processing,
            keep_times: options.keep_times,
        }
    }

    fn arrivals(&self, level: Level) -> Arrivals {
        match (&self.options.mix, level.rate) {
            (Some(mix), _) if !mix.times.is_empty() => Arrivals::Schedule(mix.times.clone()),
            (_, Some(rate)) => Arrivals::Open {
                rate,
                spacing: self.options.spacing,
                seed: self.options.seed.wrapping_add(u64::from(self.slices_done)),
            },
            (_, None) => Arrivals::Closed,
        }
    }

    pub(super) fn threads(&self, connections: u32) -> u32 {
        let default = (self.start.machine.cores / 4).max(1);
        self.options.threads.unwrap_or(default).clamp(1, connections.max(1))
    }
}
