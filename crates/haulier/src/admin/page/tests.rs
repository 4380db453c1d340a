use std::time::{Duration, Instant, UNIX_EPOCH};

use haulier_php::{
    ExternalServer, FpmStatus, KeptMemory, PoolCounts, PoolStatus, ServerStatus, TracedRequest, UpstreamLoad,
    WorkerActivity, WorkerStatus,
};
use haulier_server::metrics::{DurationHistogram, FailedRequest, RequestSummary, SlowRequest, Totals};

use super::super::history::{PoolSample, Sample};
use super::super::state::{CertificateState, Downloads, ImageState, ServerState, SiteState, Spool, StreamingState};
use super::super::view::{CodingView, PoolView, SiteFacts, TransferView};
use super::*;

/// A name by which a client or a script could try to inject HTML.
const EVIL: &str = "</code></title><script>alert(1)</script><img src=x onerror='alert(2)'>\"\u{1b}[2J";

/// A server that has just started and has one site of files.
fn fresh() -> View {
    let state = ServerState {
        version: "0.1.0".into(),
        pid: 812,
        uptime_s: 1.0,
        config: None,
        reloaded_s: None,
        listen: vec!["127.0.0.1:8080".into()],
        admin: None,
        connections: 0,
        sites: vec![site("shop")],
        pools: Vec::new(),
        not_booted: None,
        spool: Spool::default(),
        downloads: Downloads {
            active: 0,
            bytes_per_second: 0.0,
        },
        images: Vec::new(),
        certificates: Vec::new(),
        worker_seconds_saved: 0.0,
        streaming: Vec::new(),
    };
    View {
        at: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        now: Instant::now() + Duration::from_secs(90_000),
        machine: "web1".into(),
        state,
        sites: Vec::new(),
        pools: Vec::new(),
        handlers: Totals::default().none.handlers().map(|(name, _)| name).collect(),
        range: Range::QuarterHour,
        samples: Vec::new(),
        transfers: Vec::new(),
        failures: Vec::new(),
        slowest: Vec::new(),
        failed: Vec::new(),
        codings: Vec::new(),
        saved_day: Duration::ZERO,
    }
}

fn site(name: &str) -> SiteState {
    SiteState {
        name: name.into(),
        requests_total: 0,
        requests_per_second: 0.0,
        in_flight: 0,
        p50_ms: None,
        p95_ms: None,
        failed: 0,
        shares: std::collections::BTreeMap::new(),
        worker_seconds_saved: 0.0,
        handoffs_total: std::collections::BTreeMap::new(),
        errors_total: std::collections::BTreeMap::new(),
    }
}

fn images(site: &str, made_per_second: f64) -> ImageState {
    let shares = [("memory", 0.9), ("disk", 0.06), ("made", 0.04)];
    let steps = [("fetch", 0.2), ("decode", 6.04), ("resize", 1.0), ("encode", 0.5)];
    ImageState {
        site: site.into(),
        shares: shares.map(|(name, share)| (name.to_owned(), share)).into(),
        made_per_second,
        made_total: 1000,
        uploads_total: 7,
        unkept_total: 0,
        cache_failures_total: 0,
        memory_bytes: 80_000_000,
        busy: 1,
        workers: 2,
        queued: 3,
        crashes: 0,
        steps_ms: steps.map(|(name, time)| (name.to_owned(), time)).into(),
    }
}

fn pool(name: &str, workers: usize, busy: usize, queued: usize, text: &str) -> PoolView {
    let worker = |number: usize| WorkerStatus {
        work: if number < busy {
            WorkerActivity::Long(format!("GET /export?{text} (req 7e10)"), Duration::from_millis(2130))
        } else {
            WorkerActivity::Idle
        },
        pid: Some(4000 + number as u32),
        served: Some(1234),
        memory: Some(24_000_000),
    };
    PoolView {
        name: name.into(),
        is_own: true,
        script: None,
        status: PoolStatus {
            load: UpstreamLoad {
                capacity: workers,
                busy,
                queued,
                longest_wait: Duration::from_millis(3200) * u32::from(queued > 0),
                is_live: true,
                ..UpstreamLoad::default()
            },
            counts: PoolCounts {
                crashes: 3,
                served: 100_000,
                ..PoolCounts::default()
            },
            ..PoolStatus::default()
        },
        memory: Some(412_000_000),
        workers: (0..workers).map(worker).collect(),
        traced: Vec::new(),
        servers: Vec::new(),
    }
}

/// Numbers that look like a day's work and are the same in every run.
fn busy_samples(view: &View, count: usize, pools: &[&str]) -> Vec<Sample> {
    let wave = |number: usize, step: usize| ((number * step * 7919) % 997) as u64;
    let sample = |number: usize| {
        let mut times = DurationHistogram::default();
        for class in 0..times.classes.len() {
            times.classes[class] = wave(number, class + 1);
        }
        let pools = pools.iter().map(|name| PoolSample {
            name: (*name).into(),
            workers: 8,
            busy: wave(number, 3) as f64 / 125.0,
            queued: wave(number, 5) as usize / 50,
            crashes: u64::from(number.is_multiple_of(60)),
        });
        Sample {
            end: view.now - Duration::from_secs(5 * (count - number) as u64),
            seconds: 5.0,
            requests: (0..view.handlers.len())
                .map(|handler| wave(number, handler + 2))
                .collect(),
            times,
            bytes: 1_000_000,
            saved: Duration::from_secs(2),
            pools: pools.collect(),
        }
    };
    (0..count).map(sample).collect()
}

/// A server with every kind of problem, and the most that the page can show. `text` is in every value from outside.
fn crowded(text: &str) -> View {
    let mut view = fresh();
    let noted = |number: u64| RequestSummary {
        at: view.at - Duration::from_secs(number * 37),
        site: Some("shop".into()),
        request: format!("GET /products/{number}/{text}{}", "x".repeat(300)),
        id: format!("{number:016x}"),
        client: Some([203, 0, 113, 7].into()),
        status: 500,
    };
    view.failures = (0..50)
        .map(|number| FailedRequest {
            request: noted(number),
            reason: "php_error",
            message: Some(format!("PHP Fatal error {number}: {text} {}", "y".repeat(300))),
        })
        .collect();
    view.slowest = (0..20)
        .map(|number| SlowRequest {
            request: noted(number),
            queued: Duration::from_millis(800),
            php: Duration::from_millis(4200 - 100 * number),
            took: Duration::from_millis(5500),
        })
        .collect();
    view.transfers = (0..40)
        .map(|number: u32| TransferView {
            site: Some("shop".into()),
            target: format!("/files/{number}/{text}"),
            client: [203, 0, 113, 9].into(),
            sent: 40_000_000,
            length: number.is_multiple_of(2).then_some(100_000_000),
            bytes_per_second: 1.5e6,
            running: Duration::from_secs(61),
        })
        .collect();
    view.state.sites = (0..60).map(|number| site(&format!("site-{number}"))).collect();
    view.state.sites[0].failed = 12;
    view.sites = (0..60)
        .map(|number| SiteFacts {
            name: format!("site-{number}"),
            hosts: vec!["*".into(), format!("{number}.example.com")],
            what: "Symfony in /srv/shop/current/public".into(),
        })
        .collect();
    view.failed = vec![("pool_full", 9), ("php_crashed", 3)];
    view.state.streaming = vec![StreamingState {
        site: "shop".into(),
        script: format!("/export.php{text}"),
        media_type: Some("text/csv".into()),
        responses: 3,
        bytes: 9_000_000,
        rule: "[site.shop.offload]\ntypes = [\"text/csv\"]".into(),
    }];
    view.state.images = (0..60)
        .map(|number| images(&format!("{text}-{number}"), f64::from(number)))
        .collect();
    view.codings = vec![CodingView {
        name: "zstd",
        taken: 1_000_000,
        made: 250_000,
        spent: Duration::from_millis(120),
    }];
    view.pools = vec![pool("php", 8, 8, 17, text), pool("api", 64, 3, 0, text)];
    view.pools[1].servers = vec![ExternalServer {
        status: ServerStatus {
            name: "10.0.0.11:9000".into(),
            is_up: false,
            connections: 3,
            busy: 3,
            connect_time: Some(Duration::from_micros(740)),
        },
        told: Some(FpmStatus {
            active: 37,
            total: 40,
            queued: 19,
        }),
        is_asked: true,
    }];
    view.samples = busy_samples(&view, 120, &["php", "api"]);
    view
}

/// Tags without an end tag: HTML has none for them, or the next tag implies it.
const OPEN: [&str; 9] = ["!doctype", "meta", "link", "thead", "tbody", "tr", "th", "td", "br"];

/// Every tag is closed in order. Script and style hold no tags.
fn check_tags(page: &str) {
    let body = page.split("<script>").next().expect("a split has a first part");
    let mut open = Vec::new();
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag
            .split([' ', '/'])
            .find(|part| !part.is_empty())
            .expect("a tag has a name");
        match (tag.starts_with('/'), tag.ends_with('/') || OPEN.contains(&name)) {
            (true, _) => assert_eq!(open.pop(), Some(name), "at {tag}"),
            (false, true) => {}
            (false, false) => open.push(name),
        }
    }
    assert_eq!(open, ["html", "body"]);
}

#[test]
fn a_server_with_everything_to_show_stays_below_64_kb_and_loads_nothing() {
    for view in [fresh(), crowded("customer=4711&format=csv")] {
        let page = render(&view);
        check_tags(&page);
        assert!(page.len() < 64_000, "{} bytes", page.len());
        for load in ["src=\"", "url(", "@import", "http://", "https://"] {
            let allowed = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!allowed.contains(load), "{load}");
        }
        for odd in ["NaN", "inf ", "inf<", "style=\""] {
            assert!(!page.contains(odd), "{odd}");
        }
    }
}

#[test]
fn the_order_is_that_of_the_questions_at_night() {
    let page = render(&crowded(EVIL));
    let sections = ["facts", "php", "traffic", "downloads", "requests", "content", "sites"];
    let places = sections.map(|id| {
        page.find(&format!("id=\"{id}\" data-live"))
            .unwrap_or_else(|| panic!("no {id}"))
    });
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn no_name_from_outside_becomes_markup() {
    let page = render(&crowded(EVIL));
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    assert!(!page.contains("<img") && !page.contains("onerror='"));
    assert!(!page.contains('\u{1b}'));
    assert!(page.contains("&lt;script&gt;"), "it is shown, though");
}

#[test]
fn what_is_wrong_is_said_in_words_and_the_worst_comes_first() {
    let view = crowded(EVIL);
    let page = render(&view);
    assert!(
        page.contains("<h1 class=\"bad\">php: 8 of 8 busy, 17 waiting for 3.2 s</h1>"),
        "{}",
        &page[..4000]
    );
    assert!(page.contains("<li>12 requests failed in the last minute: pool_full 9, php_crashed 3</li>"));
    assert!(page.contains("<li>api: 10.0.0.11:9000 does not answer</li>"));
    assert!(page.contains("<title>php: 8 of 8 busy"));

    let well = render(&fresh());
    assert!(well.contains("<h1 class=\"good\">All well</h1>") && well.contains("<title>All well · haulier</title>"));
    assert!(well.contains("No request has failed.") && well.contains("no request yet"));
    assert!(
        !well.contains("id=\"php\"") && !well.contains("id=\"content\""),
        "nothing to say, no section"
    );

    let mut dead = fresh();
    dead.pools = vec![pool("php", 4, 0, 0, EVIL)];
    dead.pools[0].status.load.is_live = false;
    assert!(render(&dead).contains("<h1 class=\"bad\">php: no PHP process answers</h1>"));
    let mut brief = fresh();
    brief.pools = vec![pool("php", 4, 4, 1, EVIL)];
    brief.pools[0].status.load.longest_wait = Duration::from_millis(20);
    assert!(render(&brief).contains("<h1 class=\"warn\">php: 4 of 4 busy, 1 waiting for 0.0 s</h1>"));
}

#[test]
fn certificates_are_shown_and_those_that_need_somebody_are_spoken_of() {
    let certificate = |site: &str, days: Option<f64>| CertificateState {
        site: site.into(),
        left_s: days.map(|days| days * 86_400.0),
    };
    let mut view = fresh();
    assert!(!render(&view).contains("Certificate"));
    view.state.certificates = vec![certificate("shop", Some(61.5)), certificate("blog", Some(30.5))];
    let page = render(&view);
    check_tags(&page);
    assert!(page.contains("<h1 class=\"good\">All well</h1>"));
    let places = ["ends in 30 days", "ends in 61 days"].map(|words| page.find(words).expect("it is shown"));
    assert!(places.is_sorted(), "the first to end comes first");
    view.state.certificates.push(certificate("wiki", Some(5.5)));
    view.state.certificates.push(certificate(EVIL, None));
    let page = render(&view);
    assert!(
        page.contains("<h1 class=\"warn\">wiki: certificate ends in 5 days</h1>"),
        "{}",
        &page[..4000]
    );
    assert!(page.contains("certificate none yet: see the log</li>"));
    assert!(page.matches("<script>").count() == 1 && !page.contains("<img"));
    view.state.certificates.push(certificate("api", Some(-2.5)));
    assert!(render(&view).contains("<h1 class=\"bad\">api: certificate ended 2 days ago: clients refuse it</h1>"));
}

#[test]
fn images_are_shown_with_where_they_came_from_and_the_busiest_site_first() {
    let mut view = fresh();
    view.state.images = vec![images("quiet", 0.0), images("shop", 12.0)];
    let page = render(&view);
    check_tags(&page);
    assert!(
        page.contains("<h2>Images</h2>") && page.contains("memory 90%, disk 6%, made 4%"),
        "{page}"
    );
    assert!(page.contains("fetch 0.2 ms, decode 6.0 ms, resize 1.0 ms, encode 0.5 ms"));
    let places = ["<th>shop", "<th>quiet"].map(|cell| page.find(cell).expect("it is shown"));
    assert!(places.is_sorted(), "{places:?}");
    assert!(render(&crowded(EVIL)).contains("<h2>Compression and images</h2>"));
}

#[test]
fn a_worker_shows_its_request_without_the_id() {
    let page = render(&crowded(EVIL));
    assert!(page.contains("<li class=\"long\"><strong>2.1 s</strong><code>GET /export?"));
    let (_, workers) = page.split_once("<ul class=\"workers\"").expect("there are workers");
    assert!(!workers.contains("req 7e10"));
    assert!(page.contains("<small>pid 4000 · 24 MB · 1\u{202f}234 requests</small>"));
    assert!(page.contains("and 44 more"), "of 64 workers 20 are shown");
}

#[test]
fn a_worker_script_that_grows_is_named() {
    let mut view = fresh();
    view.pools = vec![pool("php/shop", 4, 0, 0, EVIL)];
    let pool = &mut view.pools[0];
    pool.script = Some("/srv/shop/<index>.php".into());
    pool.status.kept = KeptMemory {
        bytes: Some(9_200_000),
        growth: Some(100),
    };
    let page = render(&view);
    assert!(
        page.contains("All well") && page.contains("a worker keeps 9 MB, 100 B more with each request"),
        "{page}"
    );
    view.pools[0].status.kept.growth = Some(4200);
    let page = render(&view);
    let named = "php/shop: /srv/shop/&lt;index&gt;.php keeps 4 KB more with each request";
    assert!(page.contains(&format!("<h1 class=\"warn\">{named}</h1>")), "{page}");
}

#[test]
fn a_slow_request_shows_the_calls_of_its_script() {
    let mut view = crowded(EVIL);
    let id = view.slowest[1].request.id.clone();
    assert!(!render(&view).contains("PHP was at"));
    let trace = "sleep() /srv/shop/<pay>.php:4\n{main} /srv/shop/index.php:17\n"
        .parse()
        .expect("calls");
    view.pools[0].traced.push(TracedRequest {
        label: format!("GET /pay (req {id})"),
        trace,
    });
    let page = render(&view);
    assert_eq!(
        page.matches("PHP was at <code>sleep() /srv/shop/&lt;pay&gt;.php:4</code>")
            .count(),
        2,
        "where it failed, and where it was slow"
    );
    assert!(page.contains("<li><code>{main} /srv/shop/index.php:17</code></li></ol>"));
}

#[test]
fn the_policy_names_the_very_style_and_script_of_the_page() {
    let page = render(&fresh());
    for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
        let (_, rest) = page.split_once(&format!("<{tag}>")).expect("there is one");
        let (text, _) = rest.split_once(&format!("</{tag}>")).expect("it ends");
        let hash = BASE64_STANDARD.encode(Sha256::digest(text));
        assert!(policy().contains(&format!("{directive} 'sha256-{hash}'")), "{tag}");
    }
    assert!(policy().starts_with("default-src 'none'; ") && !policy().contains("unsafe"));
}

#[test]
fn the_range_is_said_and_changes_the_axis() {
    let mut view = crowded(EVIL);
    assert!(render(&view).contains("<a href=\"/\" aria-current=\"true\">15 minutes</a>"));
    view.range = Range::Day;
    let page = render(&view);
    assert!(page.contains("<a href=\"/?range=day\" aria-current=\"true\">24 hours</a>"));
    assert!(page.contains(">−24 h</text>") && !page.contains("−15 min"));
}

#[test]
fn the_same_failure_again_and_again_is_one_row() {
    let mut view = crowded("");
    let first = view.failures[0].clone();
    view.failures = vec![
        first.clone(),
        first.clone(),
        first.clone(),
        view.failures[1].clone(),
        first,
    ];
    let page = render(&view);
    assert_eq!(page.matches("<b>php_error</b>").count(), 3);
    assert!(
        page.contains("<b>php_error</b> <small>500 · 08:00:00 · 3 times</small>"),
        "{page}"
    );
}
