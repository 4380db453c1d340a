//! `haulier status`: the state of the running haulier.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use haulier_settings::Diagnostic;

use super::{configuration, status_text};
use crate::admin::state::ServerState;
use crate::admin::{Client, cannot_ask, find};
use crate::cli::{Console, StatusArgs};
use crate::outcome::CommandOutcome;

/// Its name in messages.
const COMMAND: &str = "status";
/// Interval of `--watch`.
const PACE: Duration = Duration::from_secs(1);
/// Moves the cursor to the upper left corner and clears the screen.
const REPAINT: &str = "\x1b[H\x1b[J";

pub(super) fn run(arguments: &StatusArgs, console: &Console) -> CommandOutcome {
    let client = find(arguments.socket.as_deref(), COMMAND);
    match client.and_then(|client| show(client, arguments)) {
        Ok(()) => CommandOutcome::Done,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            CommandOutcome::Failed
        }
    }
}

/// Asks and prints, once or until standard output is closed, which is not a failure.
fn show(mut client: Client, arguments: &StatusArgs) -> Result<(), Diagnostic> {
    let repaint = arguments.watch && !arguments.json && io::stdout().is_terminal();
    loop {
        let state = client.status().map_err(|error| cannot_ask(&error, COMMAND))?;
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

fn json(state: &ServerState) -> String {
    let mut line = serde_json::to_string(state).unwrap_or_else(|error| format!("\"{error}\""));
    line.push('\n');
    line
}
