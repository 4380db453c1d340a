//! After the last slice: points, comparisons, verdicts, and the document of the run.

use super::{Campaign, CampaignError, Gathered, Measured, Prepared};
use crate::compare::{compare, noise, sentences};
use crate::job::Outgoing;
use crate::pacer::Spacing;
use crate::result::{self, Kind, Load, Noise, Point, Run, SCHEMA, WarningKind};
use crate::sample::Tally;
use crate::spread;
use crate::target::Address;

impl Campaign<'_> {
    pub(super) fn conclude(mut self) -> Result<Measured, CampaignError> {
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
            .map_or_else(Vec::new, Outgoing::as_text);
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
        let has_streams = options.template.http2 && !is_fast_cgi;
        let protocol = match &options.template {
            _ if is_fast_cgi => "FastCGI".to_owned(),
            template if template.http2 => "HTTP/2".to_owned(),
            template => format!("HTTP/{}", template.manners.version),
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
            protocol,
            streams: has_streams.then_some(if options.template.keep_alive {
                options.streams
            } else {
                1
            }),
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
