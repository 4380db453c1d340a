//! A whole run: one request to every target, warm-up, slices, comparison.
//!
//! Several targets are measured in rounds. The order within a round is random and then mirrored (A B B A), so that drift
//! affects all targets alike. A slice is one job (`job`); while it runs, this thread samples the server.

mod closing;
mod division;
mod judge;
mod observation;
mod opening;
mod options;
mod point_tally;
mod prepared;
mod slices;

use std::time::{Duration, Instant};

use fastrand::Rng;

use self::division::Limit;
pub use self::options::{CampaignError, Measured, Options, Progress};
use self::point_tally::PointTally;
use self::prepared::PreparedTarget;
use crate::answer::Captured;
use crate::framing::{AfterBody, after_body};
use crate::result::{self, Warning, WarningKind};
use crate::runner::LoadControl;

/// Carries out a run, from the first request to the verdicts. `control` ends it early.
///
/// # Errors
/// [`CampaignError`] if nothing was measured.
pub fn run(
    options: &Options,
    control: &LoadControl,
    on_progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, CampaignError> {
    let mut campaign = Campaign::prepare(options, control, on_progress)?;
    if options.ladder {
        campaign.find_rates()?;
    }
    campaign.measure()?;
    campaign.conclude()
}

/// Time for which every target keeps a connection after an answer, at most `timeout`.
///
/// # Errors
/// [`CampaignError`] if a target cannot be asked.
pub fn check_framing(options: &Options, timeout: Duration) -> Result<Vec<AfterBody>, CampaignError> {
    let control = LoadControl::default();
    let mut ignore = |_: &Progress<'_>| {};
    let campaign = Campaign::prepare(options, &control, &mut ignore)?;
    let ask = |target| {
        let job = campaign.job(target, campaign.levels[0], Limit::ONE_REQUEST);
        Ok(after_body(&job, timeout)?)
    };
    (0..options.targets.len()).map(ask).collect()
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    connections: u32,
    rate: Option<f64>,
}

struct Campaign<'o> {
    // The work.
    options: &'o Options,
    targets: Vec<PreparedTarget>,
    /// The last of `targets` is the first one again.
    has_twin: bool,
    levels: Vec<Level>,

    // Its progress.
    start: RunStart,
    control: &'o LoadControl,
    on_progress: &'o mut dyn FnMut(&Progress<'_>),
    random: Rng,
    slices_done: u32,
    slices_planned: u32,

    // The result.
    collected: Collected,
}

/// Time and machine of a run.
struct RunStart {
    /// UTC, RFC 3339.
    started: String,
    instant: Instant,
    machine: result::Machine,
}

impl RunStart {
    fn elapsed_s(&self) -> f64 {
        self.instant.elapsed().as_secs_f64()
    }
}

/// Results of the slices so far.
#[derive(Default)]
struct Collected {
    /// Level by level, target by target.
    points: Vec<PointTally>,
    /// The first answer, if it is kept.
    first: Option<Captured>,
    warnings: Vec<Warning>,
}

impl Collected {
    fn warn(&mut self, kind: WarningKind, target: Option<usize>, text: String) {
        self.warnings.push(Warning { kind, target, text });
    }
}
