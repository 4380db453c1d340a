//! Files of the document root: finding them, and answering with them.
//!
//! `names` judges what a path says, `open` opens beneath the root, `resolve` decides what a path is, `cache` remembers
//! it, `entry` makes a file ready to send, `respond` answers with it. What is found is a value; the pipeline acts on it.

mod cache;
mod entry;
#[cfg(test)]
pub(crate) mod fixture;
mod mime;
mod names;
mod open;
mod resolve;
mod respond;
#[cfg(test)]
mod tests;

pub(crate) use cache::{FileCache, Found};
pub(crate) use entry::Entry;
pub(super) use names::{is_denied, is_hidden};
pub(super) use open::open_directory;
pub(crate) use resolve::Script;
pub(crate) use respond::respond;
