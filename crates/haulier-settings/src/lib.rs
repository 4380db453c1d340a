//! Settings in TOML: what may be written, read with its places, and every mistake at once.
//!
//! `source` holds the files read and places in them, `diagnostic` what is wrong and how it is shown, `words` the settings
//! there are, `declare` the declaration they are made by, `value` values with units, and `reader` takes typed values out of tables.

pub mod declare;
pub mod diagnostic;
pub mod reader;
pub mod source;
pub mod value;
pub mod words;

pub use diagnostic::{Diagnostic, Report};
pub use reader::{Pairs, UnreadableFile};
pub use source::{Place, Placed, Source};
pub use words::{Below, Foreign, Kind, Language, Table, Word, word};
