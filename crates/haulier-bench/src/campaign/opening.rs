//! Before the first slice: every target is resolved and requested, and the rates of a ladder are measured.

use std::time::Instant;

use fastrand::Rng;

use super::division::{Limit, SLICE};
use super::{Campaign, CampaignError, Collected, Level, Options, PreparedTarget, Progress, RunStart};
use crate::job::StatusRule;
use crate::runner::LoadControl;
use crate::{probe, surroundings};

/// Largest body that is compared byte for byte with the first one.
const MOST_COMPARED: usize = 4 * 1024 * 1024;

impl<'o> Campaign<'o> {
    pub(super) fn prepare(
        options: &'o Options,
        control: &'o LoadControl,
        on_progress: &'o mut dyn FnMut(&Progress<'_>),
    ) -> Result<Self, CampaignError> {
        let start = RunStart {
            machine: surroundings::machine(),
            started: surroundings::now(),
            instant: Instant::now(),
        };
        let prepare = |target| PreparedTarget::new(target, options);
        let level = |connections: &u32| Level {
            connections: *connections,
            rate: options.rate,
        };
        let mut campaign = Self {
            options,
            targets: options.targets.iter().map(prepare).collect::<Result<_, _>>()?,
            has_twin: false,
            levels: options.connections.iter().map(level).collect(),
            start,
            control,
            on_progress,
            random: Rng::with_seed(options.seed),
            slices_done: 0,
            slices_planned: 0,
            collected: Collected::default(),
        };
        campaign.ask_once()?;
        if options.aa {
            let twin = PreparedTarget {
                expected: campaign.targets[0].expected.clone(),
                ..prepare(&options.targets[0])?
            };
            campaign.targets.push(twin);
            campaign.has_twin = true;
        }
        Ok(campaign)
    }

    /// Requests every target twice, unless the method may change something, to learn its answer and whether it varies.
    fn ask_once(&mut self) -> Result<(), CampaignError> {
        let is_safe = matches!(self.options.template.method.as_str(), "GET" | "HEAD");
        if !self.options.template.mode.probes || !is_safe {
            return Ok(());
        }
        for place in 0..self.targets.len() {
            let job = self.job(place, self.levels[0], Limit::ONE_REQUEST);
            let no_answer = |why| CampaignError::NoAnswer {
                target: self.targets[place].target.name.clone(),
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

    /// Sets the rates of a ladder: tenths of the slower target's rate in a closed loop.
    pub(super) fn find_rates(&mut self) -> Result<(), CampaignError> {
        let limit = Limit::time(self.options.slice.unwrap_or(SLICE));
        let connections = self.levels[0].connections;
        let mut slowest = f64::INFINITY;
        for place in 0..self.options.targets.len() {
            let level = Level {
                connections,
                rate: None,
            };
            let (tally, _) = self.slice(place, level, limit, true)?;
            slowest = slowest.min(tally.rate());
        }
        let tenths = |tenths: u32| Level {
            connections,
            rate: Some((slowest * f64::from(tenths) / 10.0).max(1.0)),
        };
        self.levels = (1..=9).map(tenths).collect();
        Ok(())
    }
}
