//! Plans of `haulier bench run`: servers to start, loads, and the page of results.
//!
//! `file` is a plan as written, `settings` as meant; all of it is checked before a server starts. `environment` and
//! `server` start servers, `run` measures them in turn and makes a page of the report.

pub mod command_line;
mod file;
mod lock;
mod place;
mod processes;
mod run;
mod server;
pub mod settings;
mod template;
mod verify;
mod words;

pub use run::{Event, RunError, Wishes, run};
pub use settings::{Part, Plan};
