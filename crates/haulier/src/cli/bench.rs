//! Arguments of `haulier bench`: ab's short flags with ab's meaning, everything new with a long name.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use haulier_bench::target::Target;
use haulier_client::url::Url;

use crate::cli::get::{HttpVersion, parse_field, parse_http, parse_rate, parse_time, parse_url};
use crate::cli::report::BenchCommand;

/// Notes below the flags.
const NOTES: &str = "\
A target is [NAME=]URL with http, https, unix:SOCKET:/PATH, fcgi://HOST:PORT/SCRIPT or fcgi+unix:SOCKET:SCRIPT. \
Several targets, or several numbers of connections, are measured in turns. \
`haulier bench replay ACCESS.LOG --base URL` repeats the requests of a log.\n\n\
Called as `ab`, or with --ab, it has ab's defaults and ab's text.\n\n\
Exit codes: 0 measured · 1 the measurement failed, or every request failed · 2 wrong usage · 3 --max-p95 was missed · \
130 interrupted.";

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = NOTES, args_override_self = true, disable_version_flag = true)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// Targets to measure: [NAME=]URL, several to compare; or `replay` and an access log
    #[arg(value_name = "TARGET", required_unless_present_any = ["worker", "version_only"])]
    pub(crate) words: Vec<String>,

    /// Requests in all, for each target and round [default: 200; as ab 1]
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Connections at once; a list is measured in turns [default: 10; as ab 1]
    #[arg(short = 'c', value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: Vec<u32>,
    /// Seconds instead of a number of requests
    #[arg(short = 't', value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "duration")]
    pub(crate) time: Option<Duration>,
    /// Time instead of a number of requests, for each target, all rounds together
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Duration>,
    /// Seconds to wait for a connection, an answer, or more of it [default: 30]
    #[arg(short = 's', value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "timeout")]
    pub(crate) patience: Option<Duration>,
    /// The same as -s, as a time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Keep connections (the default; as ab they are not kept without it)
    #[arg(short = 'k', conflicts_with = "no_keepalive")]
    pub(crate) keepalive: bool,
    /// A new connection for each request
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// Bodies may differ in length (the default; as ab they may not without it)
    #[arg(short = 'l', conflicts_with = "strict_length")]
    pub(crate) any_length: bool,
    /// A body of another length than the first is a failure
    #[arg(long)]
    pub(crate) strict_length: bool,
    /// Continue after socket errors (the default; ab ends without it)
    #[arg(short = 'r', conflicts_with = "stop_on_error")]
    pub(crate) go_on: bool,
    /// End at the first socket error
    #[arg(long)]
    pub(crate) stop_on_error: bool,
    /// The method
    #[arg(short = 'm', value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// HEAD instead of GET
    #[arg(short = 'i', conflicts_with = "method")]
    pub(crate) head: bool,
    /// An additional field line
    #[arg(short = 'H', long = "header", value_name = "'K: V'", value_parser = parse_field, allow_hyphen_values = true)]
    pub(crate) fields: Vec<(String, String)>,
    /// A cookie
    #[arg(short = 'C', value_name = "NAME=VALUE")]
    pub(crate) cookies: Vec<String>,
    /// Content-Type of the body
    #[arg(short = 'T', value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// POST this file
    #[arg(short = 'p', value_name = "FILE")]
    pub(crate) post: Option<PathBuf>,
    /// PUT this file
    #[arg(short = 'u', value_name = "FILE", conflicts_with = "post")]
    pub(crate) put: Option<PathBuf>,
    /// A body for -m: the text itself, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", conflicts_with_all = ["post", "put"])]
    pub(crate) body: Option<String>,
    /// Basic credentials
    #[arg(short = 'A', value_name = "USER:PASSWORD")]
    pub(crate) user: Option<String>,
    /// Basic credentials for the proxy
    #[arg(short = 'P', value_name = "USER:PASSWORD")]
    pub(crate) proxy_user: Option<String>,
    /// An HTTP proxy
    #[arg(short = 'X', value_name = "HOST:PORT")]
    pub(crate) proxy: Option<String>,
    /// Size of the socket buffers, bytes
    #[arg(short = 'b', value_name = "BYTES")]
    pub(crate) buffers: Option<u64>,
    /// The address to connect from
    #[arg(short = 'B', value_name = "ADDRESS")]
    pub(crate) source: Option<IpAddr>,
    /// From 2 on, show the first request and the head of its answer; from 4 on, its body too
    #[arg(id = "verbose", short = 'v', value_name = "N", default_value_t = 0)]
    pub(crate) verbosity: u8,
    /// Print no progress
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print no table of percentiles
    #[arg(short = 'd')]
    pub(crate) no_percentiles: bool,
    /// Print no deviations, medians and warnings about them
    #[arg(short = 'S')]
    pub(crate) no_confidence: bool,
    /// Print the results as an HTML table
    #[arg(short = 'w')]
    pub(crate) html: bool,
    /// Attributes of the table
    #[arg(short = 'x', value_name = "ATTRS")]
    pub(crate) table_attributes: Option<String>,
    /// Attributes of its rows
    #[arg(short = 'y', value_name = "ATTRS")]
    pub(crate) row_attributes: Option<String>,
    /// Attributes of its cells
    #[arg(short = 'z', value_name = "ATTRS")]
    pub(crate) cell_attributes: Option<String>,
    /// Write every request as a line for gnuplot (kept in memory until the end)
    #[arg(short = 'g', value_name = "FILE")]
    pub(crate) gnuplot: Option<PathBuf>,
    /// Write percentiles as CSV
    #[arg(short = 'e', value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Do not name the server in the TLS greeting
    #[arg(short = 'I')]
    pub(crate) no_sni: bool,
    /// Cipher suites, separated by `:`
    #[arg(short = 'Z', value_name = "CIPHERS")]
    pub(crate) ciphers: Option<String>,
    /// TLS version: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', value_name = "PROTO")]
    pub(crate) tls_version: Option<String>,
    /// A client certificate with its key, PEM
    #[arg(short = 'E', value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Accept any certificate (ab always does)
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Print the version, and nothing else
    #[arg(short = 'V')]
    pub(crate) version_only: bool,

    /// Requests a second for all connections, whatever the answers do: an open loop
    #[arg(long, value_name = "N/s", value_parser = parse_per_second)]
    pub(crate) rate: Option<f64>,
    /// Spacing of the requests
    #[arg(long, value_name = "HOW", default_value = "constant", requires = "rate")]
    pub(crate) arrivals: ArrivalsArg,
    /// New connections a second, one request on each
    #[arg(long, value_name = "N/s", value_parser = parse_per_second, conflicts_with = "rate")]
    pub(crate) conn_rate: Option<f64>,
    /// Measure rates from 10 to 90 % of what the slower target can do
    #[arg(long, conflicts_with_all = ["rate", "conn_rate"])]
    pub(crate) ladder: bool,
    /// Rounds of a comparison or a list of connections [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Length of one slice of a round
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "requests")]
    pub(crate) slice: Option<Duration>,
    /// Warm-up before a target's first slice, not counted [default: 1s in timed and compared runs]
    #[arg(long, value_name = "TIME", value_parser = parse_time_or_none)]
    pub(crate) warmup: Option<Duration>,
    /// Also measure the first target against itself; a difference below that noise is not claimed
    #[arg(long)]
    pub(crate) aa: bool,
    /// The version of HTTP; 2 without TLS too [default: 1]
    #[arg(long, value_name = "1|2", value_parser = parse_http)]
    pub(crate) http: Option<HttpVersion>,
    /// HTTP/2 requests at once on each connection [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), requires = "http")]
    pub(crate) streams: Option<u32>,
    /// Accept-Encoding, such as gzip, br, zstd
    #[arg(long, value_name = "LIST")]
    pub(crate) accept: Option<String>,
    /// Slow readers: bytes a second on each connection
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) read: Option<u64>,
    /// Slow senders: bytes a second on each connection
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) send: Option<u64>,
    /// A list of `[WEIGHT] [METHOD] /path` lines, requested from every target
    #[arg(long, value_name = "FILE")]
    pub(crate) urls: Option<PathBuf>,
    /// For `replay`: the server that gets the log's requests
    #[arg(long, value_name = "[NAME=]URL")]
    pub(crate) base: Vec<String>,
    /// For `replay`: speed, as a multiple of the log's
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed)]
    pub(crate) speed: f64,
    /// For `replay`: also methods other than GET and HEAD
    #[arg(long)]
    pub(crate) all_methods: bool,
    /// A haulier's admin address, or the status page of php-fpm: adds PHP worker time and peaks
    #[arg(long, value_name = "[NAME=]URL")]
    pub(crate) metrics: Vec<String>,
    /// Add CPU time and memory of this process and its descendants
    #[arg(long, value_name = "[NAME=]PID")]
    pub(crate) pid: Vec<String>,
    /// Add CPU time and memory of a systemd unit
    #[arg(long, value_name = "[NAME=]UNIT")]
    pub(crate) unit: Vec<String>,
    /// Generator threads [default: one for four processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: Option<u32>,
    /// The random seed; the one used is always printed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Write all measurements as JSON [default: bench-DATE-TIME.json where targets are compared]
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report: HTML, Markdown (.md) or JSON (.json) [default: bench-DATE-TIME.html where targets are compared]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Write raw histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// Exit with code 3 if the 95th percentile is longer
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) max_p95: Option<Duration>,
    /// Only measure how long the server keeps a connection after an answer
    #[arg(long)]
    pub(crate) framing_check: bool,
    /// Use ab's defaults and print ab's text
    #[arg(long)]
    pub(crate) ab: bool,
    /// Run one job from standard input, as a process of a larger run
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

/// The spacing of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// At even distances
    Constant,
    /// At random, independent of each other
    Poisson,
}

/// A value that may be for one target: `NAME=VALUE`.
pub(crate) fn of_target<'a>(text: &'a str, targets: &[Target]) -> (Option<usize>, &'a str) {
    let Some((name, value)) = text.split_once('=') else {
        return (None, text);
    };
    let place = targets.iter().position(|target| target.name == name);
    place.map_or((None, text), |place| (Some(place), value))
}

/// An address where figures are found.
pub(crate) fn figures_url(text: &str) -> Result<Url, String> {
    parse_url(text)
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected a number of seconds".to_owned())
}

fn parse_time_or_none(text: &str) -> Result<Duration, String> {
    if text == "0" {
        Ok(Duration::ZERO)
    } else {
        parse_time(text)
    }
}

fn parse_per_second(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).replace('_', "");
    let rate = number.parse::<f64>().ok();
    rate.filter(|rate| (0.001..=1e8).contains(rate))
        .ok_or_else(|| "expected a number for each second, such as 5000/s".to_owned())
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.trim_end_matches(['x', '×']).parse::<f64>().ok();
    speed
        .filter(|speed| (1e-3..=1e6).contains(speed))
        .ok_or_else(|| "expected a factor, such as 2".to_owned())
}
