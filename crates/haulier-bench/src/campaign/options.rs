//! Options, progress, result and errors of a run.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use haulier_proto::fastcgi::PairTooLong;

use crate::answer::Captured;
use crate::job::{StopRule, TlsOptions};
use crate::mix::Mix;
use crate::pacer::Spacing;
use crate::result::Run;
use crate::sample::Tally;
use crate::target::{Target, Template};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The command line, for the record.
    pub command: Vec<String>,
    pub targets: Vec<Target>,
    /// At least one; several are a sweep.
    pub connections: Vec<u32>,
    /// HTTP/2 streams of a connection.
    pub streams: u32,
    /// Generator threads; `None` for one for every four processors.
    pub threads: Option<u32>,
    /// Requests for every target and round.
    pub count: Option<u64>,
    /// Time for every target, all rounds together.
    pub duration: Option<Duration>,
    /// Arrivals a second: an open loop.
    pub rate: Option<f64>,
    pub spacing: Spacing,
    /// Rates from 10 to 90 % of the slower target's highest.
    pub ladder: bool,
    pub rounds: Option<u32>,
    pub slice: Option<Duration>,
    pub warmup: Option<Duration>,
    /// Also measures the first target against itself, to find the noise floor.
    pub aa: bool,
    pub template: Template,
    pub timeout: Duration,
    pub read_rate: Option<u64>,
    pub send_rate: Option<u64>,
    pub buffers: Option<u64>,
    pub source: Option<IpAddr>,
    /// `HOST:PORT` of an HTTP proxy.
    pub proxy: Option<String>,
    pub same_length: bool,
    pub stop: StopRule,
    pub mix: Option<Mix>,
    pub tls: TlsOptions,
    pub seed: u64,
    /// Keep the times of every request; memory grows with their number.
    pub keep_times: bool,
    /// Keep the first answer.
    pub capture: bool,
    /// Keep all answers; memory grows with them.
    pub keep_answers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            targets: Vec::new(),
            connections: vec![10],
            streams: 10,
            threads: None,
            count: None,
            duration: None,
            rate: None,
            spacing: Spacing::Constant,
            ladder: false,
            rounds: None,
            slice: None,
            warmup: None,
            aa: false,
            template: Template::default(),
            timeout: Duration::from_secs(30),
            read_rate: None,
            send_rate: None,
            buffers: None,
            source: None,
            proxy: None,
            same_length: false,
            stop: StopRule::Never,
            mix: None,
            tls: TlsOptions::default(),
            seed: 0,
            keep_times: false,
            capture: false,
            keep_answers: false,
        }
    }
}

/// The reason that there is no run.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    #[error("cannot find the server of {target}")]
    Resolve { target: String, source: io::Error },
    /// It gave no answer before the run.
    #[error("{target} does not answer: {why}")]
    NoAnswer { target: String, why: String },
    #[error("{0}")]
    Watch(String),
    #[error("a list of addresses is for HTTP; {0} is a FastCGI server")]
    MixForFastCgi(String),
    #[error("a field of the request is too long for FastCGI")]
    Field(#[from] PairTooLong),
    #[error("{target} has an address that cannot be asked: {path}")]
    Path { target: String, path: String },
    /// The generator failed.
    #[error("cannot generate the load")]
    Generator(#[from] io::Error),
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The target being measured.
    pub target: &'a str,
    pub connections: u32,
    pub rate: Option<f64>,
    /// Number of the current slice, from 1, and number of all slices.
    pub slice: u32,
    pub slices: u32,
    pub is_warmup: bool,
    /// Answers in this slice.
    pub answers: u64,
    /// Requests of this slice, if their number ends it.
    pub count: Option<u64>,
    pub elapsed: Duration,
}

/// A run, with data that its document does not store.
#[derive(Debug)]
pub struct Measured {
    pub run: Run,
    /// The tally of every point of the run.
    pub tallies: Vec<Tally>,
    /// The first request, and its answer if it was kept.
    pub request: Vec<u8>,
    pub first: Option<Captured>,
    /// The length of the first body, if lengths are strict.
    pub first_length: Option<u64>,
}
