//! The configuration, from text to settings.
//!
//! `tables` declares every setting: the reader, the error texts, the reference page and `schema` are made of it. `file`
//! holds the tables of a configuration as written, each value with its place. `resolve` makes `settings` of them, with
//! `server`, `site`, `downloads`, `images`, `compress`, `pool`, `tls` and `rules` for its parts. `effective` shows the
//! values in force.

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
mod resolve;
mod route;
mod rules;
pub(crate) mod schema;
mod server;
pub(crate) mod settings;
mod site;
pub(crate) mod tables;
mod tls;
pub(crate) mod value;
mod workers;

pub(crate) use resolve::resolve;
pub(crate) use settings::Settings;
