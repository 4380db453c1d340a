//! The state of a server as people read it.

use std::collections::HashSet;
use std::fmt::Write as _;

use haulier_proto::text::printable;

use crate::admin::state::{
    CertificateState, ImageState, PoolState, RunningState, ServerState, SiteState, Spool, StreamingState,
};
use crate::quantity::{milliseconds, rate, size, span};

/// The whole page.
pub(super) fn render(state: &ServerState) -> String {
    let mut text = head(state);
    text.push_str(&sites(&state.sites));
    text.push_str(&pools(&state.pools));
    if let Some(what) = &state.not_booted {
        let _ = writeln!(text, "not booted  {}\n", printable(what));
    }
    text.push_str(&images(&state.images));
    let _ = writeln!(
        text,
        "downloads  {} active, {}/s    PHP saved: {} of worker time",
        state.downloads.active,
        size(state.downloads.bytes_per_second),
        span(state.worker_seconds_saved),
    );
    text.push_str(&spool(state.spool));
    text.push_str(&certificates(&state.certificates));
    text.push_str(&streaming(&state.streaming));
    text
}

/// `spool  2 MB in memory, 340 MB on disk; full for 3 responses, whose scripts waited for their clients`
fn spool(spool: Spool) -> String {
    if spool == Spool::default() {
        return String::new();
    }
    let (memory, disk) = (size(spool.memory_bytes as f64), size(spool.disk_bytes as f64));
    let full = match spool.full_total {
        0 => String::new(),
        1 => "; full for 1 response, whose script waited for its client".to_owned(),
        times => format!("; full for {times} responses, whose scripts waited for their clients"),
    };
    format!("spool      {memory} in memory, {disk} on disk{full}\n")
}

/// `certificates  2 sites, the first ends in 61 days (shop)`
fn certificates(sites: &[CertificateState]) -> String {
    let mut text = String::new();
    let ends = sites.iter().filter_map(|site| Some((site.left_s?, site)));
    if let Some((_, first)) = ends.min_by(|a, b| a.0.total_cmp(&b.0)) {
        let count = sites.len();
        let plural = if count == 1 { "" } else { "s" };
        let (when, site) = (first.in_words(), &first.site);
        let _ = writeln!(text, "certificates  {count} site{plural}, the first {when} ({site})");
    }
    let without: Vec<&str> = sites
        .iter()
        .filter(|site| site.left_s.is_none())
        .map(|site| site.site.as_str())
        .collect();
    if !without.is_empty() {
        let _ = writeln!(text, "certificates  none yet for {}: see the log", without.join(", "));
    }
    text
}

fn head(state: &ServerState) -> String {
    let config = match &state.config {
        Some(path) => format!("config {}", path.display()),
        None => "no config".to_owned(),
    };
    let reloaded = state
        .reloaded_s
        .map_or_else(String::new, |seconds| format!(" (reloaded {} ago)", span(seconds)));
    format!(
        "haulier {}  up {}  {config}{reloaded}  pid {}  {} connections\n",
        state.version,
        span(state.uptime_s),
        state.pid,
        state.connections
    )
}

/// Handlers with a column of their own; all others share one.
const COLUMNS: [(&str, &[&str]); 4] = [
    ("php", &["php"]),
    ("static", &["static"]),
    ("handed", &["handed", "offloaded"]),
    ("images", &["image"]),
];

fn sites(sites: &[SiteState]) -> String {
    let titles = [
        "site", "req/s", "p50", "p95", "5xx/min", "php", "static", "handed", "images", "other",
    ];
    let rows = sites.iter().map(|site| {
        let share = |handlers: &[&str]| handlers.iter().filter_map(|name| site.shares.get(*name)).sum::<f64>();
        let columns = COLUMNS.map(|(_, handlers)| share(handlers));
        let other = (1.0 - columns.iter().sum::<f64>()).max(0.0);
        let percent = |share: f64| {
            if site.shares.is_empty() {
                "–".to_owned()
            } else {
                // A sum of nothing is -0.
                format!("{:.0}%", share.abs() * 100.0)
            }
        };
        let mut row = vec![
            site.name.clone(),
            rate(site.requests_per_second),
            milliseconds(site.p50_ms),
            milliseconds(site.p95_ms),
            site.failed.to_string(),
        ];
        row.extend(columns.map(percent));
        row.push(percent(other));
        row
    });
    table(&titles, &rows.collect::<Vec<_>>())
}

fn pools(pools: &[PoolState]) -> String {
    if pools.is_empty() {
        return String::new();
    }
    let titles = ["pool", "busy", "queue", "restarts", "mem", "longest"];
    let rows = pools.iter().map(|pool| {
        let busy = if pool.live {
            format!("{}/{}", pool.busy, pool.workers)
        } else {
            "down".to_owned()
        };
        vec![
            pool.name.clone(),
            busy,
            pool.queued.to_string(),
            pool.restarts.to_string(),
            memory(pool.memory_bytes),
            pool.running.first().map_or_else(|| "–".to_owned(), running),
        ]
    });
    let mut text = table(&titles, &rows.collect::<Vec<_>>());
    text.extend(pools.iter().filter_map(kept_memory));
    text
}

/// `memory     a worker of php/shop keeps 9 MB, 416 B more with each request`
fn kept_memory(pool: &PoolState) -> Option<String> {
    let kept = size(pool.kept_bytes? as f64);
    let growth = match pool.kept_growth_bytes {
        Some(growth @ 1..) => format!(", {} more with each request", size(growth as f64)),
        Some(_) => ", no more with each request".to_owned(),
        None => String::new(),
    };
    Some(format!("memory     a worker of {} keeps {kept}{growth}\n", pool.name))
}

fn images(sites: &[ImageState]) -> String {
    if sites.is_empty() {
        return String::new();
    }
    let titles = ["images", "cached", "made", "made/s", "busy", "queue", "in memory"];
    let rows = sites.iter().map(|site| {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.0}%", share * 100.0));
        let made = site.cached().map(|_| site.shares.get("made").copied().unwrap_or(0.0));
        vec![
            site.site.clone(),
            percent(site.cached()),
            percent(made),
            rate(site.made_per_second),
            format!("{}/{}", site.busy, site.workers),
            site.queued.to_string(),
            memory(Some(site.memory_bytes)),
        ]
    });
    table(&titles, &rows.collect::<Vec<_>>())
}

fn running(request: &RunningState) -> String {
    // Without its id, which would take too much room: the log has it.
    let label = request.request.split(" (req").next().unwrap_or_default();
    format!("{} {:.1} s", printable(label), request.seconds)
}

fn streaming(scripts: &[StreamingState]) -> String {
    if scripts.is_empty() {
        return String::new();
    }
    let rows = scripts.iter().map(|script| {
        vec![
            format!("{} {}", script.site, printable(&script.script)),
            script.responses.to_string(),
            size(script.bytes as f64),
            printable(script.media_type.as_deref().unwrap_or("–")),
        ]
    });
    let rows = rows.collect::<Vec<_>>();
    let mut text = "\nscripts that still stream large bodies through PHP:\n".to_owned();
    text.push_str(&table(&["script", "bodies", "bytes", "type"], &rows));
    text.push_str("\nsuggested rule:\n\n");
    let mut rules: Vec<&str> = scripts.iter().map(|script| script.rule.as_str()).collect();
    let mut said = HashSet::new();
    rules.retain(|rule| said.insert(*rule));
    for line in rules.join("\n\n").lines() {
        text.push_str(&printable(line));
        text.push('\n');
    }
    text
}

/// Text columns, the first and the last, are aligned to the left, numbers to the right.
fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let ends_in_text = ["longest", "type"].contains(&titles[titles.len() - 1]);
    let mut text = String::new();
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    for row in [&titles].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let is_text = column == 0 || (ends_in_text && column == row.len() - 1);
            let _ = if is_text {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Memory, or a dash where the system does not tell.
fn memory(bytes: Option<u64>) -> String {
    match bytes {
        None | Some(0) => "–".to_owned(),
        Some(bytes) => size(bytes as f64),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::admin::state::Downloads;

    fn state() -> ServerState {
        let shares = [("php", 0.31), ("static", 0.52), ("handed", 0.1), ("offloaded", 0.07)];
        ServerState {
            version: "0.1.0".into(),
            pid: 812,
            uptime_s: 3.0 * 86_400.0 + 4.5 * 3600.0,
            config: Some(PathBuf::from("/etc/haulier/haulier.toml")),
            reloaded_s: None,
            listen: vec!["0.0.0.0:80".into()],
            admin: None,
            connections: 60,
            sites: vec![SiteState {
                name: "shop".into(),
                requests_total: 9,
                requests_per_second: 142.4,
                in_flight: 3,
                p50_ms: Some(21.2),
                p95_ms: Some(1234.0),
                failed: 2,
                shares: shares.map(|(name, share)| (name.to_owned(), share)).into(),
                worker_seconds_saved: 6720.0,
                handoffs_total: BTreeMap::new(),
                errors_total: BTreeMap::new(),
            }],
            pools: vec![PoolState {
                name: "php".into(),
                live: true,
                workers: 8,
                busy: 5,
                queued: 0,
                restarts: 12,
                memory_bytes: Some(412_000_000),
                kept_bytes: None,
                kept_growth_bytes: None,
                running: vec![RunningState {
                    request: "GET /export\u{1b}[2J (req 7e10)".into(),
                    seconds: 2.13,
                    pid: Some(4121),
                }],
            }],
            not_booted: None,
            spool: Spool::default(),
            downloads: Downloads {
                active: 14,
                bytes_per_second: 212e6,
            },
            images: Vec::new(),
            certificates: Vec::new(),
            worker_seconds_saved: 6720.0,
            streaming: Vec::new(),
        }
    }

    #[test]
    fn the_memory_of_a_booted_script_is_told_with_its_growth() {
        let told = |kept_bytes, kept_growth_bytes| {
            let mut state = state();
            state.pools[0].kept_bytes = kept_bytes;
            state.pools[0].kept_growth_bytes = kept_growth_bytes;
            let text = render(&state);
            text.lines().find(|line| line.starts_with("memory")).map(str::to_owned)
        };
        assert_eq!(told(None, None), None);
        let kept = "memory     a worker of php keeps 9 MB";
        assert_eq!(told(Some(9_200_000), None), Some(kept.to_owned()));
        assert_eq!(
            told(Some(9_200_000), Some(416)),
            Some(format!("{kept}, 416 B more with each request"))
        );
        assert_eq!(
            told(Some(9_200_000), Some(-3)),
            Some(format!("{kept}, no more with each request"))
        );
    }

    #[test]
    fn a_state_is_a_page_of_aligned_columns() {
        let expected = "\
haulier 0.1.0  up 3 d 4 h  config /etc/haulier/haulier.toml  pid 812  60 connections
site  req/s    p50    p95  5xx/min  php  static  handed  images  other
shop    142  21 ms  1.2 s        2  31%     52%     17%      0%     0%
pool  busy  queue  restarts     mem  longest
php    5/8      0        12  412 MB  GET /export\u{fffd}[2J 2.1 s
downloads  14 active, 212 MB/s    PHP saved: 1 h 52 min of worker time
";
        assert_eq!(render(&state()), expected);
    }

    #[test]
    fn a_server_that_has_done_nothing_shows_dashes_and_one_without_php_no_pools() {
        let mut state = state();
        state.pools.clear();
        state.config = None;
        let site = &mut state.sites[0];
        (site.shares, site.p50_ms, site.p95_ms, site.requests_per_second) = (BTreeMap::new(), None, None, 0.0);
        let text = render(&state);
        assert!(
            text.contains("shop      0    –    –        2    –       –       –       –      –\n"),
            "{text}"
        );
        assert!(text.contains("no config") && !text.contains("pool"), "{text}");
    }

    #[test]
    fn what_waits_for_clients_is_told_where_there_is_any() {
        let told = |memory_bytes, disk_bytes, full_total| {
            let state = ServerState {
                spool: Spool {
                    memory_bytes,
                    disk_bytes,
                    full_total,
                },
                ..state()
            };
            let text = render(&state);
            text.lines().find(|line| line.starts_with("spool ")).map(str::to_owned)
        };
        assert_eq!(told(0, 0, 0), None);
        assert_eq!(
            told(2_000_000, 340_000_000, 0).as_deref(),
            Some("spool      2 MB in memory, 340 MB on disk")
        );
        let full = told(0, 0, 3).expect("a line");
        assert!(
            full.ends_with("; full for 3 responses, whose scripts waited for their clients"),
            "{full}"
        );
    }

    #[test]
    fn images_are_told_by_where_they_came_from() {
        let mut state = state();
        let shares = [("memory", 0.9), ("disk", 0.05), ("made", 0.03), ("original", 0.02)];
        state.images.push(ImageState {
            site: "img".into(),
            shares: shares.map(|(name, share)| (name.to_owned(), share)).into(),
            made_per_second: 12.0,
            made_total: 1000,
            uploads_total: 7,
            unkept_total: 0,
            cache_failures_total: 0,
            memory_bytes: 80_000_000,
            busy: 1,
            workers: 2,
            queued: 0,
            crashes: 0,
            steps_ms: BTreeMap::new(),
        });
        let expected = "\
images  cached  made  made/s  busy  queue  in memory
img        95%    3%      12   1/2      0      80 MB
";
        assert!(render(&state).contains(expected), "{}", render(&state));
        state.images[0].shares.clear();
        assert!(
            render(&state).contains("img          –     –      12   1/2"),
            "{}",
            render(&state)
        );
    }

    #[test]
    fn scripts_that_stream_stand_with_their_rule_once_for_a_site() {
        let mut state = state();
        for (script, responses) in [("/export.php", 3), ("/other.php", 1)] {
            state.streaming.push(StreamingState {
                site: "shop".into(),
                script: script.into(),
                media_type: Some("text/csv".into()),
                responses,
                bytes: 9_000_000,
                rule: "[site.shop.offload]\ntypes = [\"text/csv\"]".into(),
            });
        }
        let text = render(&state);
        let expected = "\
scripts that still stream large bodies through PHP:
script            bodies  bytes  type
shop /export.php       3   9 MB  text/csv
shop /other.php        1   9 MB  text/csv

suggested rule:

[site.shop.offload]
types = [\"text/csv\"]
";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn certificates_are_told_by_the_first_that_ends_and_by_those_that_are_missing() {
        let mut state = state();
        let site = |name: &str, left_s| CertificateState {
            site: name.into(),
            left_s,
        };
        let last = |state: &ServerState| render(state).lines().last().map(str::to_owned);
        state.certificates = vec![site("shop", Some(61.5 * 86_400.0)), site("blog", Some(80.0 * 86_400.0))];
        assert_eq!(
            last(&state).as_deref(),
            Some("certificates  2 sites, the first ends in 61 days (shop)")
        );
        state.certificates = vec![site("shop", Some(-7200.0))];
        assert_eq!(
            last(&state).as_deref(),
            Some("certificates  1 site, the first ended 2 hours ago: clients refuse it (shop)")
        );
        state.certificates = vec![site("shop", None)];
        assert_eq!(
            last(&state).as_deref(),
            Some("certificates  none yet for shop: see the log")
        );
    }

    #[test]
    fn a_pool_without_php_is_down() {
        let mut state = state();
        state.pools[0].live = false;
        assert!(render(&state).contains("php   down"), "{}", render(&state));
    }
}
