//! The commands, one file each.

mod bench;
mod check;
mod completions;
mod config;
mod configuration;
mod get;
mod image;
mod live;
mod man;
mod plan;
mod reload;
mod report;
mod run;
mod serve;
mod status;
mod status_text;
mod stop;
mod trust;

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::{CommandFactory, Parser};

use crate::cli::report::BenchCommand;
use crate::cli::{Cli, Command};

use crate::outcome::CommandOutcome;

/// Parses the arguments and runs the command.
pub(crate) fn run() -> CommandOutcome {
    let cli = match Cli::try_parse_from(arguments()) {
        Ok(cli) => cli,
        Err(answer) => return print_answer(&answer),
    };
    match cli.command {
        Some(Command::Serve(arguments)) => serve::run(&arguments, &cli.console),
        Some(Command::Run(arguments)) => run::run(&arguments, &cli.console),
        Some(Command::Check(arguments)) => check::run(&arguments, &cli.console),
        Some(Command::Status(arguments)) => status::run(&arguments, &cli.console),
        Some(Command::Reload(arguments)) => reload::run(&arguments, &cli.console),
        Some(Command::Stop(arguments)) => stop::run(&arguments, &cli.console),
        Some(Command::Config(arguments)) => config::run(&arguments, &cli.console),
        Some(Command::Trust(arguments)) => trust::run(&arguments, &cli.console),
        Some(Command::Completions(arguments)) => completions::run(&arguments),
        Some(Command::Man(arguments)) => man::run(&arguments),
        Some(Command::Get(arguments)) => get::run(&arguments, &cli.console),
        Some(Command::Image(arguments)) => image::run(&arguments, &cli.console),
        Some(Command::Bench(arguments)) => match arguments.command {
            Some(BenchCommand::Report(arguments)) => report::run(&arguments, &cli.console),
            Some(BenchCommand::Run(arguments)) => plan::run(&arguments, &cli.console),
            None => bench::run(&arguments, &cli.console),
        },
        None => print_commands(),
    }
}

/// The arguments of the process; called as `ab`, those of `haulier bench --ab`.
fn arguments() -> Vec<OsString> {
    let mut given: Vec<OsString> = env::args_os().collect();
    let is_ab = given
        .first()
        .is_some_and(|program| Path::new(program).file_name() == Some("ab".as_ref()));
    if is_ab {
        given.splice(1..1, ["bench", "--ab"].map(OsString::from));
    }
    given
}

/// Prints `--help`, `--version` or the mistake in the arguments. A closed output is not a failure.
fn print_answer(answer: &clap::Error) -> CommandOutcome {
    let _ = answer.print();
    if answer.use_stderr() {
        CommandOutcome::Misused
    } else {
        CommandOutcome::Done
    }
}

/// Lists the commands: success at a terminal, a wrong call in a script.
fn print_commands() -> CommandOutcome {
    let help = Cli::command().render_help();
    if io::stdout().is_terminal() {
        let _ = write!(io::stdout(), "{}", help.ansi());
        return CommandOutcome::Done;
    }
    let _ = write!(io::stderr(), "{help}");
    CommandOutcome::Misused
}
