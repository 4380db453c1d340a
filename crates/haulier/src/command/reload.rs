//! `haulier reload`: have the running haulier read its configuration again.

use std::io::{self, Write};

use super::configuration;
use crate::admin::{Command, ControlAnswer, cannot_ask, find};
use crate::cli::{Console, ReloadArgs};
use crate::outcome::CommandOutcome;

/// Its name in messages.
const COMMAND: &str = "reload";

pub(super) fn run(arguments: &ReloadArgs, console: &Console) -> CommandOutcome {
    let command = Command::Reload {
        color: console.colors_stderr(),
        php: arguments.php,
    };
    let answer = find(arguments.socket.as_deref(), COMMAND)
        .and_then(|mut client| client.ask(command).map_err(|error| cannot_ask(&error, COMMAND)));
    // A closed standard output is not a failure: the exit code tells the result.
    match answer {
        Ok(ControlAnswer::Done(words)) => {
            if !console.quiet {
                let _ = writeln!(io::stdout(), "{words}");
            }
            CommandOutcome::Done
        }
        Ok(ControlAnswer::Wrong(text)) => {
            let _ = writeln!(io::stderr(), "{text}");
            CommandOutcome::Misused
        }
        Ok(ControlAnswer::Error(text)) => {
            let _ = writeln!(io::stderr(), "{text}");
            CommandOutcome::Failed
        }
        Ok(ControlAnswer::State(_) | ControlAnswer::Sockets(_)) => CommandOutcome::Failed,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            CommandOutcome::Failed
        }
    }
}
