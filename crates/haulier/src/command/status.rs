//! `haulier status`: what the running haulier is doing now.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::{Outcome, configuration, status_text};
use crate::admin::state::State;
use crate::admin::{AskError, Client, find_running};
use crate::cli::{Console, StatusArgs};
use crate::config::Diagnostic;

/// How often `--watch` looks.
const PACE: Duration = Duration::from_secs(1);
/// Cursor to the upper left corner, and everything below it away.
const REPAINT: &str = "\x1b[H\x1b[J";

pub(super) fn run(arguments: &StatusArgs, console: &Console) -> Outcome {
    let client = match &arguments.socket {
        Some(path) => Client::connect(path).map_err(|error| cannot_ask(&error)),
        None => connect_to_the_only_one(),
    };
    match client.and_then(|client| show(client, arguments)) {
        Ok(()) => Outcome::Done,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            Outcome::Failed
        }
    }
}

/// Asks and prints, once or for as long as somebody watches. A reader that has gone away is no failure.
fn show(mut client: Client, arguments: &StatusArgs) -> Result<(), Diagnostic> {
    let repaint = arguments.watch && !arguments.json && io::stdout().is_terminal();
    loop {
        let state = client.status().map_err(|error| cannot_ask(&error))?;
        let text = if arguments.json {
            json(&state)
        } else {
            status_text::render(&state)
        };
        let before = if repaint { REPAINT } else { "" };
        let mut output = io::stdout().lock();
        let written = write!(output, "{before}{text}").and_then(|()| output.flush());
        if written.is_err() || !arguments.watch {
            return Ok(());
        }
        thread::sleep(PACE);
        if !repaint && !arguments.json && writeln!(output).is_err() {
            return Ok(());
        }
    }
}

fn json(state: &State) -> String {
    let mut line = serde_json::to_string(state).unwrap_or_else(|error| format!("\"{error}\""));
    line.push('\n');
    line
}

/// The control socket of the one haulier that runs here. Files left by those that are gone do not count.
fn connect_to_the_only_one() -> Result<Client, Diagnostic> {
    let mut forbidden = None;
    let mut running: Vec<(PathBuf, Client)> = Vec::new();
    for path in find_running() {
        match Client::connect(&path) {
            Ok(client) => running.push((path, client)),
            Err(AskError::Connect { path, source }) if source.kind() == ErrorKind::PermissionDenied => {
                forbidden = Some(path);
            }
            Err(_) => {}
        }
    }
    match (running.len(), forbidden) {
        (1, _) => Ok(running.remove(0).1),
        (0, Some(path)) => Err(Diagnostic::error(
            "status",
            format!("the haulier at {} is another user's", path.display()),
        )
        .help("ask as that user: sudo haulier status")),
        (0, None) => Err(Diagnostic::error("status", "no haulier is running here")
            .help("one with `control` in its `[server]` is asked by --socket PATH")),
        _ => Err(several(running.iter().map(|(path, _)| path.as_path()))),
    }
}

fn several<'p>(paths: impl Iterator<Item = &'p Path>) -> Diagnostic {
    let diagnostic = Diagnostic::error("status", "more than one haulier is running here");
    paths.fold(diagnostic, |diagnostic, path| {
        diagnostic.help(format!("haulier status --socket {}", path.display()))
    })
}

fn cannot_ask(error: &AskError) -> Diagnostic {
    let diagnostic = |source: &io::Error| Diagnostic::error("status", format!("{error}: {source}"));
    match error {
        AskError::Connect { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                diagnostic(source).help("no haulier listens there: is it running, is this its `control`?")
            }
            ErrorKind::PermissionDenied => diagnostic(source).help("ask as the user it runs as, or with sudo"),
            _ => diagnostic(source),
        },
        AskError::Lost { source, .. } => diagnostic(source),
        AskError::Refused { .. } => Diagnostic::error("status", error.to_string())
            .help("is it another version? `haulier --version` is this one's"),
    }
}
