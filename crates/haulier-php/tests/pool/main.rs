//! The pool against real PHP and against a server that misbehaves.

#[path = "../support/mod.rs"]
mod support;

mod external;
mod facts;
mod health;
mod options;
mod queue;
mod scheduling;
mod scripted;
mod separate;
mod status;
mod workers;

/// Workers are those of php-cgi.
const EMBEDDED: bool = false;
