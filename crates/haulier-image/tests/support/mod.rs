//! Shared by the tests: pictures that look like photographs, files that lie, and reference programs.

#![allow(dead_code, reason = "each test program uses its part")]

pub(crate) mod bombs;
pub(crate) mod photo;
pub(crate) mod reference;
