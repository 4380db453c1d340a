//! The registry as OpenMetrics text. A snapshot of all counters is taken first, then encoded by the library.

use std::fmt::Error;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use haulier_php::{ExternalServer, PoolStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::images::{self, ImageTotals};
use super::process::Process;
use super::{DurationHistogram, HandlerTotals, Metrics, ReloadResult, SiteTotals, Totals};
use crate::access_log::LOST;

/// The site label of requests without a site. No site can have this name.
const NO_SITE: &str = "(none)";
const CODES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) fn encode(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsSnapshot::take(metrics)));
    let mut text = String::with_capacity(64 * 1024);
    // Writing to a String cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// All figures of one moment.
#[derive(Debug)]
struct MetricsSnapshot {
    totals: Totals,
    pools: Vec<PoolSnapshot>,
    images: Vec<ImageTotals>,
    http1_connections: u64,
    http2_connections: u64,
    /// Lost access log lines by reason.
    lost: [(&'static str, u64); 2],
    reloads: [(&'static str, u64); ReloadResult::ALL.len()],
    /// Sites with TLS, with seconds until expiry.
    certificates: Vec<(String, f64)>,
    process: Process,
    version: &'static str,
}

#[derive(Debug)]
struct PoolSnapshot {
    name: String,
    status: PoolStatus,
    servers: Vec<ExternalServer>,
    memory: Option<u64>,
}

impl MetricsSnapshot {
    fn take(metrics: &Metrics) -> Self {
        let pools = metrics.pools();
        let pools = pools.iter().map(|pool| PoolSnapshot {
            name: pool.settings().name.clone(),
            status: metrics.pool_status(pool),
            servers: pool.servers(),
            memory: metrics.pool_memory(pool),
        });
        let http2_connections = metrics.http2_connections() as u64;
        Self {
            totals: metrics.totals(),
            pools: pools.collect(),
            images: images::take(metrics),
            // The two are read at different moments.
            http1_connections: (metrics.connections() as u64).saturating_sub(http2_connections),
            http2_connections,
            lost: [("slow", &LOST.slow), ("failed", &LOST.failed)]
                .map(|(reason, lost)| (reason, lost.load(Ordering::Relaxed))),
            reloads: ReloadResult::ALL.map(|result| (result.as_str(), metrics.reloads(result))),
            certificates: metrics
                .certificates()
                .into_iter()
                .map(|(site, not_after)| (site, not_after.map_or(0.0, seconds_until)))
                .collect(),
            process: Process::look(),
            version: metrics.version,
        }
    }

    /// Every site with its name, then the requests without a site.
    fn sites(&self) -> impl Iterator<Item = (&str, &SiteTotals)> {
        let named = self.totals.sites.iter().map(|(name, site)| (name.as_str(), site));
        named.chain([(NO_SITE, &self.totals.none)])
    }

    /// Every site with every handler. Without a site there are errors only.
    fn handlers(&self) -> impl Iterator<Item = (&str, &str, &HandlerTotals)> {
        self.sites().flat_map(|(site, totals)| {
            let possible = move |name: &str| site != NO_SITE || name == "error";
            let handlers = totals.handlers().filter(move |(name, _)| possible(name));
            handlers.map(move |(handler, totals)| (site, handler, totals))
        })
    }
}

impl Collector for MetricsSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        self.encode_requests(encoder)?;
        self.encode_gauges(encoder)?;
        self.encode_workers(encoder)?;
        self.encode_queue(encoder)?;
        self.encode_exits(encoder)?;
        self.encode_servers(encoder)?;
        self.encode_offload(encoder)?;
        self.encode_codings(encoder)?;
        images::encode(encoder, &self.images, &self.totals)?;
        self.encode_errors(encoder)?;
        self.encode_build(encoder)?;
        self.encode_process(encoder)
    }
}

impl MetricsSnapshot {
    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metric = counter(
            encoder,
            "haulier_requests",
            "Responses by site, handler and class of status code.",
        )?;
        for (site, handler, totals) in self.handlers() {
            for (code, count) in CODES.into_iter().zip(totals.codes) {
                add(
                    &mut metric,
                    &[("site", site), ("handler", handler), ("code", code)],
                    count,
                )?;
            }
        }
        let help = "Time from the end of a request's head to the last byte given to the kernel.";
        let mut metric = histogram(encoder, "haulier_request_duration_seconds", help)?;
        for (site, handler, totals) in self.handlers() {
            observe(&mut metric, &[("site", site), ("handler", handler)], &totals.times)?;
        }
        let mut metric = counter(encoder, "haulier_response_bytes", "Bytes sent, heads included.")?;
        for (site, handler, totals) in self.handlers() {
            for (encoding, bytes) in totals.sent_by_encoding() {
                let labels = [("site", site), ("handler", handler), ("encoding", encoding)];
                add(&mut metric, &labels, bytes)?;
            }
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metric = gauge(encoder, "haulier_requests_in_flight", "Requests in progress.")?;
        for (name, site) in &self.totals.sites {
            set(&mut metric, &[("site", name)], site.in_flight)?;
        }
        let help = "Responses being sent to clients that cannot take them at once, such as downloads.";
        let mut metric = gauge(encoder, "haulier_responses_sending", help)?;
        for (name, site) in &self.totals.sites {
            set(&mut metric, &[("site", name)], site.sending)?;
        }
        let mut metric = gauge(encoder, "haulier_connections", "Open connections.")?;
        set(&mut metric, &[("proto", "h1")], self.http1_connections)?;
        set(&mut metric, &[("proto", "h2")], self.http2_connections)?;
        let help = "Time until the first certificate of a site expires; negative after that, 0 without one.";
        let mut metric = gauge(encoder, "haulier_certificate_expiry_seconds", help)?;
        for (site, seconds) in &self.certificates {
            metric.encode_family(&[("site", site)])?.encode_gauge(seconds)?;
        }
        Ok(())
    }

    fn encode_workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metric = gauge(encoder, "haulier_php_workers", "PHP workers by state.")?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            let free = status.load.capacity.saturating_sub(status.load.busy) as u64;
            let (idle, starting) = if status.load.is_live { (free, 0) } else { (0, free) };
            for (state, count) in [
                ("busy", status.load.busy as u64),
                ("idle", idle),
                ("starting", starting),
            ] {
                set(&mut metric, &[("pool", name), ("state", state)], count)?;
            }
        }
        let mut metric = gauge(
            encoder,
            "haulier_php_workers_max",
            "Most requests that PHP processes at once.",
        )?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            set(&mut metric, &[("pool", name)], status.load.capacity as u64)?;
        }
        let help = "Memory of haulier's own PHP processes (PSS); 0 if the system does not report it.";
        let mut metric = gauge(encoder, "haulier_php_memory_bytes", help)?;
        for pool in &self.pools {
            if let Some(memory) = pool.memory {
                set(&mut metric, &[("pool", &pool.name)], memory)?;
            }
        }
        self.encode_kept_memory(encoder)
    }

    fn encode_kept_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Memory that a booted script keeps in a worker between two requests.";
        let mut metric = gauge(encoder, "haulier_php_kept_bytes", help)?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            if let Some(bytes) = status.kept.bytes {
                set(&mut metric, &[("pool", name)], bytes)?;
            }
        }
        let help = "Growth of that memory with each of the last requests, at most 2,000.";
        let mut metric = gauge(encoder, "haulier_php_kept_growth_bytes", help)?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            if let Some(growth) = status.kept.growth {
                metric
                    .encode_family(&[("pool", name.as_str())])?
                    .encode_gauge(&growth)?;
            }
        }
        Ok(())
    }

    fn encode_queue(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metric = gauge(encoder, "haulier_php_queue_length", "Requests waiting for a worker.")?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            set(&mut metric, &[("pool", name)], status.load.queued as u64)?;
        }
        let help = "Waiting time for a worker, including requests that got none.";
        let mut metric = histogram(encoder, "haulier_php_queue_wait_seconds", help)?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            observe(&mut metric, &[("pool", name)], &status.load.waits.into())?;
        }
        let help = "Time that workers spent on requests, summed over all workers.";
        let mut metric = counter(encoder, "haulier_php_busy_seconds", help)?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            add_seconds(&mut metric, &[("pool", name)], status.load.busy_time)?;
        }
        Ok(())
    }

    fn encode_exits(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Workers that ended, by reason; `master` is the php-cgi that starts them.";
        let mut metric = counter(encoder, "haulier_php_worker_exits", help)?;
        for PoolSnapshot { name, status, .. } in &self.pools {
            let reasons = [
                ("max_requests", status.counts.recycled_requests),
                ("memory", status.counts.recycled_memory),
                ("age", status.counts.recycled_age),
                ("idle", status.counts.shrunk),
                ("crash", status.counts.crashes),
                ("timeout", status.counts.timeouts),
                ("master", status.counts.exits),
            ];
            for (reason, count) in reasons {
                add(&mut metric, &[("pool", name), ("reason", reason)], count)?;
            }
        }
        Ok(())
    }

    fn encode_servers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let servers = || {
            self.pools
                .iter()
                .flat_map(|pool| pool.servers.iter().map(move |server| (pool, server)))
        };
        let help = "1 if the last connection to a server succeeded, or before the first; otherwise 0.";
        let mut metric = gauge(encoder, "haulier_upstream_up", help)?;
        for (pool, server) in servers() {
            set(
                &mut metric,
                &server_labels(pool, server),
                u64::from(server.status.is_up),
            )?;
        }
        let mut metric = gauge(encoder, "haulier_upstream_connections", "Open connections to a server.")?;
        for (pool, server) in servers() {
            set(
                &mut metric,
                &server_labels(pool, server),
                server.status.connections as u64,
            )?;
        }
        let asked = || servers().filter(|(_, server)| server.is_asked);
        let help = "Busy children of a server, as it reports; 0 while it does not answer.";
        let mut metric = gauge(encoder, "haulier_upstream_active", help)?;
        for (pool, server) in asked() {
            let active = server.told.map_or(0, |told| told.active);
            set(&mut metric, &server_labels(pool, server), active as u64)?;
        }
        let help = "Connections waiting for a child of a server, as it reports; 0 while it does not answer.";
        let mut metric = gauge(encoder, "haulier_upstream_queue_length", help)?;
        for (pool, server) in asked() {
            let queued = server.told.map_or(0, |told| told.queued);
            set(&mut metric, &server_labels(pool, server), queued as u64)?;
        }
        Ok(())
    }

    fn encode_offload(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut metric = counter(
            encoder,
            "haulier_handoffs",
            "Responses that scripts handed off, by method.",
        )?;
        for (name, site) in &self.totals.sites {
            for (via, count) in site.handoffs() {
                add(&mut metric, &[("site", name), ("via", via)], count)?;
            }
        }
        let help = "Worker time saved: from the release of a worker to the end of the response.";
        let mut metric = counter(encoder, "haulier_worker_seconds_saved", help)?;
        for (name, site) in &self.totals.sites {
            add_seconds(&mut metric, &[("site", name)], site.saved)?;
        }
        let mut metric = gauge(encoder, "haulier_spool_bytes", "Bytes of responses in spool files.")?;
        metric.encode_gauge(&self.totals.spool_bytes)?;
        let help = "Bytes of long responses in memory, mostly in pipes.";
        let mut metric = gauge(encoder, "haulier_spool_memory_bytes", help)?;
        metric.encode_gauge(&self.totals.spool_memory_bytes)?;
        let help = "Responses whose script had to wait for its client because the spool was full.";
        let mut metric = counter(encoder, "haulier_spool_full", help)?;
        metric.encode_counter::<NoLabelSet, u64, f64>(&self.totals.spool_full, None)
    }

    fn encode_codings(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let all: Vec<_> = self
            .totals
            .sites
            .iter()
            .flat_map(|(name, site)| site.codings().map(move |(coding, totals)| (name, coding, totals)))
            .collect();
        let help = "Bytes of bodies before coding.";
        let mut metric = counter(encoder, "haulier_compress_in_bytes", help)?;
        for (site, encoding, totals) in &all {
            add(&mut metric, &[("site", site), ("encoding", encoding)], totals.taken)?;
        }
        let mut metric = counter(
            encoder,
            "haulier_compress_out_bytes",
            "Bytes of these bodies after coding.",
        )?;
        for (site, encoding, totals) in &all {
            add(&mut metric, &[("site", site), ("encoding", encoding)], totals.made)?;
        }
        let mut metric = counter(encoder, "haulier_compress_seconds", "Time spent coding them.")?;
        for (site, encoding, totals) in &all {
            add_seconds(&mut metric, &[("site", site), ("encoding", encoding)], totals.spent)?;
        }
        Ok(())
    }

    fn encode_errors(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Failed requests, by the reason in the log.";
        let mut metric = counter(encoder, "haulier_errors", help)?;
        for (site, totals) in self.sites() {
            for (reason, count) in totals.errors() {
                let reason = reason.word();
                add(&mut metric, &[("site", site), ("reason", reason)], count)?;
            }
        }
        Ok(())
    }

    fn encode_build(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Access log lines lost because their reader was too slow or their file could not be written.";
        let mut metric = counter(encoder, "haulier_log_lines_lost", help)?;
        for (reason, count) in self.lost {
            add(&mut metric, &[("reason", reason)], count)?;
        }
        let help = "Attempts to reload the configuration, by result.";
        let mut metric = counter(encoder, "haulier_config_reloads", help)?;
        for (result, count) in self.reloads {
            add(&mut metric, &[("result", result)], count)?;
        }
        let help = "Always 1; the label holds the version.";
        let mut metric = gauge(encoder, "haulier_build_info", help)?;
        set(&mut metric, &[("version", self.version)], 1)
    }

    fn encode_process(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let process = &self.process;
        let mut metric = counter(encoder, "process_cpu_seconds", "User and system time of this process.")?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&process.cpu.as_secs_f64(), None)?;
        let mut metric = gauge(encoder, "process_start_time_seconds", "Start time, seconds since 1970.")?;
        metric.encode_gauge(&process.started.as_secs_f64())?;
        let rows = [
            ("process_open_fds", "Open descriptors.", process.open_fds),
            ("process_max_fds", "Most descriptors that may be open.", process.max_fds),
            (
                "process_resident_memory_bytes",
                "Resident memory.",
                process.resident_bytes,
            ),
            ("process_virtual_memory_bytes", "Address space.", process.virtual_bytes),
            ("process_threads", "Threads.", process.threads),
        ];
        for (name, help, value) in rows {
            gauge(encoder, name, help)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// Whole seconds, negative for a moment in the past.
fn seconds_until(moment: SystemTime) -> f64 {
    let now = SystemTime::now();
    match moment.duration_since(now) {
        Ok(left) => left.as_secs() as f64,
        Err(over) => -(over.duration().as_secs() as f64),
    }
}

type Labels<'l> = &'l [(&'l str, &'l str)];

fn server_labels<'s>(pool: &'s PoolSnapshot, server: &'s ExternalServer) -> [(&'static str, &'s str); 2] {
    [("pool", &pool.name), ("server", &server.status.name)]
}

/// Adds a counter; the encoder appends `_total` to its name.
pub(super) fn counter<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

pub(super) fn gauge<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

pub(super) fn histogram<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Histogram)
}

pub(super) fn add(metric: &mut MetricEncoder<'_>, labels: Labels<'_>, value: u64) -> Result<(), Error> {
    metric
        .encode_family(&labels)?
        .encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

fn add_seconds(metric: &mut MetricEncoder<'_>, labels: Labels<'_>, value: Duration) -> Result<(), Error> {
    metric
        .encode_family(&labels)?
        .encode_counter::<NoLabelSet, f64, f64>(&value.as_secs_f64(), None)
}

pub(super) fn set(metric: &mut MetricEncoder<'_>, labels: Labels<'_>, value: u64) -> Result<(), Error> {
    metric.encode_family(&labels)?.encode_gauge(&value)
}

pub(super) fn observe(
    metric: &mut MetricEncoder<'_>,
    labels: Labels<'_>,
    times: &DurationHistogram,
) -> Result<(), Error> {
    let sum = times.sum.as_secs_f64();
    metric
        .encode_family(&labels)?
        .encode_histogram::<NoLabelSet>(sum, times.count(), &times.buckets(), None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::files::fixture;
    use crate::io::Gate;

    fn text() -> String {
        let root = fixture::Root::new().with(|settings| settings.name = "shop".into());
        let site = fixture::open(root.site().settings, 0);
        let metrics = Metrics::new(Gate::new(10, 0, 2), 2);
        assert_eq!(metrics.series_of("shop"), 0);
        metrics.serve(vec![Arc::new(site)], None);
        metrics.encode()
    }

    #[test]
    fn every_series_is_there_from_the_start() {
        let text = text();
        let zeros = [
            r#"haulier_requests_total{site="shop",handler="php",code="5xx"} 0"#,
            r#"haulier_requests_total{site="(none)",handler="error",code="4xx"} 0"#,
            r#"haulier_request_duration_seconds_bucket{le="+Inf",site="shop",handler="static"} 0"#,
            r#"haulier_response_bytes_total{site="shop",handler="offloaded",encoding="identity"} 0"#,
            r#"haulier_requests_in_flight{site="shop"} 0"#,
            r#"haulier_connections{proto="h1"} 0"#,
            r#"haulier_connections{proto="h2"} 0"#,
            r#"haulier_handoffs_total{site="shop",via="x-sendfile"} 0"#,
            r#"haulier_worker_seconds_saved_total{site="shop"} 0"#,
            r#"haulier_compress_out_bytes_total{site="shop",encoding="br"} 0"#,
            r#"haulier_compress_seconds_total{site="shop",encoding="gzip"} 0"#,
            "haulier_spool_bytes 0",
            "haulier_spool_memory_bytes 0",
            "haulier_spool_full_total 0",
            r#"haulier_errors_total{site="shop",reason="php_crashed"} 0"#,
            r#"haulier_config_reloads_total{result="failure"} 0"#,
        ];
        for line in zeros {
            assert!(
                text.lines().any(|found| found == line || found == format!("{line}.0")),
                "{line} in\n{text}"
            );
        }
        assert!(text.contains("haulier_build_info{version="), "{text}");
        assert!(!text.contains(r#"site="(none)",handler="php""#), "PHP needs a site");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn every_family_has_help_and_type_and_no_series_appears_twice() {
        let text = text();
        let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for line in &series {
            let name = line.split(['{', ' ']).next().expect("a name");
            let family = ["_total", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let described =
                |name: &str| text.contains(&format!("# TYPE {name} ")) && text.contains(&format!("# HELP {name} "));
            assert!(described(name) || family.is_some_and(described), "{line}");
        }
        let count = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), count);
    }
}
