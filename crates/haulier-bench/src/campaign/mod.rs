//! A whole run: ask every target once, warm up, measure slice by slice, and say what was found.
//!
//! Several targets are measured in blocks whose order is drawn by lot and mirrored (A B B A), so that whatever drifts
//! hits all of them alike. One slice is one job (`job`); while it runs, this thread looks at the server.

mod closing;
mod gathered;
mod judge;
mod opening;
mod options;
mod prepared;
mod slices;

use std::time::{Duration, Instant};

use fastrand::Rng;

use self::gathered::Gathered;
pub use self::options::{CampaignError, Measured, Options, Progress};
use self::prepared::Prepared;
use crate::answer::Captured;
use crate::framing::{AfterBody, after_body};
use crate::result::{self, Warning};
use crate::runner::Shared;

/// Length of one slice where nothing says it.
const SLICE: Duration = Duration::from_secs(5);

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
