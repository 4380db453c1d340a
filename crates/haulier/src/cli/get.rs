//! Arguments of `haulier get`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use haulier_client::download::verify::{Algorithm, Checksum, ChecksumSource};
use haulier_client::url::Url;
use haulier_settings::value;

/// The exit codes, for people and for scripts.
const EXIT_CODES: &str = "\
Exit codes: 0 every file is there and correct (also one that was complete before) · 2 wrong usage · \
3 no connection (name, address, proxy) · 4 timeout or stall · 5 the connection broke and all tries failed · \
6 refused by the server (4xx) · 7 error of the server (5xx) · 8 not HTTP, ambiguous framing, or wrong ranges or \
codings · 9 the checksum does not match, or there is none where one is required · 10 the file cannot be written · \
11 TLS · 12 redirects · 1 several files failed in different ways · 130 interrupted. \
The received bytes stay in NAME.part; the same command resumes from there.";

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct GetArgs {
    /// Address to download: http, https, or unix:SOCKET:/PATH
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub(crate) urls: Vec<Url>,
    /// Write to this file, and replace it when complete; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "directory")]
    pub(crate) output: Option<PathBuf>,
    /// Write into this directory [default: the current one]
    #[arg(short = 'O', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Most connections for one file; it begins with one, and adds more while they help
    #[arg(short = 'x', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) connections: u8,
    /// Number of files at once
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) jobs: u8,
    /// Expected SHA-256 of the file
    #[arg(long, value_name = "HEX", value_parser = parse_sha256)]
    pub(crate) sha256: Option<Checksum>,
    /// Expected checksum: sha256, sha512, blake3 or md5, and the digits
    #[arg(long, value_name = "ALGORITHM:HEX", value_parser = parse_checksum)]
    pub(crate) checksum: Vec<Checksum>,
    /// A checksum file as sha256sum writes it, local or on a server; it must list the file
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) checksums: Option<String>,
    /// Fail if there is no checksum to verify with
    #[arg(long)]
    pub(crate) require_digest: bool,
    /// Send this field line
    #[arg(short = 'H', long = "header", value_name = "'K: V'", value_parser = parse_field)]
    pub(crate) fields: Vec<(String, String)>,
    /// Most bytes a second for all files together, such as 5MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) limit: Option<u64>,
    /// Tries in a row without a new byte
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retry: u32,
    /// Start again, and ignore the part of an earlier run
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Replace the file if the server's differs
    #[arg(short = 'N', long)]
    pub(crate) update: bool,
    /// Ask for gzip, br or zstd and decode it; such a download cannot be resumed
    #[arg(long)]
    pub(crate) compressed: bool,
    /// Wait until the file is on the disk before it gets its name
    #[arg(long)]
    pub(crate) sync: bool,
    /// Print one JSON object a line on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Basic credentials for the first host
    #[arg(short, long, value_name = "USER:PASSWORD", conflicts_with = "bearer")]
    pub(crate) user: Option<String>,
    /// A token for the first host
    #[arg(long, value_name = "TOKEN")]
    pub(crate) bearer: Option<String>,
    /// Credentials by host [default: $NETRC, then ~/.netrc]
    #[arg(long, value_name = "FILE", conflicts_with = "no_netrc")]
    pub(crate) netrc: Option<PathBuf>,
    /// Read no netrc file
    #[arg(long)]
    pub(crate) no_netrc: bool,
    /// An http proxy [default: $http_proxy, $https_proxy, $all_proxy, except for $no_proxy]
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) proxy: Option<Url>,
    /// Only this version of HTTP; 2 without TLS too [default: 2 where the TLS handshake offers it, else 1]
    #[arg(long, value_name = "1|2", value_parser = parse_http)]
    pub(crate) http: Option<HttpVersion>,
    /// Refuse addresses of this machine and of private networks
    #[arg(long)]
    pub(crate) public_only: bool,
    /// Longest wait for a connection
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_time)]
    pub(crate) connect_timeout: Duration,
    /// Longest wait for the answer to begin
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) answer_timeout: Duration,
    /// Longest pause within a body
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub(crate) stall_timeout: Duration,
    /// Longest time for everything
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) max_time: Option<Duration>,
}

/// A version of HTTP that the user chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    One,
    Two,
}

pub(super) fn parse_http(text: &str) -> Result<HttpVersion, String> {
    match text {
        "1" | "1.1" => Ok(HttpVersion::One),
        "2" => Ok(HttpVersion::Two),
        _ => Err("expected 1 or 2".to_owned()),
    }
}

pub(super) fn parse_url(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| error.to_string())
}

fn parse_sha256(text: &str) -> Result<Checksum, String> {
    Checksum::from_hex(Algorithm::Sha256, text, ChecksumSource::Given)
        .ok_or_else(|| "expected 64 hexadecimal digits".to_owned())
}

fn parse_checksum(text: &str) -> Result<Checksum, String> {
    let (name, hex) = text.split_once([':', '=']).ok_or("expected ALGORITHM:HEX")?;
    let algorithm = Algorithm::of(name).ok_or("expected sha256, sha512, blake3 or md5")?;
    Checksum::from_hex(algorithm, hex, ChecksumSource::Given)
        .ok_or_else(|| format!("these are not the digits of a {} checksum", algorithm.name()))
}

pub(super) fn parse_field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'Name: value'")?;
    let value = value.trim();
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_value = value
        .bytes()
        .all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte) || byte >= 0x80);
    if is_name && is_value {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err("not a field line".to_owned())
    }
}

pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    let amount = text.strip_suffix("/s").unwrap_or(text);
    value::size(amount)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a rate, such as 5MB/s or 500KiB/s".to_owned())
}

pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    value::duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected a time, such as 30s or 2m".to_owned())
}
