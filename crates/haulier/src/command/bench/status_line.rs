//! Progress of a run: a line on a terminal that is drawn over itself, or ab's lines.

use std::io::{self, IsTerminal};

use haulier_bench::campaign::{Options, Progress};
use haulier_bench::report::ab::{AbForm, AbProgress};
use haulier_bench::report::figures;

use crate::cli::Console;
use crate::cli::bench::BenchArgs;

pub(super) struct StatusLine {
    is_shown: bool,
    is_drawn: bool,
    ab: Option<AbProgress>,
}

impl StatusLine {
    /// A line for `haulier bench`, or with `ab` the lines of ab.
    pub(super) fn new(options: &Options, arguments: &BenchArgs, ab: Option<&AbForm>, console: &Console) -> Self {
        Self {
            is_shown: ab.is_none() && !arguments.quiet && !console.quiet && io::stderr().is_terminal(),
            is_drawn: false,
            ab: ab.and_then(|form| AbProgress::new(options, form)),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        if let Some(ab) = &mut self.ab {
            eprint!("{}", ab.lines(progress.answers));
        }
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

    /// Ends the line; `answers` is the number of answers of a run that was measured.
    pub(super) fn finish(&mut self, answers: Option<u64>) {
        if let (Some(ab), Some(answers)) = (&mut self.ab, answers) {
            eprint!("{}", ab.lines(answers));
            eprintln!("Finished {answers} requests");
        }
        if std::mem::take(&mut self.is_drawn) {
            eprint!("\r\x1b[K");
        }
    }
}
