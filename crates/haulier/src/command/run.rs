//! `haulier run`: serve the sites of the configuration, in the foreground.

use std::path::Path;

use haulier_settings::{Diagnostic, Report};

use super::configuration;
use crate::announce::Announcement;
use crate::cli::{Console, RunArgs};
use crate::config::settings::Mode;
use crate::config::{self, Settings};
use crate::init;
use crate::lifecycle::{self, ConfigurationSource, StartOptions};
use crate::machine::Machine;
use crate::outcome::CommandOutcome;
use crate::purpose::Purpose;
use crate::quantity;

pub(super) fn run(arguments: &RunArgs, console: &Console) -> CommandOutcome {
    if let Some(outcome) = init::run_as_first() {
        return outcome;
    }
    let path = match configuration::find(arguments.config.as_deref()) {
        Ok(path) => path,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            return CommandOutcome::Misused;
        }
    };
    let read_path = path.clone();
    let source = ConfigurationSource::new(&path, move |report| read(&read_path, report));
    let mut report = Report::default();
    let Ok(configuration) = source.read(&mut report) else {
        configuration::print(&report, console);
        eprintln!("{}: {}", path.display(), quantity::findings(&report));
        return CommandOutcome::Misused;
    };
    let options = StartOptions {
        announcement: Announcement::of_run(&configuration.settings, &path),
        source,
        configuration,
        purpose: Purpose::Production,
        report,
        take_over: arguments.take_over,
    };
    lifecycle::serve(options, console)
}

fn read(path: &Path, report: &mut Report) -> Result<Settings, Diagnostic> {
    let file = configuration::load(path, report)?;
    let settings = config::resolve(&file, Mode::Run, &Machine::look(), report);
    Ok(Settings {
        config: Some(path.to_owned()),
        ..settings
    })
}
