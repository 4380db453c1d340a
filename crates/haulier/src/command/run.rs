//! `haulier run`: serve what the configuration says, in the foreground, day and night.

use super::{Outcome, configuration};
use crate::announce::Announcement;
use crate::assemble::Purpose;
use crate::cli::{Console, RunArgs};
use crate::config::Report;
use crate::config::settings::{self, Mode};
use crate::machine::Machine;
use crate::{init, lifecycle};

pub(super) fn run(arguments: &RunArgs, console: &Console) -> Outcome {
    if let Some(outcome) = init::run_as_first() {
        return outcome;
    }
    let mut report = Report::default();
    let (path, file) = match configuration::find_and_load(arguments.config.as_deref(), &mut report) {
        Ok(loaded) => loaded,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            return Outcome::AskedWrong;
        }
    };
    let mut settings = settings::resolve(&file, Mode::Run, &Machine::look(), &mut report);
    if report.errors() > 0 {
        configuration::print(&report, console);
        eprintln!("{}: {}", path.display(), configuration::counts(&report));
        return Outcome::AskedWrong;
    }
    settings.config = Some(path.clone());
    let announcement = Announcement::of_run(&settings, &path);
    lifecycle::serve(settings, Purpose::Production, &announcement, &report, console)
}
