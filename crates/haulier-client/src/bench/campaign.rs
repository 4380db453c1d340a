//! A whole run: ask every target once, warm up, measure slice by slice, and say what was found.
//!
//! Several targets are measured in blocks whose order is drawn by lot and mirrored (A B B A), so that whatever drifts
//! hits all of them alike. One slice is one [`Job`]; while it runs, this thread looks at the server.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use haulier_proto::fastcgi::PairTooLong;

use super::answer::Captured;
use super::compare::{compare, noise, sentences};
use super::framing::{AfterBody, after_body};
use super::job::{Arrivals, Destination, Expected, Job, Outgoing, StatusRule, TlsOptions};
use super::metrics::{self, Workers};
use super::mix::Mix;
use super::pacer::Spacing;
use super::probe::{self, Probed, differences};
use super::process::{Look, Processes};
use super::result::{
    GeneratorUse, Kind, Load, Noise, Point, Run, SCHEMA, Second, ServerUse, Slice, Total, Warning, WarningKind,
};
use super::runner::Shared;
use super::sample::Tally;
use super::target::{Address, Target, Template};
use super::{result, spread, surroundings};
use crate::url::Url;

/// Between two looks at the server.
const LOOK: Duration = Duration::from_millis(250);
/// A generator thread that used more of its core than this was the limit.
const BUSY_GENERATOR: f64 = 0.9;
/// A rate below this share of what was asked was not reached.
const REACHED: f64 = 0.98;
/// Length of one slice where nothing says it.
const SLICE: Duration = Duration::from_secs(5);
/// Bodies up to this size are compared byte for byte with the first one.
const MOST_COMPARED: usize = 4 * 1024 * 1024;

/// What a run shall do.
#[derive(Debug, Clone)]
pub struct Options {
    /// The command line, for the record.
    pub command: Vec<String>,
    pub targets: Vec<Target>,
    /// At least one; several are a sweep.
    pub connections: Vec<u32>,
    /// Generator threads; `None` for one for every four processors.
    pub threads: Option<u32>,
    /// Requests for every target and round.
    pub count: Option<u64>,
    /// Time for every target, all rounds together.
    pub duration: Option<Duration>,
    /// Arrivals a second: an open loop.
    pub rate: Option<f64>,
    pub spacing: Spacing,
    /// Rates from 10 to 90 % of what the slower target can do.
    pub ladder: bool,
    pub rounds: Option<u32>,
    pub slice: Option<Duration>,
    pub warmup: Option<Duration>,
    /// The first target runs twice, to see what the machine calls equal.
    pub aa: bool,
    pub template: Template,
    pub timeout: Duration,
    pub read_rate: Option<u64>,
    pub send_rate: Option<u64>,
    pub buffers: Option<u64>,
    pub source: Option<IpAddr>,
    /// `HOST:PORT` of an HTTP proxy.
    pub proxy: Option<String>,
    pub same_length: bool,
    pub stop_on_error: bool,
    pub mix: Option<Mix>,
    pub tls: TlsOptions,
    pub seed: u64,
    /// Keep the times of every request; memory grows with their number.
    pub keep_times: bool,
    /// Keep the first answer.
    pub capture: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            targets: Vec::new(),
            connections: vec![10],
            threads: None,
            count: None,
            duration: None,
            rate: None,
            spacing: Spacing::Constant,
            ladder: false,
            rounds: None,
            slice: None,
            warmup: None,
            aa: false,
            template: Template::default(),
            timeout: Duration::from_secs(30),
            read_rate: None,
            send_rate: None,
            buffers: None,
            source: None,
            proxy: None,
            same_length: false,
            stop_on_error: false,
            mix: None,
            tls: TlsOptions::default(),
            seed: 0,
            keep_times: false,
            capture: false,
        }
    }
}

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    #[error("cannot find {target}")]
    Resolve { target: String, source: io::Error },
    /// It was asked once and gave no answer.
    #[error("{target} does not answer: {why}")]
    NoAnswer { target: String, why: String },
    #[error("{0}")]
    Watch(String),
    #[error("a list of addresses is for HTTP; {0} is a FastCGI server")]
    MixForFastCgi(String),
    #[error("a field of the request is too long for FastCGI")]
    Field(#[from] PairTooLong),
    #[error("{target} has an address that cannot be asked: {path}")]
    Path { target: String, path: String },
    /// The generator itself could not work.
    #[error("cannot make the load")]
    Generator(#[from] io::Error),
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The target that is asked now.
    pub target: &'a str,
    pub connections: u32,
    pub rate: Option<f64>,
    /// The slice that runs, from 1, and how many there will be.
    pub slice: u32,
    pub slices: u32,
    pub is_warmup: bool,
    /// Answers in this slice.
    pub answers: u64,
    /// Requests this slice will have, if they are counted.
    pub count: Option<u64>,
    pub elapsed: Duration,
}

/// A run and what its document has no room for.
#[derive(Debug)]
pub struct Measured {
    pub run: Run,
    /// All that was counted, for every point of the run.
    pub tallies: Vec<Tally>,
    /// The first request, and its answer where it was kept.
    pub request: Vec<u8>,
    pub first: Option<Captured>,
    /// The length of the first body, where one was measured.
    pub first_length: Option<u64>,
}

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

/// A target, ready to be asked.
struct Prepared {
    target: Target,
    destination: Destination,
    tls: Option<TlsOptions>,
    tunnel: Option<String>,
    requests: Vec<Outgoing>,
    order: Vec<u32>,
    expected: Expected,
    probed: Option<Probed>,
    varies: bool,
    processes: Processes,
    /// It has been warmed up.
    is_warm: bool,
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

/// A target under one load, while it is measured.
struct Gathered {
    target: usize,
    level: Level,
    slices: Vec<Slice>,
    tally: Tally,
    timeline: Vec<Second>,
    server: Option<ServerUse>,
    generator: GeneratorUse,
}

/// What was seen while a slice ran.
struct Seen {
    start_s: f64,
    looks: Vec<(f64, Look, Option<Workers>)>,
    pss_bytes: Option<u64>,
    kernel: result::KernelCounts,
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

    fn judge_answers(&mut self) {
        let mut warnings = Vec::new();
        for (place, prepared) in self.targets.iter().enumerate() {
            let Some(probed) = &prepared.probed else { continue };
            let (name, answer) = (&prepared.target.name, &probed.answer);
            if answer.status >= 300 {
                let what = if answer.status < 400 {
                    "you are measuring redirects"
                } else {
                    "you are measuring error pages"
                };
                warnings.push(Warning {
                    kind: WarningKind::Status,
                    target: Some(place),
                    text: format!("{name} answers {} — {what}", answer.status),
                });
            }
            let Some(base) = self.targets[0].probed.as_ref().filter(|_| place > 0) else {
                continue;
            };
            let may_vary = prepared.varies || self.targets[0].varies;
            let found = differences(&base.answer, answer, may_vary);
            if !found.is_empty() {
                warnings.push(Warning {
                    kind: WarningKind::NotSameWork,
                    target: Some(place),
                    text: format!(
                        "not the same work: {} and {name}: {}",
                        self.targets[0].target.name,
                        found.join(", ")
                    ),
                });
            }
        }
        self.warnings.append(&mut warnings);
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
                let share = |all: u64| all / u64::from(halves) + u64::from(!is_second && all % u64::from(halves) > 0);
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

    fn warn(&mut self, kind: WarningKind, target: Option<usize>, text: String) {
        self.warnings.push(Warning { kind, target, text });
    }

    /// What must be known before a point is believed.
    fn judge(&mut self, point: &Point) {
        let name = self.targets[point.target].target.name.clone();
        let total = &point.total;
        let at = if self.levels.len() > 1 {
            point.rate.map_or_else(
                || format!(" at {} connections", point.connections),
                |rate| format!(" at {rate:.0}/s"),
            )
        } else {
            String::new()
        };
        let target = Some(point.target);
        if total.generator.cpu >= BUSY_GENERATOR {
            let share = total.generator.cpu * 100.0;
            self.warn(
                WarningKind::GeneratorLimited,
                target,
                format!("{name}{at}: the generator's CPU was at {share:.0} %: the tool was the limit (--threads gives it more)"),
            );
        }
        let failed = total.failures.all();
        if failed > 0 {
            let classes: Vec<String> = total
                .failures
                .by_class()
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| format!("{count} {class}"))
                .collect();
            self.warn(
                WarningKind::Failures,
                target,
                format!(
                    "{name}{at}: {failed} of {} requests failed: {}",
                    failed + total.requests,
                    classes.join(", ")
                ),
            );
        }
        if let Some(rate) = point.rate.filter(|rate| total.requests_per_second < rate * REACHED) {
            let reached = total.requests_per_second;
            self.warn(
                WarningKind::RateNotReached,
                target,
                format!("{name}{at}: target rate not reached: {reached:.0} of {rate:.0} requests/s (server or connection limit)"),
            );
        }
        if self.options.template.keep_alive && !self.options.template.as_ab {
            let needed = u64::from(point.connections) * point.slices.len() as u64;
            if total.connections_opened > needed + total.requests / 2 {
                self.warn(
                    WarningKind::NoKeepAlive,
                    target,
                    format!(
                        "{name}{at}: the server closes connections: {} were opened",
                        total.connections_opened
                    ),
                );
            }
        }
        let overflows: u64 = point.slices.iter().map(|slice| slice.kernel.listen_overflows).sum();
        if overflows > 0 {
            self.warn(
                WarningKind::Kernel,
                target,
                format!("{name}{at}: {overflows} connections found a full accept queue on this machine"),
            );
        }
    }
}

impl Prepared {
    fn new(target: &Target, options: &Options) -> Result<Self, CampaignError> {
        let destination = target.address.resolve(options.proxy.as_deref());
        let destination = destination.map_err(|source| CampaignError::Resolve {
            target: target.name.clone(),
            source,
        })?;
        let tls = target.address.tls_name().map(|name| TlsOptions {
            server_name: name.to_owned(),
            ..options.tls.clone()
        });
        let tunnel = match &target.address {
            Address::Http(url) if tls.is_some() && options.proxy.is_some() => Some(options.template.tunnel(url)),
            _ => None,
        };
        let (requests, order) = requests(target, options)?;
        let watch = &target.watch;
        let processes = Processes::new(&watch.pids, watch.unit.as_deref()).map_err(CampaignError::Watch)?;
        if let Some(page) = &watch.metrics {
            metrics::look(page).map_err(|error| CampaignError::Watch(format!("{page}: {error}")))?;
        }
        let status = match &options.mix {
            _ if options.template.as_ab => StatusRule::Any,
            // A log holds what people asked for, and some of that was never there.
            Some(_) => StatusRule::NoServerError,
            None => StatusRule::NoError,
        };
        Ok(Self {
            target: target.clone(),
            destination,
            tls,
            tunnel,
            requests,
            order,
            expected: Expected {
                status,
                same_length: options.same_length,
                body: None,
                time_failures: options.template.as_ab,
            },
            probed: None,
            varies: false,
            processes,
            is_warm: false,
        })
    }

    fn described(&self) -> result::Target {
        result::Target {
            name: self.target.name.clone(),
            url: self.target.address.to_string(),
            answer: self.probed.as_ref().map(|probed| probed.answer.clone()),
            varies: self.varies,
        }
    }
}

/// The requests of a target, and the order they are sent in.
fn requests(target: &Target, options: &Options) -> Result<(Vec<Outgoing>, Vec<u32>), CampaignError> {
    let Some(mix) = &options.mix else {
        return Ok((vec![options.template.request(&target.address)?], Vec::new()));
    };
    let Address::Http(base) = &target.address else {
        return Err(CampaignError::MixForFastCgi(target.name.clone()));
    };
    let mut found = Vec::new();
    for asked in &mix.requests {
        let url: Url = base.join(&asked.target).map_err(|_| CampaignError::Path {
            target: target.name.clone(),
            path: asked.target.clone(),
        })?;
        let template = Template {
            method: asked.method.clone(),
            ..options.template.clone()
        };
        found.push(template.request(&Address::Http(url))?);
    }
    Ok((found, mix.order.clone()))
}

impl Seen {
    fn look(&mut self, processes: &Processes, page: Option<&Url>, began: Instant) {
        if processes.is_empty() && page.is_none() {
            return;
        }
        // A page that fails once is missed; the run does not depend on it.
        let workers = page.and_then(|page| metrics::look(page).ok());
        self.looks
            .push((began.elapsed().as_secs_f64(), processes.look(), workers));
    }

    /// What it cost the server, for each of so many requests.
    fn server(&self, requests: u64) -> Option<ServerUse> {
        let ((began, first, first_workers), (ended, last, last_workers)) = (self.looks.first()?, self.looks.last()?);
        let each = |amount: f64| (requests > 0).then(|| amount / requests as f64);
        let cpu = last.cpu_since(first);
        let has_processes = last.processes > 0;
        let busy = |workers: &Option<Workers>| workers.and_then(|workers| workers.busy_seconds);
        let worker_seconds = busy(first_workers)
            .zip(busy(last_workers))
            .map(|(before, after)| after - before);
        let workers = || self.looks.iter().filter_map(|(_, _, workers)| *workers);
        Some(ServerUse {
            cpu_us_per_request: each(cpu).filter(|_| has_processes),
            cores: has_processes.then(|| cpu / 1e6 / (ended - began).max(1e-3)),
            rss_bytes: self
                .looks
                .iter()
                .map(|(_, look, _)| look.rss_bytes)
                .max()
                .filter(|_| has_processes),
            pss_bytes: self
                .pss_bytes
                .or_else(|| workers().filter_map(|one| one.memory_bytes).max()),
            processes: has_processes.then_some(last.processes),
            worker_us_per_request: worker_seconds.and_then(|seconds| each(seconds * 1e6)),
            peak_busy_workers: workers().filter_map(|one| one.busy).max(),
            peak_queue: workers().filter_map(|one| one.queued).max(),
        })
    }

    /// The tree's cores, memory and busy workers between two moments of the slice, s.
    fn between(&self, from: f64, to: f64) -> (Option<f64>, Option<u64>, Option<u32>) {
        let looks: Vec<_> = self.looks.iter().filter(|(at, ..)| (from..=to).contains(at)).collect();
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
            return (None, None, None);
        };
        let has_processes = last.1.processes > 0;
        let cpu = last.1.cpu_since(&first.1) / 1e6;
        let cores = (has_processes && last.0 > first.0).then(|| cpu / (last.0 - first.0));
        let memory = has_processes.then_some(last.1.rss_bytes);
        let busy = looks.iter().filter_map(|(_, _, workers)| workers.as_ref()?.busy).max();
        (cores, memory, busy)
    }
}

impl Gathered {
    fn new(target: usize, level: Level) -> Self {
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

    fn add(&mut self, round: u32, order: u32, tally: &Tally, seen: &Seen) {
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
        });
        let width = tally.seconds.width as f64;
        for (place, moment) in tally.seconds.entries.iter().enumerate() {
            let from = place as f64 * width;
            let (server_cores, server_rss_bytes, busy_workers) = seen.between(from, from + width);
            self.timeline.push(Second {
                at_s: seen.start_s + from,
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

    fn finish(self) -> (Point, Tally) {
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
        cores: average(before.cores, after.cores),
        rss_bytes: before.rss_bytes.max(after.rss_bytes),
        pss_bytes: before.pss_bytes.max(after.pss_bytes),
        processes: before.processes.max(after.processes),
        worker_us_per_request: average(before.worker_us_per_request, after.worker_us_per_request),
        peak_busy_workers: before.peak_busy_workers.max(after.peak_busy_workers),
        peak_queue: before.peak_queue.max(after.peak_queue),
    })
}
