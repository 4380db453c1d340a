//! Plans of `haulier bench run`: servers to start, loads, and the page of results.
//!
//! `file` is a plan as written, `settings` as meant; all of it is checked before a server starts. `workspace` and
//! `server` start servers, `run` measures them in turn and makes a page of the report.

pub mod command_line;
mod file;
mod lock;
mod processes;
mod run;
mod server;
pub mod settings;
mod tables;
mod template;
mod verify;
mod workspace;

pub use run::{PlanEvent, RunError, RunOptions, run};
pub use settings::{Plan, PlanPart};
