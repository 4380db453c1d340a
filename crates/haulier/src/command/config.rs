//! `haulier config`: the configuration in force, with the line each value came from.

use std::io::{self, Write};

use haulier_settings::Report;

use super::{Outcome, configuration};
use crate::cli::{ConfigArgs, Console};
use crate::config::effective::Effective;
use crate::config::schema;
use crate::config::settings::{self, Mode};
use crate::machine::Machine;

pub(super) fn run(arguments: &ConfigArgs, console: &Console) -> Outcome {
    if arguments.schema {
        return print(&format!("{:#}", schema::schema()));
    }
    let mut report = Report::default();
    let (path, file) = match configuration::find_and_load(arguments.config.as_deref(), &mut report) {
        Ok(loaded) => loaded,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            return Outcome::AskedWrong;
        }
    };
    let settings = settings::resolve(&file, Mode::Run, &Machine::look(), &mut report);
    if report.errors() > 0 {
        configuration::print(&report, console);
        eprintln!("{}: {}", path.display(), configuration::counts(&report));
        return Outcome::AskedWrong;
    }
    let effective = Effective::of(&report, &settings);
    if arguments.json {
        print(&format!("{:#}", effective.to_json()))
    } else {
        print(&effective.to_toml())
    }
}

/// A reader that has gone away is no failure.
fn print(text: &str) -> Outcome {
    let _ = writeln!(io::stdout().lock(), "{text}");
    Outcome::Done
}
