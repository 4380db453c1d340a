//! Runs for tests, with figures that a fixed random sequence made.

use std::collections::BTreeMap;

use crate::histogram::Histogram;
use crate::result::{
    Bytes, Comparison, Distribution, Failures, GeneratorUse, KernelCounts, Machine, Metric, Point, ProbeAnswer, Run,
    RunKind, RunLoad, SCHEMA, Second, ServerUse, Slice, Target, Total, Verdict,
};
use fastrand::Rng;

/// Requests of one slice.
const REQUESTS: u64 = 2000;

/// `fpassthru` against `sendfile`: the same rate, a shorter first byte, a fraction of the CPU.
pub(super) fn pair() -> Run {
    let mut run = run(RunKind::Comparison, &["fpassthru", "sendfile"]);
    run.points = vec![point(0, 10, 5100.0, 12_000, 1), point(1, 10, 5110.0, 11_900, 2)];
    run.comparisons = vec![
        comparison(
            Metric::RequestsPerSecond,
            1.0,
            Verdict::NoDifference,
            "no difference shown (0.99–1.01×)",
        ),
        comparison(Metric::FirstByte, 0.1, Verdict::Better, "10× shorter"),
        comparison(Metric::ServerCpu, 0.31, Verdict::Better, "0.31× (0.30–0.32)"),
    ];
    run.verdicts = vec![
        "no difference shown in requests a second (0.99–1.01×)".to_owned(),
        "sendfile answers its first byte 10× sooner (95 % sure: 9.1–11×)".to_owned(),
    ];
    run
}

/// One target of this rate.
pub(super) fn single(rate: f64) -> Run {
    let mut run = run(RunKind::Single, &["page"]);
    run.points = vec![point(0, 10, rate, 9_000, 3)];
    run.verdicts = vec![format!("page: {rate} requests a second")];
    run
}

/// So many targets at one level.
pub(super) fn many(count: usize) -> Run {
    let names: Vec<String> = (0..count).map(|number| format!("server {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut run = run(RunKind::Comparison, &names);
    let one = |target: usize| {
        point(
            target,
            20,
            900.0 + 70.0 * target as f64,
            20_000 - 700 * target as u64,
            7,
        )
    };
    run.points = (0..count).map(one).collect();
    run
}

/// Two targets, one of which fails as connections grow.
pub(super) fn sweep() -> Run {
    let mut run = run(RunKind::Sweep, &["haulier", "nginx"]);
    run.load.connections = vec![100, 1000, 10_000];
    for (number, connections) in [100, 1000, 10_000].into_iter().enumerate() {
        let fall = 1.0 - 0.3 * number as f64;
        run.points
            .push(point(0, connections, 32_000.0 - 900.0 * number as f64, 3_000, 4));
        let mut other = point(1, connections, 33_000.0 * fall, 3_000, 5);
        if connections > 5000 {
            other.total.failures = Failures {
                refused: 120,
                first_byte_timeout: 31,
                ..Failures::default()
            };
        }
        run.points.push(other);
    }
    run
}

fn run(kind: RunKind, names: &[&str]) -> Run {
    Run {
        schema: SCHEMA,
        kind,
        tool: "haulier 0.1.0".to_owned(),
        command: ["haulier", "bench", "-c", "10"].map(str::to_owned).to_vec(),
        started: "2026-11-20T12:04:31Z".to_owned(),
        duration_s: 61.5,
        seed: 7,
        machine: Machine {
            cpu: "Example CPU @ 2.50GHz".to_owned(),
            cores: 2,
            memory_bytes: 8_000_000_000,
            kernel: "Linux 6.1.0".to_owned(),
            os: "Debian 12".to_owned(),
            load_before: 0.08,
            descriptors: 20_000,
            sysctls: BTreeMap::from([("net.core.somaxconn".to_owned(), "4096".to_owned())]),
            ..Machine::default()
        },
        load: RunLoad {
            connections: vec![10],
            threads: 1,
            processes: 1,
            rounds: 6,
            requests: Some(REQUESTS),
            warmup_s: 1.0,
            protocol: "HTTP/1.1".to_owned(),
            keep_alive: true,
            method: "GET".to_owned(),
            timeout_s: 30.0,
            ..RunLoad::default()
        },
        targets: names.iter().map(|name| target(name)).collect(),
        points: Vec::new(),
        comparisons: Vec::new(),
        noise: None,
        verdicts: Vec::new(),
        warnings: Vec::new(),
    }
}

fn target(name: &str) -> Target {
    Target {
        name: name.to_owned(),
        url: format!("http://127.0.0.1:8080/{}", name.replace(' ', "-")),
        answer: Some(ProbeAnswer {
            status: 200,
            version: "HTTP/1.1".to_owned(),
            head_bytes: 180,
            body_bytes: 498_000,
            decoded_bytes: 498_000,
            sha256: "5f18".repeat(16),
            encoding: "identity".to_owned(),
            content_type: Some("image/jpeg".to_owned()),
            server: Some("haulier".to_owned()),
            location: None,
            keep_alive: true,
        }),
        varies: false,
        version: None,
    }
}

fn point(target: usize, connections: u32, rate: f64, middle_us: u64, seed: u64) -> Point {
    let mut random = Rng::with_seed(seed + target as u64);
    let mut all = Histogram::default();
    let mut slices = Vec::new();
    for round in 0..6 {
        let mut own = Histogram::default();
        for _ in 0..REQUESTS {
            // A few requests are far slower than the rest, as on real servers.
            let slow = if random.u32(..200) == 0 { 8.0 } else { 1.0 };
            own.record(
                (middle_us as f64 * 1000.0 * slow * (0.8 + 0.4 * random.f64() + 0.3 * random.f64().powi(6))) as u64,
            );
        }
        all.add(&own);
        let jitter = 0.99 + 0.02 * random.f64();
        slices.push(slice(round, rate * jitter, &own, target));
    }
    let distribution = all.distribution();
    Point {
        target,
        connections,
        rate: None,
        total: Total {
            duration_s: slices.iter().map(|slice| slice.duration_s).sum(),
            requests: 6 * REQUESTS,
            requests_per_second: rate,
            failures: Failures::default(),
            statuses: BTreeMap::from([(200, 6 * REQUESTS)]),
            connections_opened: u64::from(connections),
            bytes: Bytes {
                received: 6 * REQUESTS * 498_180,
                sent: 6 * REQUESTS * 80,
                body: 6 * REQUESTS * 498_000,
            },
            first_byte: Distribution {
                histogram: String::new(),
                ..distribution.clone()
            },
            latency: distribution,
            service: None,
            connect: None,
            sent_late: None,
            waited_for_connection: None,
            generator: GeneratorUse {
                cpu: 0.31,
                cpu_us_per_request: 4.8,
                user_us_per_request: 0.9,
                rss_bytes: 6_000_000,
            },
            server: slices[0].server,
            timeline: (0..12).map(|second| moment(second, target, rate)).collect(),
        },
        slices,
    }
}

fn slice(round: u32, rate: f64, times: &Histogram, target: usize) -> Slice {
    Slice {
        round,
        order: 2 * round + target as u32,
        start_s: 5.0 * f64::from(round),
        duration_s: REQUESTS as f64 / rate,
        requests: REQUESTS,
        failed: 0,
        requests_per_second: rate,
        p50_us: times.percentile(50.0),
        p95_us: times.percentile(95.0),
        p99_us: times.percentile(99.0),
        max_us: times.max(),
        first_byte_us: times.percentile(50.0) / 4,
        connections_opened: 10,
        generator_cpu: 0.3,
        server: Some(ServerUse {
            cpu_us_per_request: Some(900.0 / (1.0 + 2.0 * target as f64)),
            php_cpu_us_per_request: Some(600.0 / (1.0 + 9.0 * target as f64)),
            cores: Some(0.8),
            rss_bytes: Some(90_000_000),
            pss_bytes: Some(41_000_000),
            processes: Some(10),
            ..ServerUse::default()
        }),
        kernel: KernelCounts::default(),
        others_cpu_s: Some(0.1),
    }
}

fn moment(second: u32, target: usize, rate: f64) -> Second {
    // The targets take turns of three seconds.
    let turn = 6 * (second / 3) + second % 3 + 3 * target as u32;
    Second {
        at_s: f64::from(turn),
        length_s: 1.0,
        requests: rate as u64 + u64::from(second % 4),
        failed: 0,
        p50_us: 11_000,
        p99_us: 15_000 + u64::from(second) * 100,
        server_cores: Some(0.8),
        server_rss_bytes: Some(80_000_000 + u64::from(second) * 1_000_000),
        busy_workers: None,
    }
}

fn comparison(metric: Metric, ratio: f64, verdict: Verdict, words: &str) -> Comparison {
    Comparison {
        metric,
        base: 0,
        other: 1,
        connections: 10,
        rate: None,
        ratio,
        low: ratio * 0.97,
        high: ratio * 1.03,
        p_value: 0.4,
        pairs: 6,
        smallest_visible: Some(1.02),
        verdict,
        words: words.to_owned(),
    }
}
