//! Recognition of a project directory: its application, its document root, the scripts that may run.
//!
//! `presets` is the table, `detect` reads it. A further application is one entry there. `htaccess` notes rules that Apache
//! would have read, `stays_booted` finds the script for worker mode.

mod detect;
pub(crate) mod htaccess;
mod presets;
pub(crate) mod stays_booted;

pub(crate) use detect::{AUTO, App, DetectError, detect};
pub(crate) use presets::{PRESETS, Preset};
