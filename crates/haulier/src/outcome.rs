//! The outcome of a command, and its exit code.

use std::process::ExitCode;

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    /// Wrong arguments, or a wrong configuration.
    Misused,
    Interrupted,
    /// A failure of a kind that scripts tell apart; the code is documented with the command.
    FailedWith(u8),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Done => 0,
            Outcome::Failed => 1,
            Outcome::Misused => 2,
            Outcome::Interrupted => 130,
            Outcome::FailedWith(code) => code,
        })
    }
}
