//! `haulier config`: the configuration in force, with the line each value came from.

use std::io::{self, Write};

use haulier_settings::Report;

use super::configuration;
use crate::cli::{ConfigArgs, Console};
use crate::config;
use crate::config::effective::Effective;
use crate::config::schema;
use crate::config::settings::Mode;
use crate::machine::Machine;
use crate::outcome::CommandOutcome;
use crate::quantity;

pub(super) fn run(arguments: &ConfigArgs, console: &Console) -> CommandOutcome {
    if arguments.schema {
        return print(&format!("{:#}", schema::schema()));
    }
    let mut report = Report::default();
    let (path, file) = match configuration::find_and_load(arguments.config.as_deref(), &mut report) {
        Ok(loaded) => loaded,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            return CommandOutcome::Misused;
        }
    };
    let settings = config::resolve(&file, Mode::Run, &Machine::look(), &mut report);
    if report.errors() > 0 {
        configuration::print(&report, console);
        eprintln!("{}: {}", path.display(), quantity::findings(&report));
        return CommandOutcome::Misused;
    }
    let effective = Effective::of(&report, &settings);
    if arguments.json {
        print(&format!("{:#}", effective.to_json()))
    } else {
        print(&effective.to_toml())
    }
}

/// A closed standard output is not a failure.
fn print(text: &str) -> CommandOutcome {
    let _ = writeln!(io::stdout().lock(), "{text}");
    CommandOutcome::Done
}
