//! Before the first slice: targets are looked up and asked once, and the rates of a ladder are found.

use std::time::Instant;

use fastrand::Rng;

use super::{Campaign, CampaignError, Level, Limit, Options, Prepared, Progress, SLICE};
use crate::job::StatusRule;
use crate::runner::Shared;
use crate::{probe, surroundings};

/// Bodies up to this size are compared byte for byte with the first one.
const MOST_COMPARED: usize = 4 * 1024 * 1024;

impl<'o> Campaign<'o> {
    pub(super) fn prepare(
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
        if !self.options.template.manners.probes || !is_safe {
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
    pub(super) fn find_rates(&mut self) -> Result<(), CampaignError> {
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
}
