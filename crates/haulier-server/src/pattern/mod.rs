//! Patterns of the configuration: paths, targets of redirects, host names.

pub mod glob;
pub(crate) mod host_map;
pub mod target;
