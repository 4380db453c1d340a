//! Settings in TOML: declared once, read with their places, every mistake reported at once.
//!
//! `source` holds the files and places in them, `diagnostic` the mistakes, `words` the known settings, `declare` their
//! declaration, `value` values with units. `reader` takes typed values out of tables.

pub mod declare;
pub mod diagnostic;
pub mod reader;
pub mod source;
pub mod value;
pub mod words;

pub use diagnostic::{Diagnostic, Report};
pub use reader::{Pairs, UnreadableFile};
pub use source::{Placed, SourceFile, SourcePlace};
pub use words::{Below, Foreign, Language, SettingsTable, ValueKind, Word, word};
