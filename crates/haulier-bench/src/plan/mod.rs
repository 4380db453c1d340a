//! Plans of `haulier bench run`: which servers to start, what to ask them, and what to tell about it.
//!
//! `file` is what a plan says, `settings` what it means; everything is checked before anything starts. `place` and
//! `server` make servers of it, `run` lets them take their turns and writes a `report`.

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
