//! A stored run: its figures, and everything needed to judge and to repeat it.
//!
//! One JSON document, written by `haulier bench --json` and read by `haulier bench report`. Times are microseconds
//! (`_us`) or seconds (`_s`), sizes bytes. A figure that was not measured is `null` or left out. [`SCHEMA`] grows when a
//! field changes its meaning. A new field has a default, so that older documents can still be read.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The version of this document.
pub const SCHEMA: u32 = 1;

/// Percentiles of every [`Distribution`].
pub const PERCENTILES: [f64; 13] = [
    50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0,
];

/// One run of `haulier bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    pub kind: RunKind,
    /// The program, `haulier 0.1.0`.
    pub tool: String,
    /// The command line as it was given, the program first.
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    /// From the first request before the run to the last answer.
    pub duration_s: f64,
    /// The random seed of the order of slices, of Poisson arrivals and of the resampling.
    pub seed: u64,
    pub machine: Machine,
    pub load: RunLoad,
    pub targets: Vec<Target>,
    /// One for each target and level (connections, rate), in the order of the command line.
    pub points: Vec<Point>,
    /// Ratios between targets; empty with one target.
    pub comparisons: Vec<Comparison>,
    /// Differences of a target from itself; with `--aa`.
    #[serde(default)]
    pub noise: Option<Noise>,
    /// The result in sentences, the most important first.
    pub verdicts: Vec<String>,
    pub warnings: Vec<Warning>,
}

/// The question that a run answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// One target, one level.
    Single,
    /// Several targets in interleaved rounds.
    Comparison,
    /// Several numbers of connections, of one target or more.
    Sweep,
    /// Fixed rates from 10 to 90 % of the slower target's highest.
    Ladder,
    /// The requests of an access log.
    Replay,
}

/// The machine of the generator, and of servers that run on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor as /proc/cpuinfo names it.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: u32,
    pub memory_bytes: u64,
    /// `Linux 6.1.0`.
    pub kernel: String,
    /// As /etc/os-release names it.
    pub os: String,
    /// The frequency governor, if there is one.
    pub governor: Option<String>,
    /// The clock is synchronised by NTP, if that is known.
    pub clock_synchronised: Option<bool>,
    /// The load average of a minute before the run.
    pub load_before: f64,
    /// Most open descriptors of a process.
    pub descriptors: u64,
    /// Kernel settings for connections, such as `net.core.somaxconn`.
    pub sysctls: BTreeMap<String, String>,
}

/// The load that the targets got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunLoad {
    /// One, or several for a sweep.
    pub connections: Vec<u32>,
    /// Generator threads of each process.
    pub threads: u32,
    /// Generator processes; several beyond the descriptor limit.
    pub processes: u32,
    /// Rounds of an interleaved run, else 1.
    pub rounds: u32,
    /// Requests of one slice, if their number ends it.
    pub requests: Option<u64>,
    /// Length of one slice, if time ends it.
    pub slice_s: Option<f64>,
    pub warmup_s: f64,
    /// Requests a second in all, in an open loop.
    pub rate: Option<f64>,
    /// `constant` or `poisson`, in an open loop.
    pub arrivals: Option<String>,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `FastCGI`.
    pub protocol: String,
    /// HTTP/2 streams of a connection.
    #[serde(default)]
    pub streams: Option<u32>,
    pub keep_alive: bool,
    pub method: String,
    /// Bytes of the request body.
    pub body_bytes: u64,
    /// Accept-Encoding as sent.
    pub accept: Option<String>,
    /// Bytes a second each connection reads.
    pub read_rate: Option<u64>,
    /// Bytes a second each connection sends.
    pub send_rate: Option<u64>,
    pub timeout_s: f64,
}

/// One server, or one address of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The name given before `=`, else the address.
    pub name: String,
    pub url: String,
    /// Its answer before the run; `None` if it was not asked.
    pub answer: Option<ProbeAnswer>,
    /// Two requests before the run had different bodies.
    #[serde(default)]
    pub varies: bool,
    /// The version in its metrics, such as `0.1.0`.
    #[serde(default)]
    pub version: Option<String>,
}

/// Facts about one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    pub status: u16,
    /// `HTTP/1.1`.
    pub version: String,
    /// The head with its line ends.
    pub head_bytes: u64,
    /// The body as it travelled, without chunk framing.
    pub body_bytes: u64,
    /// The decoded body.
    pub decoded_bytes: u64,
    /// SHA-256 of the decoded body, hexadecimal.
    pub sha256: String,
    /// Content-Encoding, `identity` without one.
    pub encoding: String,
    pub content_type: Option<String>,
    /// The Server field.
    pub server: Option<String>,
    /// The Location of a redirect.
    pub location: Option<String>,
    /// The server keeps the connection.
    pub keep_alive: bool,
}

/// One target under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Index into [`Run::targets`].
    pub target: usize,
    pub connections: u32,
    /// Requests a second of an open loop; `None` in a closed one.
    pub rate: Option<f64>,
    /// In the order in which they ran.
    pub slices: Vec<Slice>,
    /// All slices together.
    pub total: Total,
}

/// One stretch of measuring without a break.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// From 0.
    pub round: u32,
    /// Number among all slices of the run, from 0.
    pub order: u32,
    /// Since the run began.
    pub start_s: f64,
    pub duration_s: f64,
    /// Complete, good answers.
    pub requests: u64,
    /// Requests that failed, of any class.
    pub failed: u64,
    /// Good answers a second, to requests sent within `duration_s`.
    pub requests_per_second: f64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// Median time to the first byte.
    pub first_byte_us: u64,
    pub connections_opened: u64,
    pub generator_cpu: f64,
    pub server: Option<ServerUse>,
    pub kernel: KernelCounts,
    /// Processor time of all other processes on this machine, if the server's was measured.
    #[serde(default)]
    pub others_cpu_s: Option<f64>,
}

/// Sums over all slices of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Sum of the slices.
    pub duration_s: f64,
    /// Complete, good answers.
    pub requests: u64,
    /// Good answers a second, to requests sent within `duration_s`. An open loop may have sent more after its end.
    pub requests_per_second: f64,
    pub failures: Failures,
    /// Answers by status, the failed ones too.
    #[serde(deserialize_with = "numbers_as_keys")]
    pub statuses: BTreeMap<u16, u64>,
    pub connections_opened: u64,
    pub bytes: Bytes,
    /// Until the last byte. In an open loop it counts from the due time, and includes unanswered requests with the time
    /// that they had waited at the end.
    pub latency: Distribution,
    /// From sending to the last byte; only in an open loop, where it differs.
    pub service: Option<Distribution>,
    /// From sending to the first byte.
    pub first_byte: Distribution,
    /// Until the connection was established, TLS included.
    pub connect: Option<Distribution>,
    /// Delay of sending while a connection was free, which is the generator's own error; only in an open loop.
    pub sent_late: Option<Distribution>,
    /// Requests that were due while every connection was busy; only in an open loop.
    pub waited_for_connection: Option<u64>,
    pub generator: GeneratorUse,
    pub server: Option<ServerUse>,
    /// Entries of all slices, in order. An entry is a second: longer in long slices, shorter at the end of a slice.
    pub timeline: Vec<Second>,
}

/// Parses the numeric keys of a map. The deserialiser does so by itself, except inside a tagged value such as a part of
/// a report.
fn numbers_as_keys<'de, D: Deserializer<'de>>(source: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let named = BTreeMap::<String, u64>::deserialize(source)?;
    let numbered = named.into_iter().map(|(name, count)| {
        let number = name
            .parse()
            .map_err(|_| D::Error::custom(format_args!("{name:?} is no status")))?;
        Ok((number, count))
    });
    numbered.collect()
}

/// Failed requests by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failures {
    /// No server listens there, or the address cannot be reached.
    pub refused: u64,
    /// The connection was reset, or broke while sending.
    pub reset: u64,
    pub connect_timeout: u64,
    pub first_byte_timeout: u64,
    pub body_timeout: u64,
    /// The connection ended before the body did, or before an answer began.
    pub short_body: u64,
    /// Not HTTP (or FastCGI), or an ambiguous framing.
    pub protocol: u64,
    pub tls: u64,
    /// 4xx or 5xx, or a status other than that of the first answer.
    pub status: u64,
    /// A length other than that of the first answer, with strict lengths.
    pub length: u64,
    /// A body other than that of the answers before the run.
    pub body: u64,
    /// This machine had no port, descriptor or memory left: a failure of the generator, not of the server.
    pub local: u64,
    /// Due in an open loop, and not answered within its grace period.
    pub unanswered: u64,
}

impl Failures {
    /// Every class with its name in reports.
    #[must_use]
    pub fn by_class(&self) -> [(&'static str, u64); 13] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("timeout, connection", self.connect_timeout),
            ("timeout, first byte", self.first_byte_timeout),
            ("timeout, body", self.body_timeout),
            ("short body", self.short_body),
            ("protocol", self.protocol),
            ("TLS", self.tls),
            ("status", self.status),
            ("length", self.length),
            ("body differs", self.body),
            ("no port or descriptor here", self.local),
            ("unanswered", self.unanswered),
        ]
    }

    /// All classes together.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.by_class().iter().map(|(_, count)| count).sum()
    }

    /// Failures of connections, without timeouts.
    #[must_use]
    pub fn of_sockets(&self) -> u64 {
        self.refused + self.reset + self.short_body + self.protocol + self.tls + self.local
    }

    /// All timeouts.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.connect_timeout + self.first_byte_timeout + self.body_timeout
    }

    /// Adds another count, class by class.
    pub fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.connect_timeout += other.connect_timeout;
        self.first_byte_timeout += other.first_byte_timeout;
        self.body_timeout += other.body_timeout;
        self.short_body += other.short_body;
        self.protocol += other.protocol;
        self.tls += other.tls;
        self.status += other.status;
        self.length += other.length;
        self.body += other.body;
        self.local += other.local;
        self.unanswered += other.unanswered;
    }
}

/// Bytes of all good answers and requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// All bytes read, after TLS.
    pub received: u64,
    /// All bytes sent, before TLS.
    pub sent: u64,
    /// Bodies, without heads and chunk framing.
    pub body: u64,
}

/// Distribution of a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub count: u64,
    pub mean_us: f64,
    pub deviation_us: f64,
    pub min_us: u64,
    pub max_us: u64,
    /// [`PERCENTILES`], each with its time.
    pub percentiles: Vec<(f64, u64)>,
    /// The whole histogram, microseconds to three digits: HdrHistogram V2, deflated, base64.
    pub histogram: String,
}

impl Distribution {
    /// The time at `percent`, if it is one of [`PERCENTILES`].
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let found = self
            .percentiles
            .iter()
            .find(|(known, _)| (known - percent).abs() < 1e-9);
        found.map(|(_, time)| *time)
    }
}

/// Resources that the generator used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// Share of a core that the busiest thread used, 0 to 1.
    pub cpu: f64,
    /// All threads, user and system, for one request.
    pub cpu_us_per_request: f64,
    /// Of that in user mode.
    pub user_us_per_request: f64,
    /// Resident memory at the end.
    pub rss_bytes: u64,
}

/// Resources that the server used, as far as they were measured (`--pid`, `--unit`, `--metrics`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerUse {
    /// User and system time of the process tree for one request.
    pub cpu_us_per_request: Option<f64>,
    /// Of that in processes named php*; unknown for a server that embeds PHP.
    pub php_cpu_us_per_request: Option<f64>,
    /// Cores the tree used, 1 for one whole core.
    pub cores: Option<f64>,
    /// Most memory of the tree; shared pages count for every process.
    pub rss_bytes: Option<u64>,
    /// Most memory of the tree; shared pages count once.
    pub pss_bytes: Option<u64>,
    pub processes: Option<u32>,
    /// Time PHP workers were busy, for one request.
    pub worker_us_per_request: Option<f64>,
    /// Most PHP workers seen busy at once under load; `None` if no sample fell there.
    pub peak_busy_workers: Option<u32>,
    /// Most requests seen waiting for a worker, likewise.
    pub peak_queue: Option<u32>,
    /// A metrics page was asked about PHP workers.
    pub workers_asked: bool,
}

/// Kernel counters of a slice, for the whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounts {
    /// TCP segments sent again.
    pub retransmitted: u64,
    /// Connections that found a full accept queue.
    pub listen_overflows: u64,
    /// SYNs dropped for any reason.
    pub listen_drops: u64,
}

/// One second of a point, or a part of one at the end of a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Since the run began.
    pub at_s: f64,
    /// 0 in older documents, until [`Point::complete_timeline`].
    #[serde(default)]
    pub length_s: f64,
    pub requests: u64,
    pub failed: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub server_cores: Option<f64>,
    pub server_rss_bytes: Option<u64>,
    /// Most workers seen busy under load; `None` if no sample fell there.
    pub busy_workers: Option<u32>,
}

impl Second {
    /// A count of this entry, per second.
    #[must_use]
    pub fn each_second(&self, count: u64) -> Option<f64> {
        (self.length_s > 0.0).then(|| count as f64 / self.length_s)
    }

    /// Its end, since the run began; s.
    #[must_use]
    pub fn end_s(&self) -> f64 {
        self.at_s + self.length_s
    }
}

impl Point {
    /// Cores that other processes used, as a mean over the slices.
    #[must_use]
    pub fn others_cores(&self) -> Option<f64> {
        let (mut used, mut passed) = (0.0, 0.0);
        for slice in &self.slices {
            used += slice.others_cpu_s?;
            passed += slice.duration_s;
        }
        (passed > 0.0).then(|| used / passed)
    }

    /// Gives entries of an older document their length: up to the next entry or the end of their slice.
    pub fn complete_timeline(&mut self) {
        let starts: Vec<f64> = self.total.timeline.iter().map(|second| second.at_s).collect();
        for (place, second) in self.total.timeline.iter_mut().enumerate() {
            if second.length_s > 0.0 {
                continue;
            }
            let is_of = |slice: &&Slice| slice.start_s <= second.at_s;
            let Some(slice) = self.slices.iter().rfind(is_of) else {
                continue;
            };
            let end = slice.start_s + slice.duration_s;
            let next = starts.get(place + 1).copied().filter(|next| *next < end);
            second.length_s = (next.unwrap_or(end) - second.at_s).max(0.0);
        }
    }
}

/// One metric of two targets, compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub metric: Metric,
    /// Indices into [`Run::targets`].
    pub base: usize,
    pub other: usize,
    pub connections: u32,
    pub rate: Option<f64>,
    /// Other divided by base.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub low: f64,
    pub high: f64,
    /// Probability of such a difference by chance, from the permutation test.
    pub p_value: f64,
    /// Number of pairs of slices.
    pub pairs: u32,
    /// The smallest ratio above 1 that a run of this spread shows four times in five.
    pub smallest_visible: Option<f64>,
    pub verdict: Verdict,
    /// The same in words: `no difference shown (0.97–1.04×)`.
    pub words: String,
}

/// A compared figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    RequestsPerSecond,
    LatencyP50,
    LatencyP95,
    LatencyP99,
    FirstByte,
    ServerCpu,
    WorkerTime,
}

impl Metric {
    /// True if more is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::RequestsPerSecond)
    }

    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::LatencyP50 => "time, median",
            Self::LatencyP95 => "time, p95",
            Self::LatencyP99 => "time, p99",
            Self::FirstByte => "first byte, median",
            Self::ServerCpu => "CPU/request",
            Self::WorkerTime => "PHP worker time",
        }
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The other target is better.
    Better,
    /// The other target is worse.
    Worse,
    /// A difference, if any, is smaller than this run can show.
    NoDifference,
    /// Too few pairs to tell.
    TooFew,
    /// The two did not do the same work, or failed too often.
    NotComparable,
}

/// The noise floor of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The target that ran twice, an index into [`Run::targets`].
    pub target: usize,
    /// For each metric, the largest ratio above 1 within the 95 % interval of two equal targets.
    pub floor: BTreeMap<Metric, f64>,
}

/// A doubt about the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub kind: WarningKind,
    /// The target it is about, if any: an index into [`Run::targets`].
    pub target: Option<usize>,
    pub text: String,
}

impl Warning {
    /// The text with the name of its target.
    #[must_use]
    pub fn named(&self, targets: &[Target]) -> String {
        let target = self.target.and_then(|target| targets.get(target));
        match target {
            Some(target) if !self.text.contains(&target.name) => format!("{}: {}", target.name, self.text),
            _ => self.text.clone(),
        }
    }
}

/// Subject of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// Targets answer differently, so the figures compare different work.
    NotSameWork,
    /// The generator was the limit.
    GeneratorLimited,
    /// The rate asked for was not reached.
    RateNotReached,
    /// Requests failed.
    Failures,
    /// The target answers with a redirect or an error.
    Status,
    /// Accept queues overflowed or segments were lost.
    Kernel,
    /// The server closes connections despite keep-alive.
    NoKeepAlive,
    /// The machine was busy with something else.
    Busy,
    /// Something could not be sampled.
    NotSampled,
    /// The compared runs were not interleaved.
    NotInterleaved,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_add_up_class_by_class() {
        let mut all = Failures {
            refused: 1,
            ..Failures::default()
        };
        let more = Failures {
            refused: 2,
            local: 4,
            unanswered: 8,
            ..Failures::default()
        };
        all.add(&more);
        assert_eq!((all.refused, all.local, all.unanswered, all.all()), (3, 4, 8, 15));
    }

    #[test]
    fn entries_of_an_older_document_last_until_the_next_one_or_the_end_of_their_slice() {
        let slice = |start_s: f64, duration_s: f64| Slice {
            start_s,
            duration_s,
            ..crate::compare::tests::slice(0, 1.0, 1)
        };
        let mut point = crate::compare::tests::point(0, vec![slice(1.0, 1.5), slice(3.0, 0.02)]);
        point.total.timeline = [1.0, 2.0, 3.0]
            .map(|at_s| Second {
                at_s,
                requests: 30,
                ..Second::default()
            })
            .to_vec();
        point.complete_timeline();
        let rates = point
            .total
            .timeline
            .iter()
            .filter_map(|second| second.each_second(second.requests));
        assert_eq!(rates.map(f64::round).collect::<Vec<_>>(), [30.0, 60.0, 1500.0]);
    }

    #[test]
    fn a_class_that_an_older_document_does_not_know_is_zero() {
        let failures: Failures = serde_json::from_str(r#"{"refused": 3}"#).expect("a document");
        assert_eq!(failures.all(), 3);
    }

    /// Serde reads the inside of a tagged value from a buffer, in which a key stays text.
    #[test]
    fn statuses_are_read_back_inside_a_tagged_value() {
        #[derive(Deserialize)]
        #[serde(tag = "part")]
        enum Part {
            Counts {
                #[serde(deserialize_with = "numbers_as_keys")]
                statuses: BTreeMap<u16, u64>,
            },
        }
        let read = |text: &str| serde_json::from_str::<Part>(text);
        let Part::Counts { statuses } =
            read(r#"{"part": "Counts", "statuses": {"200": 7, "503": 1}}"#).expect("a part");
        assert_eq!(statuses, BTreeMap::from([(200, 7), (503, 1)]));
        assert!(read(r#"{"part": "Counts", "statuses": {"many": 1}}"#).is_err());
    }

    #[test]
    fn metrics_are_keys_of_a_json_object() {
        let floor = BTreeMap::from([(Metric::LatencyP99, 1.04)]);
        let text = serde_json::to_string(&Noise { target: 0, floor }).expect("serialisable");
        assert_eq!(text, r#"{"target":0,"floor":{"latency_p99":1.04}}"#);
        let back: Noise = serde_json::from_str(&text).expect("a document");
        assert_eq!(back.floor[&Metric::LatencyP99], 1.04);
    }
}
