//! A whole run: ask every target once, warm up, measure slice by slice, and say what was found.
//!
//! Several targets are measured in blocks whose order is drawn by lot and mirrored (A B B A), so that whatever drifts
//! hits all of them alike. One slice is one [`Job`]; while it runs, this thread looks at the server.

mod gathered;
mod judge;
mod options;
mod prepared;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::gathered::{Gathered, Seen};
pub use self::options::{CampaignError, Measured, Options, Progress};
use self::prepared::Prepared;
use crate::bench::answer::Captured;
use crate::bench::compare::{compare, noise, sentences};
use crate::bench::framing::{AfterBody, after_body};
use crate::bench::job::{Arrivals, Job, StatusRule};
use crate::bench::pacer::Spacing;
use crate::bench::probe;
use crate::bench::result::{Kind, Load, Noise, Point, Run, SCHEMA, Warning, WarningKind};
use crate::bench::runner::Shared;
use crate::bench::sample::Tally;
use crate::bench::target::Address;
use crate::bench::{result, spread, surroundings};

/// Between two looks at the server.
const LOOK: Duration = Duration::from_millis(250);
/// Length of one slice where nothing says it.
const SLICE: Duration = Duration::from_secs(5);
/// Bodies up to this size are compared byte for byte with the first one.
const MOST_COMPARED: usize = 4 * 1024 * 1024;

/// Carries a run from the first probe to its verdicts. `look` is told how far it is; `shared` ends it early.
///
/// # Errors
/// [`CampaignError`], if there is nothing to tell.
pub fn run(options: &Options, shared: &Shared, look: &mut dyn FnMut(&Progress<'_>)) -> Result<Measured, CampaignError> {
    let mut campaign = Campaign::prepare(options, shared, look)?;
    if options.ladder {
        campaign.find_rates()?;
    }
    campaign.measure()?;
    campaign.conclude()
}

/// How long every target keeps a connection after an answer, at most `patience`.
///
/// # Errors
/// [`CampaignError`], if one cannot be asked.
pub fn check_framing(options: &Options, patience: Duration) -> Result<Vec<AfterBody>, CampaignError> {
    let shared = Shared::default();
    let mut nobody = |_: &Progress<'_>| {};
    let campaign = Campaign::prepare(options, &shared, &mut nobody)?;
    let limit = Limit {
        count: Some(1),
        time: None,
    };
    let ask = |place| Ok(after_body(&campaign.job(place, campaign.levels[0], limit), patience)?);
    (0..options.targets.len()).map(ask).collect()
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    connections: u32,
    rate: Option<f64>,
}

/// What ends a slice.
#[derive(Debug, Clone, Copy)]
struct Limit {
    count: Option<u64>,
    time: Option<Duration>,
}

struct Campaign<'o> {
    options: &'o Options,
    shared: &'o Shared,
    look: &'o mut dyn FnMut(&Progress<'_>),
    started: String,
    start: Instant,
    machine: result::Machine,
    random: Rng,
    targets: Vec<Prepared>,
    /// The last of `targets` is the first one again.
    has_twin: bool,
    levels: Vec<Level>,
    gathered: Vec<Gathered>,
    /// Slices so far, and in all.
    slices: (u32, u32),
    first: Option<Captured>,
    warnings: Vec<Warning>,
}

impl<'o> Campaign<'o> {
    // ── before the first slice ───────────────────────────────────────────────────────────────────────────────────────

    fn prepare(
        options: &'o Options,
        shared: &'o Shared,
        look: &'o mut dyn FnMut(&Progress<'_>),
    ) -> Result<Self, CampaignError> {
        let machine = surroundings::machine();
        let (started, start) = (surroundings::now(), Instant::now());
        let mut targets = Vec::new();
        for target in &options.targets {
            targets.push(Prepared::new(target, options)?);
        }
        let rates = |connections: &u32| Level {
            connections: *connections,
            rate: options.rate,
        };
        let mut campaign = Self {
            options,
            shared,
            look,
            started,
            start,
            machine,
            random: Rng::with_seed(options.seed),
            targets,
            has_twin: false,
            levels: options.connections.iter().map(rates).collect(),
            gathered: Vec::new(),
            slices: (0, 0),
            first: None,
            warnings: Vec::new(),
        };
        campaign.ask_once()?;
        if options.aa {
            let twin = Prepared::new(&options.targets[0], options)?;
            let first = &campaign.targets[0];
            let twin = Prepared {
                expected: first.expected.clone(),
                ..twin
            };
            campaign.targets.push(twin);
            campaign.has_twin = true;
        }
        Ok(campaign)
    }

    /// Asks every target twice, unless asking changes something: what it answers, and whether it always does.
    fn ask_once(&mut self) -> Result<(), CampaignError> {
        let is_safe = matches!(self.options.template.method.as_str(), "GET" | "HEAD");
        if self.options.template.as_ab || !is_safe {
            return Ok(());
        }
        for place in 0..self.targets.len() {
            let level = self.levels[0];
            let job = self.job(
                place,
                level,
                Limit {
                    count: Some(1),
                    time: None,
                },
            );
            let target = self.targets[place].target.name.clone();
            let no_answer = |why| CampaignError::NoAnswer {
                target: target.clone(),
                why,
            };
            let first = probe::ask(&job).map_err(no_answer)?;
            let second = probe::ask(&job).map_err(no_answer)?;
            let prepared = &mut self.targets[place];
            prepared.varies = first.answer.sha256 != second.answer.sha256;
            if self.options.mix.is_none() {
                prepared.expected.status = StatusRule::Same(first.answer.status);
                let is_fixed = first.is_constant && !prepared.varies && first.answer.encoding == "identity";
                if is_fixed && first.body.len() <= MOST_COMPARED && self.options.template.method == "GET" {
                    prepared.expected.body = Some(first.body.clone());
                }
            }
            prepared.probed = Some(first);
        }
        self.judge_answers();
        Ok(())
    }

    /// The rates of a ladder: tenths of what the slower target serves when it is asked as fast as it answers.
    fn find_rates(&mut self) -> Result<(), CampaignError> {
        let limit = Limit {
            count: None,
            time: Some(self.options.slice.unwrap_or(SLICE)),
        };
        let mut slowest = f64::INFINITY;
        for place in 0..self.options.targets.len() {
            let level = Level {
                rate: None,
                ..self.levels[0]
            };
            let (tally, _) = self.slice(place, level, limit, true)?;
            slowest = slowest.min(tally.rate());
        }
        let connections = self.levels[0].connections;
        let tenth = |tenths: u32| Level {
            connections,
            rate: Some((slowest * f64::from(tenths) / 10.0).max(1.0)),
        };
        self.levels = (1..=9).map(tenth).collect();
        Ok(())
    }

    // ── slices ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn is_mirrored(&self) -> bool {
        self.targets.len() > 1
    }

    fn rounds(&self) -> u32 {
        let is_comparison = self.is_mirrored() || self.levels.len() > 1;
        let default = match (is_comparison, self.options.ladder) {
            (true, false) => 5,
            _ => 1,
        };
        self.options.rounds.unwrap_or(default).max(1)
    }

    fn limit(&self, is_second: bool) -> Limit {
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

    fn is_replay(&self) -> bool {
        self.options.mix.as_ref().is_some_and(|mix| !mix.times.is_empty())
    }

    fn warmup(&self) -> Duration {
        let is_long = self.is_mirrored() || self.levels.len() > 1 || self.options.duration.is_some();
        let is_wanted = is_long && !self.options.template.as_ab && !self.is_replay();
        self.options.warmup.unwrap_or(if is_wanted {
            Duration::from_secs(1)
        } else {
            Duration::ZERO
        })
    }

    fn measure(&mut self) -> Result<(), CampaignError> {
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
    fn slice(
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
            pss_bytes: None,
            kernel: result::KernelCounts::default(),
        };
        let began = Instant::now();
        self.shared.done.store(0, Ordering::Relaxed);
        let shared = self.shared;
        let result = thread::scope(|scope| {
            let (done, is_done) = mpsc::channel::<()>();
            let job = &job;
            seen.look(processes, page, began);
            let generator = scope.spawn(move || {
                // Dropped at the end, whichever way that comes.
                let _done = done;
                spread::run(job, shared)
            });
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                seen.look(processes, page, began);
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
        seen.look(processes, page, began);
        seen.pss_bytes = processes.pss_bytes();
        seen.kernel = surroundings::kernel_counts().since(kernel);
        self.first = self.first.take().or(captured);
        Ok((tally, seen))
    }

    fn job(&self, target: usize, level: Level, limit: Limit) -> Job {
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
            protocol: prepared.target.address.protocol(),
            tls: prepared.tls.clone(),
            tunnel: prepared.tunnel.clone(),
            requests: prepared.requests.clone(),
            order: prepared.order.clone(),
            connections: level.connections,
            first_connection: 0,
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
            stop_on_error: options.stop_on_error,
            capture: options.capture,
            as_ab: options.template.as_ab,
            keep_times: options.keep_times,
        }
    }

    fn threads(&self, connections: u32) -> u32 {
        let default = (self.machine.cores / 4).max(1);
        self.options.threads.unwrap_or(default).clamp(1, connections.max(1))
    }

    // ── after the last slice ─────────────────────────────────────────────────────────────────────────────────────────

    fn conclude(mut self) -> Result<Measured, CampaignError> {
        if self.gathered.iter().all(|gathered| gathered.slices.is_empty()) {
            return Err(CampaignError::Interrupted);
        }
        let duration_s = self.start.elapsed().as_secs_f64();
        let noise = self.noise();
        if self.has_twin {
            let twin = self.targets.len() - 1;
            self.gathered.retain(|gathered| gathered.target != twin);
            self.targets.pop();
        }
        let (points, tallies): (Vec<Point>, Vec<Tally>) = std::mem::take(&mut self.gathered)
            .into_iter()
            .map(Gathered::finish)
            .unzip();
        for point in &points {
            self.judge(point);
        }
        if self.machine.load_before > f64::from(self.machine.cores) / 2.0 {
            self.warn(
                WarningKind::Busy,
                None,
                format!(
                    "the machine was busy before the run (load {:.1})",
                    self.machine.load_before
                ),
            );
        }
        let targets: Vec<result::Target> = self.targets.iter().map(Prepared::described).collect();
        let comparisons = compare(&targets, &points, noise.as_ref(), self.options.seed);
        let verdicts = sentences(&targets, &comparisons, noise.as_ref());
        let run = Run {
            schema: SCHEMA,
            kind: self.kind(),
            tool: format!("haulier {}", env!("CARGO_PKG_VERSION")),
            command: self.options.command.clone(),
            started: self.started.clone(),
            duration_s,
            seed: self.options.seed,
            load: self.load(),
            machine: self.machine,
            targets,
            points,
            comparisons,
            noise,
            verdicts,
            warnings: self.warnings,
        };
        let request = self.targets[0]
            .requests
            .first()
            .map_or_else(Vec::new, |first| first.bytes.clone());
        Ok(Measured {
            run,
            request,
            tallies,
            first: self.first,
            first_length: self.shared.first_length(),
        })
    }

    fn kind(&self) -> Kind {
        if self.is_replay() {
            Kind::Replay
        } else if self.options.ladder {
            Kind::Ladder
        } else if self.levels.len() > 1 {
            Kind::Sweep
        } else if self.options.targets.len() > 1 || self.options.aa {
            Kind::Comparison
        } else {
            Kind::Single
        }
    }

    fn load(&self) -> Load {
        let (options, limit) = (self.options, self.limit(false));
        let most = options.connections.iter().copied().max().unwrap_or(1);
        let is_fast_cgi = options
            .targets
            .iter()
            .all(|target| matches!(target.address, Address::FastCgi { .. }));
        let protocol = match (is_fast_cgi, options.template.as_ab) {
            (true, _) => "FastCGI",
            (false, true) => "HTTP/1.0",
            (false, false) => "HTTP/1.1",
        };
        let is_open = options.rate.is_some() || options.ladder;
        let spacing = match options.spacing {
            Spacing::Constant => "constant",
            Spacing::Poisson => "poisson",
        };
        Load {
            connections: options.connections.clone(),
            threads: self.threads(most),
            processes: spread::processes(most),
            rounds: self.rounds(),
            requests: limit.count,
            slice_s: limit.time.map(|time| time.as_secs_f64()),
            warmup_s: self.warmup().as_secs_f64(),
            rate: options.rate,
            arrivals: is_open.then(|| spacing.to_owned()),
            protocol: protocol.to_owned(),
            streams: None,
            keep_alive: options.template.keep_alive,
            method: options.template.method.clone(),
            body_bytes: options.template.body.as_ref().map_or(0, Vec::len) as u64,
            accept: options.template.accept.clone(),
            read_rate: options.read_rate,
            send_rate: options.send_rate,
            timeout_s: options.timeout.as_secs_f64(),
        }
    }

    fn noise(&self) -> Option<Noise> {
        let twin = self.targets.len().checked_sub(1).filter(|_| self.has_twin)?;
        let of = |target: usize| {
            let slices = self.gathered.iter().filter(|gathered| gathered.target == target);
            slices.flat_map(|gathered| gathered.slices.clone()).collect::<Vec<_>>()
        };
        Some(noise(0, &of(0), &of(twin), self.options.seed))
    }
}
