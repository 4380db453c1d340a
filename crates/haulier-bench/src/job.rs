//! One slice of load, spelt out: a generator thread or process has to look nothing up.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pacer::Spacing;
use super::result::Failures;

/// The address to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Protocol of a slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    #[default]
    Http1,
    /// Agreed on in the TLS handshake; without TLS by prior knowledge (RFC 9113 §3.3).
    Http2,
    FastCgi,
}

/// TLS as a client offers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsOptions {
    /// Name expected in the certificate.
    pub server_name: String,
    /// Accept any certificate.
    pub insecure: bool,
    /// Send no server name (SNI).
    pub no_sni: bool,
    /// `TLS1.2` or `TLS1.3` alone; `None` for both.
    pub version: Option<String>,
    /// Cipher suites by their IANA or OpenSSL names; empty for all.
    pub ciphers: Vec<String>,
    /// A PEM file with certificate and key.
    pub certificate: Option<PathBuf>,
}

/// The moments at which requests are sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub enum Arrivals {
    /// As soon as the previous answer is complete.
    #[default]
    Closed,
    /// `rate` requests a second.
    Open { rate: f64, spacing: Spacing, seed: u64 },
    /// At these times since the start, ascending, ns. The n-th request is the n-th of [`SliceJob::order`].
    Schedule(Vec<u64>),
}

/// Requirements of a good answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    pub status: StatusRule,
    /// Every body must have the length of the first one.
    pub same_length: bool,
    /// The body as it travels, if all answers are known to be the same.
    #[serde(with = "base64_bytes")]
    pub body: Option<Vec<u8>>,
    /// Failed answers count in the latency, as in ab.
    pub time_failures: bool,
}

impl Expected {
    /// True if a piece of a body, at this position, is not the expected one.
    pub(super) fn differs(&self, position: u64, piece: &[u8]) -> bool {
        self.body.as_ref().is_some_and(|body| {
            let at = usize::try_from(position).unwrap_or(usize::MAX).min(body.len());
            !body[at..].starts_with(piece)
        })
    }
}

/// Statuses of good answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatusRule {
    /// Every status.
    Any,
    /// This status alone.
    Same(u16),
    /// Below 400.
    #[default]
    NoError,
    /// Below 500.
    NoServerError,
}

impl StatusRule {
    #[must_use]
    pub fn allows(self, status: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Same(expected) => status == expected,
            Self::NoError => status < 400,
            Self::NoServerError => status < 500,
        }
    }
}

/// Socket failures that end a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopRule {
    #[default]
    Never,
    /// The first failure of a connection, of any kind.
    Any,
    /// The first timeout.
    Timeout,
    /// The first timeout or socket error. A connection that ends early is neither.
    SocketError,
}

impl StopRule {
    /// True if these failures end the run.
    #[must_use]
    pub fn ends(self, failures: &Failures) -> bool {
        match self {
            Self::Never => false,
            Self::Any => failures.of_sockets() + failures.timeouts() > 0,
            Self::Timeout => failures.timeouts() > 0,
            Self::SocketError => failures.timeouts() > 0 || failures.of_sockets() > failures.short_body,
        }
    }
}

/// One slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SliceJob {
    pub destination: Destination,
    pub protocol: Protocol,
    pub tls: Option<TlsOptions>,
    /// The head of a CONNECT request to a proxy.
    pub tunnel: Option<String>,
    /// Requests as they travel.
    pub requests: Vec<Outgoing>,
    /// Indices into `requests`, in the order of sending, repeated at the end. Empty for `requests` themselves.
    pub order: Vec<u32>,
    /// At least 1.
    pub connections: u32,
    /// Number of the first connection, if several processes share the load.
    pub first_connection: u32,
    /// HTTP/2 streams of a connection; one without keep-alive.
    pub streams: u32,
    pub threads: u32,
    /// Most requests; `None` without a limit.
    pub count: Option<u64>,
    /// Longest time; `None` without a limit. One of the two limits is set.
    pub time: Option<Duration>,
    pub arrivals: Arrivals,
    pub keep_alive: bool,
    /// Longest wait for a connection, for a first byte, or for more of a body.
    pub timeout: Duration,
    /// Bytes a second each connection reads.
    pub read_rate: Option<u64>,
    /// Bytes a second each connection sends.
    pub send_rate: Option<u64>,
    /// Size of the socket buffers, bytes.
    pub buffers: Option<u64>,
    /// Addresses to connect from, in turns; empty for the system's choice.
    pub sources: Vec<IpAddr>,
    pub expected: Expected,
    pub stop: StopRule,
    /// Keep the first answer.
    pub capture: bool,
    /// Keep all answers; memory grows with them.
    pub keep_answers: bool,
    /// Record the time after connecting separately.
    pub times_processing: bool,
    /// Keep the times of every request; memory grows with their number.
    pub keep_times: bool,
}

/// A request, encoded for its protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// The whole request; for HTTP/2 the body alone.
    #[serde(with = "base64_text")]
    pub bytes: Vec<u8>,
    /// The lines of an HTTP/2 request, pseudo-fields first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
    /// It is a HEAD request: its answer has no body.
    pub is_head: bool,
}

impl Outgoing {
    /// The request for people to read.
    pub(super) fn as_text(&self) -> Vec<u8> {
        let mut text: String = self
            .fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        [text.as_bytes(), &self.bytes].concat()
    }
}

mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

mod base64_bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| STANDARD.decode(text).map_err(serde::de::Error::custom))
            .transpose()
    }
}

impl SliceJob {
    /// The part of process `index` of `processes`, so that all parts together are this job.
    #[must_use]
    pub fn part(&self, index: u32, processes: u32) -> Self {
        let (first, connections) = share(self.connections, index, processes);
        let mut part = self.clone();
        part.connections = connections;
        part.first_connection = self.first_connection + first;
        part.count = self.count.map(|count| {
            let parts = u64::from(processes);
            count / parts + u64::from(u64::from(index) < count % parts)
        });
        match &mut part.arrivals {
            Arrivals::Closed => {}
            Arrivals::Open { rate, seed, .. } => {
                *rate /= f64::from(processes);
                *seed = seed.wrapping_add(u64::from(index));
            }
            Arrivals::Schedule(times) => {
                let mine = |place: &usize| *place as u32 % processes == index;
                let places: Vec<usize> = (0..times.len()).filter(mine).collect();
                part.order = places.iter().map(|place| self.order[*place]).collect();
                *times = places.iter().map(|place| times[*place]).collect();
            }
        }
        part
    }

    /// Index into `requests` of the n-th request.
    pub(super) fn request(&self, number: u64) -> usize {
        if self.order.is_empty() {
            (number % self.requests.len() as u64) as usize
        } else {
            self.order[(number % self.order.len() as u64) as usize] as usize
        }
    }
}

/// First item and number of items of part `index`, if `all` are divided among `parts`.
pub(super) fn share(all: u32, index: u32, parts: u32) -> (u32, u32) {
    let (each, more) = (all / parts, all % parts);
    (each * index + index.min(more), each + u32::from(index < more))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A job of ten requests to a socket that does not exist.
    pub(in super::super) fn job() -> SliceJob {
        SliceJob {
            destination: Destination::Unix(PathBuf::from("/nowhere")),
            protocol: Protocol::Http1,
            tls: None,
            tunnel: None,
            requests: vec![Outgoing {
                bytes: b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
                fields: Vec::new(),
                is_head: false,
            }],
            order: Vec::new(),
            connections: 1,
            first_connection: 0,
            streams: 1,
            threads: 1,
            count: Some(10),
            time: None,
            arrivals: Arrivals::Closed,
            keep_alive: true,
            timeout: Duration::from_secs(5),
            read_rate: None,
            send_rate: None,
            buffers: None,
            sources: Vec::new(),
            expected: Expected::default(),
            stop: StopRule::Never,
            capture: false,
            keep_answers: false,
            times_processing: false,
            keep_times: false,
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let whole = SliceJob {
            connections: 10,
            count: Some(1001),
            arrivals: Arrivals::Open {
                rate: 300.0,
                spacing: Spacing::Constant,
                seed: 1,
            },
            ..job()
        };
        let parts: Vec<SliceJob> = (0..3).map(|index| whole.part(index, 3)).collect();
        let numbers: Vec<(u32, u32)> = parts
            .iter()
            .map(|part| (part.first_connection, part.connections))
            .collect();
        assert_eq!(numbers, [(0, 4), (4, 3), (7, 3)]);
        assert_eq!(parts.iter().map(|part| part.count.expect("a limit")).sum::<u64>(), 1001);
        let rates = parts.iter().map(|part| match part.arrivals {
            Arrivals::Open { rate, .. } => rate,
            _ => 0.0,
        });
        assert!((rates.sum::<f64>() - 300.0).abs() < 1e-9);
    }

    #[test]
    fn a_schedule_is_dealt_out_with_its_requests() {
        let whole = SliceJob {
            arrivals: Arrivals::Schedule(vec![1, 2, 3, 4, 5]),
            order: vec![0, 1, 2, 0, 1],
            ..job()
        };
        let second = whole.part(1, 2);
        assert_eq!(second.arrivals, Arrivals::Schedule(vec![2, 4]));
        assert_eq!(second.order, [1, 0]);
    }

    #[test]
    fn a_job_survives_the_way_to_another_process() {
        let mut job = job();
        job.expected.body = Some(vec![0, 255, 10]);
        let text = serde_json::to_string(&job).expect("serialisable");
        let back: SliceJob = serde_json::from_str(&text).expect("our own");
        assert_eq!(back.expected, job.expected);
        assert_eq!(back.requests, job.requests);
    }

    #[test]
    fn a_connection_that_ends_early_is_no_socket_error() {
        let cut = Failures {
            short_body: 1,
            ..Failures::default()
        };
        let reset = Failures { reset: 1, ..cut };
        let late = Failures { body_timeout: 1, ..cut };
        let (socket, timeout) = (StopRule::SocketError, StopRule::Timeout);
        assert!(!socket.ends(&cut) && socket.ends(&reset) && socket.ends(&late));
        assert!(!timeout.ends(&reset) && timeout.ends(&late));
        assert!(StopRule::Any.ends(&cut) && StopRule::Any.ends(&late));
        let wrong = Failures {
            status: 1,
            length: 1,
            body: 1,
            ..Failures::default()
        };
        assert!(!StopRule::Any.ends(&wrong) && !socket.ends(&wrong));
    }

    #[test]
    fn statuses_are_judged_by_their_rule() {
        assert!(StatusRule::NoError.allows(302) && !StatusRule::NoError.allows(404));
        assert!(StatusRule::Same(404).allows(404) && !StatusRule::Same(404).allows(200));
        assert!(StatusRule::NoServerError.allows(404) && !StatusRule::NoServerError.allows(503));
        assert!(StatusRule::Any.allows(599));
    }
}
