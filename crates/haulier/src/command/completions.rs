//! `haulier completions`: completion scripts for shells.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::outcome::CommandOutcome;

pub(super) fn run(arguments: &CompletionsArgs) -> CommandOutcome {
    // A closed standard output is not a failure.
    let _ = io::stdout().lock().write_all(&script(arguments.shell));
    CommandOutcome::Done
}

fn script(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "haulier", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::{Command, ValueEnum};
    use clap_complete::Shell;

    use super::*;

    /// The long names of all flags, and the names of all commands.
    fn words(command: &Command, words: &mut Vec<String>) {
        words.extend(
            command
                .get_arguments()
                .filter_map(|argument| argument.get_long())
                .map(str::to_owned),
        );
        for below in command.get_subcommands() {
            words.push(below.get_name().to_owned());
            self::words(below, words);
        }
    }

    #[test]
    fn every_shell_completes_every_command_and_flag() {
        let mut all = Vec::new();
        words(&Cli::command(), &mut all);
        assert!(all.len() > 15, "{all:?}");
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).expect("text");
            for word in &all {
                assert!(script.contains(word.as_str()), "{shell} does not know {word}");
            }
        }
    }
}
