//! Measuring servers: load, samples, statistics, and what may be said of them.
//!
//! A run in the order of its parts: targets → pacer → runner → samples → statistics → result.

pub mod result;
