//! `haulier stop`: end the running haulier, and wait until it is gone.

use std::io::{self, Write};
use std::time::Instant;

use haulier_settings::Diagnostic;

use super::configuration;
use crate::admin::{Client, Command, ControlAnswer, cannot_ask, find};
use crate::cli::{Console, StopArgs};
use crate::outcome::CommandOutcome;

/// Its name in messages.
const COMMAND: &str = "stop";

pub(super) fn run(arguments: &StopArgs, console: &Console) -> CommandOutcome {
    let stopped = find(arguments.socket.as_deref(), COMMAND).and_then(|client| stop(client, arguments, console));
    match stopped {
        Ok(()) => CommandOutcome::Done,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            CommandOutcome::Failed
        }
    }
}

fn stop(mut client: Client, arguments: &StopArgs, console: &Console) -> Result<(), Diagnostic> {
    let begun = Instant::now();
    let command = Command::Stop { now: arguments.now };
    let words = match client.ask(command).map_err(|error| cannot_ask(&error, COMMAND))? {
        ControlAnswer::Done(words) => words,
        other => return Err(cannot_ask(&client.refused(other), COMMAND)),
    };
    say(&format!("stopping: {words}"), console);
    client
        .wait_for_end()
        .map_err(|error| Diagnostic::error(COMMAND, format!("cannot wait for its end: {error}")))?;
    say(
        &format!("stopped after {:.1} s", begun.elapsed().as_secs_f64()),
        console,
    );
    Ok(())
}

/// A closed standard output is not a failure.
fn say(words: &str, console: &Console) {
    if !console.quiet {
        let _ = writeln!(io::stdout(), "{words}");
    }
}
