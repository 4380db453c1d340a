//! Finding, reading and checking the configuration, for `serve`, `run` and `check`.

use std::io::Write;
use std::path::{Path, PathBuf};

use haulier_settings::{Diagnostic, Report, UnreadableFile};

use crate::cli::Console;
use crate::config::file::{self, File};

/// The files that `run` and `check` try without `-c`.
const PLACES: [&str; 2] = ["./haulier.toml", "/etc/haulier/haulier.toml"];

/// The configuration of `run` and `check` with the path it was found at; findings go to `report`.
///
/// # Errors
/// There is no file, or it cannot be read.
pub(super) fn find_and_load(named: Option<&Path>, report: &mut Report) -> Result<(PathBuf, File), Diagnostic> {
    let path = find(named)?;
    let file = load(&path, report)?;
    Ok((path, file))
}

/// The file named, or the first one that is there.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, Diagnostic> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let found = PLACES.iter().map(Path::new).find(|path| path.exists());
    // Messages say `haulier.toml`, not `./haulier.toml`.
    found
        .map(|path| path.strip_prefix("./").unwrap_or(path).to_owned())
        .ok_or_else(|| {
            Diagnostic::error("config::missing", "no configuration")
                .help(format!("looked for {}", PLACES.join(" and ")))
                .help("name one with -c FILE, or try `haulier serve`, which needs none")
        })
}

/// Reads `path` and what it includes; findings go to `report`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn load(path: &Path, report: &mut Report) -> Result<File, Diagnostic> {
    let variables = |name: &str| std::env::var(name).ok();
    file::load(path, report, &variables).map_err(|error| unreadable(&error))
}

fn unreadable(error: &UnreadableFile) -> Diagnostic {
    let diagnostic = Diagnostic::error("config::unreadable", format!("{error}: {}", error.source));
    if error.source.kind() == std::io::ErrorKind::InvalidData {
        return diagnostic.help("a configuration is text in UTF-8");
    }
    diagnostic
}

/// Prints one finding that ends the command.
pub(super) fn print_one(diagnostic: Diagnostic, console: &Console) {
    let mut report = Report::default();
    report.push(diagnostic);
    print(&report, console);
}

/// Prints findings on standard error.
pub(super) fn print(report: &Report, console: &Console) {
    // A closed standard error is not a failure.
    let _ = write!(std::io::stderr(), "{}", report.render(console.colors_stderr()));
}
