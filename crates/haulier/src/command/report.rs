//! `haulier bench report`: stored runs for people.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::configuration::print_one;
use crate::cli::Console;
use crate::cli::report::ReportArgs;
use crate::outcome::CommandOutcome;
use haulier_bench::report::compare;
use haulier_bench::report::data::{self, DataError};
use haulier_bench::report::{self, Report, terminal};
use haulier_settings::Diagnostic;

pub(super) fn run(arguments: &ReportArgs, console: &Console) -> CommandOutcome {
    let mut reports = Vec::new();
    for path in &arguments.files {
        match data::read(path) {
            Ok(report) => reports.push((path.clone(), report)),
            Err(error) => {
                print_one(unreadable(&error), console);
                return CommandOutcome::Failed;
            }
        }
    }
    let Some(mut report) = compare::merge(reports) else {
        return CommandOutcome::Misused;
    };
    if let Some(title) = &arguments.title {
        report.title.clone_from(title);
    }
    if arguments.output.is_empty() {
        // A closed standard output is not a failure.
        let _ = io::stdout().write_all(terminal::text(&report).as_bytes());
        return CommandOutcome::Done;
    }
    write_all(&report, &arguments.output, console)
}

/// The error of a file that holds no report.
pub(super) fn unreadable(error: &DataError) -> Diagnostic {
    let cause = std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    let diagnostic = Diagnostic::error("report::data", format!("{error}{cause}"));
    match error {
        DataError::Unreadable { .. } | DataError::Newer { .. } => diagnostic,
        DataError::Foreign { .. } | DataError::NoData { .. } => {
            diagnostic.help("give what `haulier bench --json FILE` wrote, or a report made of it")
        }
    }
}

/// Writes a report to all these files, and prints their names.
pub(super) fn write_all(report: &Report, files: &[PathBuf], console: &Console) -> CommandOutcome {
    for path in files {
        if let Err(error) = report::write(report, path) {
            let title = format!("cannot write {}: {error}", path.display());
            print_one(Diagnostic::error("report::write", title), console);
            return CommandOutcome::Failed;
        }
        if !console.quiet {
            say(path);
        }
    }
    CommandOutcome::Done
}

fn say(path: &Path) {
    let _ = writeln!(io::stderr(), "written: {}", path.display());
}
