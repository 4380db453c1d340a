//! What a project directory is: which application, where its document root is, what may run.
//!
//! `presets` is the table, `detect` reads it. A further application is one entry there. `htaccess` knows what Apache would
//! have read.

mod detect;
pub(crate) mod htaccess;
mod presets;

pub(crate) use detect::{AUTO, App, DetectError, detect};
pub(crate) use presets::{PRESETS, Preset};
