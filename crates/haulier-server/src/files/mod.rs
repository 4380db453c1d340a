//! Files of the document root: finding and serving them.
//!
//! `names` judges a path by its name, `open` opens below the root, `resolve` finds the meaning of a path, `cache`
//! remembers it, `entry` prepares a file, `tag` makes its entity tag, `coded` picks its variant, `respond` answers with
//! it. The result of a lookup is a value; the pipeline acts on it. `roots` opens files named by scripts, `sendfile_cache`
//! keeps them open.

mod cache;
mod coded;
mod entry;
#[cfg(test)]
pub(crate) mod fixture;
mod mime;
mod names;
mod open;
mod resolve;
mod respond;
mod roots;
mod sendfile_cache;
mod settings;
mod site_files;
mod tag;
#[cfg(test)]
mod tests;

pub(crate) use cache::{FileCache, FoundPath};
pub(crate) use coded::respond;
pub(crate) use entry::{FileEntry, without_metadata};
pub use names::is_source as is_script_source;
pub(crate) use names::{is_denied, is_hidden};
pub(crate) use open::open_directory;
pub(crate) use resolve::Script;
pub(crate) use respond::{Representation, content_range, read, whole};
pub(crate) use roots::{Refused, SendRoots, Sendable, SendfileName};
pub(crate) use sendfile_cache::SendfileCache;
pub use settings::{CHARSET, EntityTags, FileRows, FileSettings, ScriptSettings, SendfileSettings};
pub(crate) use site_files::SiteFiles;
