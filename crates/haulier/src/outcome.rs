//! The outcome of a command, and its exit code.

use std::process::ExitCode;

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Done,
    Failed,
    /// Wrong arguments, or a wrong configuration.
    Misused,
    Interrupted,
    /// A failure of a kind that scripts tell apart; the code is documented with the command.
    FailedWith(u8),
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        Self::from(match outcome {
            CommandOutcome::Done => 0,
            CommandOutcome::Failed => 1,
            CommandOutcome::Misused => 2,
            CommandOutcome::Interrupted => 130,
            CommandOutcome::FailedWith(code) => code,
        })
    }
}
