//! Measuring servers: load, samples, statistics, and reports.
//!
//! A run in the order of its parts: targets → pacer → runner → samples → statistics → result. `campaign` carries it out,
//! `result` is its data, `report` shows it, and `plan` starts the servers of several runs.

pub mod mix;
pub mod mode;
pub mod target;

pub mod campaign;
pub mod framing;
pub mod probe;

pub mod job;
pub mod pacer;
pub mod spread;

mod answer;
mod connection;
pub mod runner;
mod streams;
mod tls;
mod transport;

pub mod histogram;
pub mod sample;

pub mod metrics;
pub mod process;
pub mod surroundings;

pub mod compare;
pub mod statistics;

pub mod result;

pub mod report;

pub mod plan;
