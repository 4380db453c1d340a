//! A stored run: all that was measured, and all one needs to judge and to repeat it.
//!
//! One JSON document, written by `haulier bench --json` and read by `haulier bench report`. Times are microseconds
//! (`_us`) or seconds (`_s`), sizes bytes; what nobody measured is `null` or left out. [`SCHEMA`] grows when a field
//! changes its meaning; a field that comes new has a default, so that older documents can still be read.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The version of this document.
pub const SCHEMA: u32 = 1;

/// Percentiles every [`Distribution`] names.
pub const PERCENTILES: [f64; 13] = [
    50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0,
];

/// One run of `haulier bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    pub kind: Kind,
    /// The program, `haulier 0.1.0`.
    pub tool: String,
    /// The command line as it was given, the program first.
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    /// From the first probe to the last answer.
    pub duration_s: f64,
    /// The random start value of the order of slices, of Poisson arrivals and of the resampling.
    pub seed: u64,
    pub machine: Machine,
    pub load: Load,
    pub targets: Vec<Target>,
    /// One a target and level (connections, rate), in the order they were asked for.
    pub points: Vec<Point>,
    /// Ratios between targets, with their words; empty with one target.
    pub comparisons: Vec<Comparison>,
    /// What two equal targets differed by; with `--aa`.
    #[serde(default)]
    pub noise: Option<Noise>,
    /// The result in sentences, the most important first.
    pub verdicts: Vec<String>,
    pub warnings: Vec<Warning>,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One target, one level.
    Single,
    /// Several targets in interleaved rounds.
    Comparison,
    /// Several numbers of connections, of one target or more.
    Sweep,
    /// Fixed rates from 10 to 90 % of what the slower target can do.
    Ladder,
    /// An access log once more.
    Replay,
}

/// The machine that measured; the servers' too where they are on it.
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
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
    /// Whether the clock is kept right by NTP, if the kernel knows.
    pub clock_synchronised: Option<bool>,
    /// The load average of a minute before the run.
    pub load_before: f64,
    /// Most descriptors one process may have.
    pub descriptors: u64,
    /// Kernel settings that matter to connections, `net.core.somaxconn` and such.
    pub sysctls: BTreeMap<String, String>,
}

/// How the load was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// One, or several for a sweep.
    pub connections: Vec<u32>,
    /// Generator threads of each process.
    pub threads: u32,
    /// Generator processes; more than 1 beyond the descriptor limit.
    pub processes: u32,
    /// Blocks of an interleaved run; 1 without.
    pub rounds: u32,
    /// Requests of one slice, where they are counted.
    pub requests: Option<u64>,
    /// Length of one slice, where time ends it.
    pub slice_s: Option<f64>,
    pub warmup_s: f64,
    /// Arrivals a second in all, where the loop is open.
    pub rate: Option<f64>,
    /// `constant` or `poisson`, where the loop is open.
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
    /// As given before `=`, else the address.
    pub name: String,
    pub url: String,
    /// What it answered when it was asked once, before the run; `None` if it did not.
    pub answer: Option<Answer>,
    /// Whether it was asked twice and gave two different bodies.
    #[serde(default)]
    pub varies: bool,
    /// The version its metrics name, where they were asked: `0.1.0`.
    #[serde(default)]
    pub version: Option<String>,
}

/// One answer, looked at closely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub status: u16,
    /// `HTTP/1.1`.
    pub version: String,
    /// The head, bytes with its line ends.
    pub head_bytes: u64,
    /// The body as it travelled, without the framing of chunks.
    pub body_bytes: u64,
    /// The body after its coding was taken off.
    pub decoded_bytes: u64,
    /// SHA-256 of the decoded body, hexadecimal.
    pub sha256: String,
    /// Content-Encoding, `identity` without one.
    pub encoding: String,
    pub content_type: Option<String>,
    /// The Server field.
    pub server: Option<String>,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// Whether the server keeps the connection.
    pub keep_alive: bool,
}

/// One target under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place in [`Run::targets`].
    pub target: usize,
    pub connections: u32,
    /// Arrivals a second asked for; `None` in a closed loop.
    pub rate: Option<f64>,
    /// In the order they ran.
    pub slices: Vec<Slice>,
    /// All slices together.
    pub total: Total,
}

/// One stretch of measuring without a break.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// From 0.
    pub round: u32,
    /// Place among all slices of the run, from 0.
    pub order: u32,
    /// Since the run began.
    pub start_s: f64,
    pub duration_s: f64,
    /// Complete, good answers.
    pub requests: u64,
    /// Requests that failed, of any class.
    pub failed: u64,
    /// Good answers to what was sent within `duration_s`, each second.
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
    /// Processor time of everything on this machine that is neither generator nor server; where the server was watched.
    #[serde(default)]
    pub others_cpu_s: Option<f64>,
}

/// What all slices of a point add up to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Sum of the slices.
    pub duration_s: f64,
    /// Complete, good answers.
    pub requests: u64,
    /// Good answers to what was sent within `duration_s`, each second. An open loop may have sent more behind its end.
    pub requests_per_second: f64,
    pub failures: Failures,
    /// Answers by status, the failed ones too.
    #[serde(deserialize_with = "numbers_as_keys")]
    pub statuses: BTreeMap<u16, u64>,
    pub connections_opened: u64,
    pub bytes: Bytes,
    /// Until the last byte; in an open loop counted from the moment the request was due, unanswered requests included
    /// with the time they had waited when the loop ended.
    pub latency: Distribution,
    /// Until the last byte, counted from the moment the request was sent; only in an open loop, where it differs.
    pub service: Option<Distribution>,
    /// Until the first byte, from the sending.
    pub first_byte: Distribution,
    /// Until the connection stood, TLS included.
    pub connect: Option<Distribution>,
    /// How late requests were sent although a connection was free: the generator's own fault; only in an open loop.
    pub sent_late: Option<Distribution>,
    /// Requests that were due while every connection was busy; only in an open loop.
    pub waited_for_connection: Option<u64>,
    pub generator: GeneratorUse,
    pub server: Option<ServerUse>,
    /// One entry a second (longer ones in long slices, shorter ones at the end of a slice), of all slices, in order.
    pub timeline: Vec<Second>,
}

/// JSON's keys are text. The deserialiser makes them numbers by itself, except inside a tagged value, as a page of a
/// report is one.
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
    /// No one listens, or the way there is closed.
    pub refused: u64,
    /// The connection was reset, or broke while sending.
    pub reset: u64,
    pub connect_timeout: u64,
    pub first_byte_timeout: u64,
    pub body_timeout: u64,
    /// The connection ended before the body did, or before an answer began.
    pub short_body: u64,
    /// Not HTTP (or FastCGI), or a framing in doubt.
    pub protocol: u64,
    pub tls: u64,
    /// 4xx or 5xx, or another status than the first answer's.
    pub status: u64,
    /// A length other than the first answer's, where lengths are strict.
    pub length: u64,
    /// Another body than the first answers', which were the same.
    pub body: u64,
    /// This machine had no port, descriptor or memory left: the tool's failure, not the server's.
    pub local: u64,
    /// Due in an open loop, and without an answer when that had ended and was not waited for any longer.
    pub unanswered: u64,
}

impl Failures {
    /// Every class with its name as reports say it.
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

    /// Those of connections, time-outs apart.
    #[must_use]
    pub fn of_sockets(&self) -> u64 {
        self.refused + self.reset + self.short_body + self.protocol + self.tls + self.local
    }

    /// Whatever was waited for too long.
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

/// Bytes of all good answers, and of what was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Everything read, TLS taken off.
    pub received: u64,
    /// Everything sent, before TLS.
    pub sent: u64,
    /// Bodies, without heads and the framing of chunks.
    pub body: u64,
}

/// How a time was distributed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub count: u64,
    pub mean_us: f64,
    pub deviation_us: f64,
    pub min_us: u64,
    pub max_us: u64,
    /// [`PERCENTILES`] and the time that many percent stayed within.
    pub percentiles: Vec<(f64, u64)>,
    /// The whole histogram of microseconds to three digits: HdrHistogram V2, deflated, base64.
    pub histogram: String,
}

impl Distribution {
    /// The time `percent` of the samples stayed within, if it is one of [`PERCENTILES`].
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let found = self
            .percentiles
            .iter()
            .find(|(known, _)| (known - percent).abs() < 1e-9);
        found.map(|(_, time)| *time)
    }
}

/// The generator itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// Share of its core the busiest thread used, 0 to 1.
    pub cpu: f64,
    /// All threads, user and system, for one request.
    pub cpu_us_per_request: f64,
    /// Of that in user mode.
    pub user_us_per_request: f64,
    /// Resident memory at the end.
    pub rss_bytes: u64,
}

/// The server's side, as far as it was watched (`--pid`, `--unit`, `--metrics`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerUse {
    /// User and system time of the process tree for one request.
    pub cpu_us_per_request: Option<f64>,
    /// Of that in processes named php*; a server that has PHP inside cannot be told apart.
    pub php_cpu_us_per_request: Option<f64>,
    /// Cores the tree used, 1 for one whole core.
    pub cores: Option<f64>,
    /// The most memory the tree held, shared pages counted for every process.
    pub rss_bytes: Option<u64>,
    /// The most memory the tree held, shared pages counted once.
    pub pss_bytes: Option<u64>,
    pub processes: Option<u32>,
    /// Time PHP workers were busy, for one request.
    pub worker_us_per_request: Option<f64>,
    /// The most PHP workers seen busy at once while requests were on their way; `None` if nothing was seen then.
    pub peak_busy_workers: Option<u32>,
    /// The most requests seen waiting for a worker, likewise.
    pub peak_queue: Option<u32>,
    /// A page was asked about PHP workers.
    pub workers_asked: bool,
}

/// What the kernel counted meanwhile, on the whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounts {
    /// TCP segments sent again.
    pub retransmitted: u64,
    /// Connections that found a full accept queue.
    pub listen_overflows: u64,
    /// SYNs dropped for whatever reason.
    pub listen_drops: u64,
}

/// One second of a point, or as much as a slice has of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Since the run began.
    pub at_s: f64,
    /// 0 in documents written before this was kept, until [`Point::complete_timeline`].
    #[serde(default)]
    pub length_s: f64,
    pub requests: u64,
    pub failed: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub server_cores: Option<f64>,
    pub server_rss_bytes: Option<u64>,
    /// The most seen busy while requests were on their way; `None` if nothing was seen then.
    pub busy_workers: Option<u32>,
}

impl Second {
    /// `count` things of this entry, a second.
    #[must_use]
    pub fn each_second(&self, count: u64) -> Option<f64> {
        (self.length_s > 0.0).then(|| count as f64 / self.length_s)
    }

    /// When it ended, since the run began; s.
    #[must_use]
    pub fn end_s(&self) -> f64 {
        self.at_s + self.length_s
    }
}

impl Point {
    /// Cores that neither generator nor server used, as a mean over the slices.
    #[must_use]
    pub fn others_cores(&self) -> Option<f64> {
        let (mut used, mut passed) = (0.0, 0.0);
        for slice in &self.slices {
            used += slice.others_cpu_s?;
            passed += slice.duration_s;
        }
        (passed > 0.0).then(|| used / passed)
    }

    /// Gives the entries of an older document their length: up to the next one, or to the end of their slice.
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

/// One quantity of two targets, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub metric: Metric,
    /// Places in [`Run::targets`].
    pub base: usize,
    pub other: usize,
    pub connections: u32,
    pub rate: Option<f64>,
    /// Other divided by base.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub low: f64,
    pub high: f64,
    /// Of the permutation test: how often chance alone differs as much.
    pub p_value: f64,
    /// Pairs of slices it rests on.
    pub pairs: u32,
    /// The smallest ratio above 1 that a run of this spread would have shown four times in five.
    pub smallest_visible: Option<f64>,
    pub verdict: Verdict,
    /// The same in words: `no difference shown (0.97–1.04×)`.
    pub words: String,
}

/// What is compared.
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
    /// Whether more of it is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::RequestsPerSecond)
    }

    /// As tables call it.
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

/// What may be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The other target is better.
    Better,
    /// The other target is worse.
    Worse,
    /// A difference, if there is one, is smaller than this run can show.
    NoDifference,
    /// Too few pairs to tell.
    TooFew,
    /// The two did not do the same work, or failed too often.
    NotComparable,
}

/// The noise floor of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The target that ran twice, its place in [`Run::targets`].
    pub target: usize,
    /// For every metric the largest ratio above 1 within the 95 % interval of two equal targets.
    pub floor: BTreeMap<Metric, f64>,
}

/// Something the reader must know before believing a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub kind: WarningKind,
    /// Its place in [`Run::targets`], if it is about one.
    pub target: Option<usize>,
    pub text: String,
}

/// What a warning is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// Targets answered differently: the figures compare different work.
    NotSameWork,
    /// The generator was the limit.
    GeneratorLimited,
    /// The rate asked for was not reached.
    RateNotReached,
    /// Requests failed.
    Failures,
    /// The target redirects, or answers an error.
    Status,
    /// Accept queues overflowed or segments were lost.
    Kernel,
    /// Keep-alive was asked for and the server closed.
    NoKeepAlive,
    /// The machine was busy with something else.
    Busy,
    /// Something could not be sampled.
    NotSampled,
    /// Stored runs are compared that did not run side by side.
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

    /// Serde reads the inside of a tagged value from a buffer, where a key is text for good.
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
