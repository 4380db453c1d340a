//! How far a run is: one line on a terminal that is drawn over itself, or ab's lines.

use haulier_bench::campaign::{Options, Progress};

use super::is_terminal;
use crate::cli::Console;
use crate::cli::bench::BenchArgs;
use haulier_bench::report::figures;

/// ab says how far it is only in runs of more requests.
const AB_QUIET: u64 = 150;

pub(super) struct StatusLine {
    is_shown: bool,
    is_drawn: bool,
    /// ab's step, and the number it says next.
    ab: Option<(u64, u64)>,
}

/// Whether ab would say how far it is.
pub(super) fn ab_beats(options: &Options, arguments: &BenchArgs) -> bool {
    options.count.is_some_and(|count| count > AB_QUIET) && !arguments.quiet
}

impl StatusLine {
    pub(super) fn new(options: &Options, arguments: &BenchArgs, console: &Console) -> Self {
        let step = options.count.unwrap_or_default() / 10;
        let ab = arguments.ab && ab_beats(options, arguments);
        Self {
            is_shown: !arguments.ab && !arguments.quiet && !console.quiet && is_terminal(),
            is_drawn: false,
            ab: ab.then(|| (step.max(100), step.max(100))),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        self.beat(progress.answers);
        if !self.is_shown {
            return;
        }
        let slice = match (progress.is_warmup, progress.slices) {
            (true, _) => "warm-up".to_owned(),
            (false, 0 | 1) => String::new(),
            (false, slices) => format!("slice {} of {slices}", progress.slice),
        };
        let seconds = progress.elapsed.as_secs_f64();
        let rate = figures::number(progress.answers as f64 / seconds.max(0.001));
        let done = match progress.count {
            Some(count) => format!("{} of {}", figures::count(progress.answers), figures::count(count)),
            None => figures::count(progress.answers),
        };
        let level = match progress.rate {
            Some(rate) => format!("{} a second", figures::number(rate)),
            None => format!("{} connections", progress.connections),
        };
        eprint!("\r\x1b[K{}  {level}  {slice}  {done}  {rate}/s", progress.target);
        self.is_drawn = true;
    }

    /// ab's lines up to so many answers.
    fn beat(&mut self, answers: u64) {
        if let Some((step, next)) = &mut self.ab {
            while answers >= *next {
                eprintln!("Completed {next} requests");
                *next += *step;
            }
        }
    }

    /// The run is over, with so many answers if there were any.
    pub(super) fn finish(&mut self, answers: Option<u64>) {
        if let Some(answers) = answers.filter(|_| self.ab.is_some()) {
            self.beat(answers);
            eprintln!("Finished {answers} requests");
        }
        if std::mem::take(&mut self.is_drawn) {
            eprint!("\r\x1b[K");
        }
    }
}
