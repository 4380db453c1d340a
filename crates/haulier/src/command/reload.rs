//! `haulier reload`: have the running haulier read its configuration again.

use std::io::{self, Write};

use super::configuration;
use crate::admin::{Command, ControlAnswer, cannot_ask, find};
use crate::cli::{Console, ReloadArgs};
use crate::outcome::Outcome;

/// Its name in messages.
const COMMAND: &str = "reload";

pub(super) fn run(arguments: &ReloadArgs, console: &Console) -> Outcome {
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
            Outcome::Done
        }
        Ok(ControlAnswer::Wrong(text)) => {
            let _ = writeln!(io::stderr(), "{text}");
            Outcome::Misused
        }
        Ok(ControlAnswer::Error(text)) => {
            let _ = writeln!(io::stderr(), "{text}");
            Outcome::Failed
        }
        Ok(ControlAnswer::State(_) | ControlAnswer::Sockets(_)) => Outcome::Failed,
        Err(diagnostic) => {
            configuration::print_one(diagnostic, console);
            Outcome::Failed
        }
    }
}
