//! The configuration, from text to settings.
//!
//! `source` reads files, `file` is what the user wrote (every value with its place), `settings` is what it means
//! (with `server`, `site`, `downloads`, `images`, `compress`, `pool`, `tls` and `rules` for its parts).
//! `words` lists every setting once: the error texts, the reference page, `schema` and the reader all use that list.
//! `effective` shows what holds.

mod compress;
mod dictionary;
mod downloads;
pub(crate) mod effective;
mod environment;
pub(crate) mod file;
mod foreign;
pub(crate) mod images;
pub(crate) mod listen_address;
mod loops;
mod pool;
mod route;
mod rules;
pub(crate) mod schema;
mod server;
pub(crate) mod settings;
mod site;
pub(crate) mod tables;
pub(crate) mod tls;
pub(crate) mod value;

pub(crate) use settings::Settings;
