//! After the last slice: points, comparisons, verdicts, and the document of the run.

use super::{Campaign, CampaignError, Measured, PointTally, PreparedTarget};
use crate::compare::{compare, noise, sentences};
use crate::job::Outgoing;
use crate::pacer::Spacing;
use crate::result::{self, Noise, Point, Run, RunKind, RunLoad, SCHEMA};
use crate::sample::Tally;
use crate::spread;
use crate::target::Address;

impl Campaign<'_> {
    pub(super) fn conclude(mut self) -> Result<Measured, CampaignError> {
        if self.collected.points.iter().all(|point| point.slices.is_empty()) {
            return Err(CampaignError::Interrupted);
        }
        let duration_s = self.start.elapsed_s();
        let load = self.load();
        let noise = self.noise();
        self.remove_twin();
        let (points, tallies): (Vec<Point>, Vec<Tally>) = std::mem::take(&mut self.collected.points)
            .into_iter()
            .map(PointTally::finish)
            .unzip();
        self.judge(&points);
        let targets: Vec<result::Target> = self.targets.iter().map(PreparedTarget::described).collect();
        let comparisons = compare(&targets, &points, noise.as_ref(), self.options.seed);
        let verdicts = sentences(&targets, &comparisons, noise.as_ref());
        let run = Run {
            schema: SCHEMA,
            kind: self.kind(),
            tool: format!("haulier {}", env!("CARGO_PKG_VERSION")),
            command: self.options.command.clone(),
            started: self.start.started,
            duration_s,
            seed: self.options.seed,
            load,
            machine: self.start.machine,
            targets,
            points,
            comparisons,
            noise,
            verdicts,
            warnings: self.collected.warnings,
        };
        let request = self.targets[0].requests.first();
        Ok(Measured {
            run,
            request: request.map_or_else(Vec::new, Outgoing::as_text),
            tallies,
            first: self.collected.first,
            first_length: self.control.first_length(),
        })
    }

    fn remove_twin(&mut self) {
        if self.has_twin {
            self.targets.pop();
            let twin = self.targets.len();
            self.collected.points.retain(|point| point.target != twin);
        }
    }

    fn kind(&self) -> RunKind {
        if self.division().is_replay() {
            RunKind::Replay
        } else if self.options.ladder {
            RunKind::Ladder
        } else if self.levels.len() > 1 {
            RunKind::Sweep
        } else if self.options.targets.len() > 1 || self.options.aa {
            RunKind::Comparison
        } else {
            RunKind::Single
        }
    }

    fn load(&self) -> RunLoad {
        let (options, division) = (self.options, self.division());
        let limit = division.limit(false);
        let most = options.connections.iter().copied().max().unwrap_or(1);
        let template = &options.template;
        RunLoad {
            connections: options.connections.clone(),
            threads: self.threads(most),
            processes: spread::processes(most),
            rounds: division.rounds(),
            requests: limit.count,
            slice_s: limit.time.map(|time| time.as_secs_f64()),
            warmup_s: division.warmup().as_secs_f64(),
            rate: options.rate,
            arrivals: self.spacing().map(str::to_owned),
            protocol: self.protocol(),
            streams: (template.http2 && !self.is_fast_cgi()).then_some(match template.keep_alive {
                true => options.streams,
                false => 1,
            }),
            keep_alive: template.keep_alive,
            method: template.method.clone(),
            body_bytes: template.body.as_ref().map_or(0, Vec::len) as u64,
            accept: template.accept.clone(),
            read_rate: options.read_rate,
            send_rate: options.send_rate,
            timeout_s: options.timeout.as_secs_f64(),
        }
    }

    fn is_fast_cgi(&self) -> bool {
        let mut targets = self.options.targets.iter();
        targets.all(|target| matches!(target.address, Address::FastCgi { .. }))
    }

    fn protocol(&self) -> String {
        match &self.options.template {
            _ if self.is_fast_cgi() => "FastCGI".to_owned(),
            template if template.http2 => "HTTP/2".to_owned(),
            template => format!("HTTP/{}", template.mode.version),
        }
    }

    /// Spacing of the requests of an open loop.
    fn spacing(&self) -> Option<&'static str> {
        let is_open = self.options.rate.is_some() || self.options.ladder;
        is_open.then_some(match self.options.spacing {
            Spacing::Constant => "constant",
            Spacing::Poisson => "poisson",
        })
    }

    fn noise(&self) -> Option<Noise> {
        let twin = self.targets.len().checked_sub(1).filter(|_| self.has_twin)?;
        let of = |target: usize| {
            let points = self.collected.points.iter().filter(|point| point.target == target);
            points.flat_map(|point| point.slices.clone()).collect::<Vec<_>>()
        };
        Some(noise(0, &of(0), &of(twin), self.options.seed))
    }
}
