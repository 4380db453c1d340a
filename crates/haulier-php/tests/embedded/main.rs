//! The pool with workers of haulier's own: all that holds for php-cgi, and scripts that stay booted.

#[path = "../support/mod.rs"]
mod support;

mod booted;
mod failures;
mod files;
#[path = "../pool/options.rs"]
mod options;
#[path = "../pool/queue.rs"]
mod queue;
#[path = "../pool/scheduling.rs"]
mod scheduling;
#[path = "../pool/separate.rs"]
mod separate;
#[path = "../pool/status.rs"]
mod status;
mod traces;
#[path = "../pool/workers.rs"]
mod workers;

/// Workers run inside PHP's own program.
const EMBEDDED: bool = true;
