//! Real worker processes: sandboxed, limited, killed and replaced.
//!
//! Without the usual harness: the program starts itself as a worker, and counts its own children.

#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_image::{
    Excess, Format, FormatChoice, ImageError, Limits, OriginalSource, Size, Transform, Workers, WorkersSettings,
    render, worker,
};
use support::bombs;
use support::photo::Photo;

/// Set for the process that will be killed.
const VICTIM: &str = "HAULIER_TEST_VICTIM";

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == worker::SUBCOMMAND)
    {
        return worker::main();
    }
    if std::env::var_os(VICTIM).is_some() {
        be_a_victim();
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 12] = [
        (
            "a_worker_makes_the_same_bytes_as_we_would",
            a_worker_makes_the_same_bytes_as_we_would,
        ),
        ("a_worker_is_used_again", a_worker_is_used_again),
        ("a_worker_says_what_an_original_is", a_worker_says_what_an_original_is),
        ("errors_come_back_as_they_are", errors_come_back_as_they_are),
        ("a_worker_has_no_rights", a_worker_has_no_rights),
        (
            "an_image_whose_worker_is_killed_is_tried_once_more",
            an_image_whose_worker_is_killed_is_tried_once_more,
        ),
        ("the_deadline_kills", the_deadline_kills),
        (
            "a_dropped_request_takes_its_worker_along",
            a_dropped_request_takes_its_worker_along,
        ),
        ("a_full_queue_is_busy_at_once", a_full_queue_is_busy_at_once),
        ("several_runtimes_share_the_workers", several_runtimes_share_the_workers),
        ("eight_bombs_at_once_stay_small", eight_bombs_at_once_stay_small),
        ("workers_end_with_us", workers_end_with_us),
    ];
    let wanted = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let mut run = 0;
    for (name, test) in tests {
        if wanted.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            println!("workers: {name}");
            test();
            run += 1;
        }
    }
    println!("workers: {run} tests passed");
    ExitCode::SUCCESS
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn pool(change: impl FnOnce(&mut WorkersSettings)) -> Arc<Workers> {
    let mut settings = WorkersSettings {
        workers: 2,
        deadline: Duration::from_secs(300),
        queue_timeout: Duration::from_secs(300),
        ..WorkersSettings::default()
    };
    change(&mut settings);
    Workers::new(settings).expect("a pool")
}

fn to(width: u32, format: Format) -> Transform {
    Transform {
        size: Size {
            width,
            ..Size::default()
        },
        format: FormatChoice::As(format),
        ..Transform::default()
    }
}

fn photo(width: u32, height: u32) -> Bytes {
    let photo = Photo::new(width, height);
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    let colour = jpeg_encoder::ColorType::Rgb;
    encoder
        .encode(&photo.data, width as u16, height as u16, colour)
        .expect("it is written");
    bytes.into()
}

/// An image that keeps a worker busy for a while; made once, because that takes a while too.
fn large() -> Bytes {
    static LARGE: OnceLock<Bytes> = OnceLock::new();
    LARGE.get_or_init(|| photo(2000, 1500)).clone()
}

async fn make(pool: &Workers, bytes: &Bytes, transform: &Transform) -> Result<Bytes, ImageError> {
    let source = OriginalSource::Bytes(bytes.clone());
    Ok(pool.render(source, transform, &Limits::default()).await?.bytes)
}

/// Our children that are workers, by pid.
fn workers_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
        let (state, its_parent) = (fields.next(), fields.next());
        if state != Some("Z") && its_parent == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    found
}

fn our_workers() -> Vec<u32> {
    workers_of(std::process::id())
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
}

fn a_worker_makes_the_same_bytes_as_we_would() {
    let pool = pool(|_| ());
    let bytes = photo(640, 480);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&bytes).expect("it is written");
    runtime().block_on(async {
        for format in [Format::Jpeg, Format::Png, Format::WebP, Format::Gif] {
            let transform = to(100, format);
            let expected = render(&bytes, &transform, &Limits::default()).expect("it is made");
            let file = OwnedFd::from(file.try_clone().expect("another descriptor"));
            for source in [OriginalSource::Bytes(bytes.clone()), OriginalSource::File(file)] {
                let made = pool
                    .render(source, &transform, &Limits::default())
                    .await
                    .expect("it is made");
                assert_eq!(made.bytes, expected.bytes, "{format}");
                assert_eq!((made.width, made.height, made.format), (100, 75, format));
            }
        }
    });
    assert_eq!(pool.status().made, 8);
}

fn a_worker_is_used_again() {
    let pool = pool(|_| ());
    let bytes = photo(200, 100);
    runtime().block_on(async {
        make(&pool, &bytes, &to(50, Format::Jpeg)).await.expect("it is made");
        let first = our_workers();
        for _ in 0..20 {
            make(&pool, &bytes, &to(50, Format::Jpeg)).await.expect("it is made");
        }
        assert_eq!(our_workers(), first);
        assert_eq!((first.len(), pool.status().idle, pool.status().busy), (1, 1, 0));
    });
    drop(pool);
    wait_until("the end of an idle worker", || our_workers().is_empty());
}

fn a_worker_says_what_an_original_is() {
    let pool = pool(|_| ());
    runtime().block_on(async {
        let source = OriginalSource::Bytes(photo(200, 100));
        let original = pool.probe(source, &Limits::default()).await.expect("it is read");
        assert_eq!(
            (original.format, original.width, original.height),
            (Format::Jpeg, 200, 100)
        );
        assert!(
            original.quality.is_some_and(|quality| quality.abs_diff(90) <= 1),
            "{original:?}"
        );
    });
}

fn errors_come_back_as_they_are() {
    let pool = pool(|_| ());
    runtime().block_on(async {
        let svg = Bytes::from_static(b"<svg xmlns='http://www.w3.org/2000/svg'/>");
        let error = make(&pool, &svg, &to(10, Format::Jpeg)).await.expect_err("no image");
        assert!(matches!(error, ImageError::Unknown), "{error}");
        let broken = Bytes::from_static(b"\xff\xd8\xff\xe0");
        let error = make(&pool, &broken, &to(10, Format::Jpeg)).await.expect_err("no image");
        assert!(matches!(error, ImageError::Malformed(_)), "{error}");
        let error = make(&pool, &photo(20, 10), &to(5000, Format::Jpeg))
            .await
            .expect_err("too large");
        assert!(
            matches!(
                error,
                ImageError::TooLarge {
                    what: Excess::Output,
                    limit: 4096,
                    ..
                }
            ),
            "{error}"
        );
        let empty = make(&pool, &Bytes::new(), &to(10, Format::Jpeg))
            .await
            .expect_err("no image");
        assert!(matches!(empty, ImageError::Unknown), "{empty}");
        assert!([error, empty].iter().all(ImageError::is_of_image));
    });
    assert_eq!((pool.status().crashed, pool.status().idle), (0, 1));
}

fn a_worker_has_no_rights() {
    let pool = pool(|_| ());
    runtime()
        .block_on(make(&pool, &photo(20, 10), &to(10, Format::Jpeg)))
        .expect("it is made");
    let [pid] = our_workers()[..] else { panic!("one worker") };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a field");
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"], "a filter is in force");
    if rustix::process::geteuid().is_root() {
        assert_eq!(field("Uid:"), ["65534"; 4]);
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert!(field("Groups:").is_empty());
    }
    let score = |of: &str| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{of}/oom_score_adj")).expect("it is alive");
        text.trim().parse().expect("a number")
    };
    assert_eq!(score(&pid.to_string()), (score("self") + 500).min(1000));
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it is alive");
    for limit in [
        "Max open files            16",
        "Max core file size        0",
        "Max cpu time              600",
    ] {
        assert!(limits.contains(limit), "{limit} in\n{limits}");
    }
}

fn an_image_whose_worker_is_killed_is_tried_once_more() {
    let pool = pool(|settings| settings.workers = 1);
    let (small, large) = (photo(200, 100), large());
    // The rendering takes seconds.
    let long = Transform {
        blur: 2000,
        ..to(4000, Format::Png)
    };
    // A new worker, which works.
    let next = async |before: u32| loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        match our_workers()[..] {
            [pid] if pid != before => return pid,
            _ => {}
        }
    };
    runtime().block_on(async {
        make(&pool, &small, &to(10, Format::Jpeg)).await.expect("it is made");
        let [pid] = our_workers()[..] else { panic!("one worker") };
        let slow = Transform {
            blur: 100,
            ..to(1500, Format::Png)
        };
        let (made, ()) = tokio::join!(make(&pool, &large, &slow), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            kill(pid);
        });
        made.expect("another worker made it");
        let [pid] = our_workers()[..] else { panic!("one worker") };
        let (made, ()) = tokio::join!(make(&pool, &large, &long), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            kill(pid);
            kill(next(pid).await);
        });
        let error = made.expect_err("both of its workers were killed");
        assert!(
            matches!(&error, ImageError::Killed(why) if why == "signal 9"),
            "{error}"
        );
        assert!(!error.is_of_image(), "it is not remembered");
        make(&pool, &small, &to(10, Format::Jpeg))
            .await
            .expect("the next one has another worker");
        // The end of an idle worker is noticed too.
        kill(our_workers()[0]);
        wait_until("the end of a killed worker", || our_workers().is_empty());
        let after = make(&pool, &small, &to(10, Format::Jpeg)).await;
        after.expect("a worker that died idle costs nothing");
    });
    assert_eq!(pool.status().crashed, 0, "no image ended one");
}

fn the_deadline_kills() {
    let pool = pool(|settings| {
        settings.workers = 1;
        settings.deadline = Duration::from_millis(30);
    });
    runtime().block_on(async {
        let transform = Transform {
            blur: 2000,
            ..to(4000, Format::Png)
        };
        let error = make(&pool, &large(), &transform).await.expect_err("it takes seconds");
        assert!(matches!(error, ImageError::Deadline { .. }), "{error}");
    });
    wait_until("the end of a late worker", || our_workers().is_empty());
    assert_eq!((pool.status().crashed, pool.status().busy), (1, 0));
}

fn a_dropped_request_takes_its_worker_along() {
    let pool = pool(|settings| settings.workers = 1);
    runtime().block_on(async {
        let transform = Transform {
            blur: 2000,
            ..to(4000, Format::Png)
        };
        let bytes = large();
        let request = make(&pool, &bytes, &transform);
        let result = tokio::time::timeout(Duration::from_millis(50), request).await;
        assert!(result.is_err(), "it takes seconds");
        assert_eq!(pool.status().busy, 0);
        make(&pool, &photo(20, 10), &to(10, Format::Jpeg))
            .await
            .expect("the place is free");
    });
    wait_until("the end of the abandoned worker", || our_workers().len() == 1);
}

fn a_full_queue_is_busy_at_once() {
    let pool = pool(|settings| {
        settings.workers = 1;
        settings.queue = 2;
    });
    runtime().block_on(async {
        let (bytes, transform) = (photo(1500, 1000), to(1000, Format::Png));
        let requests = (0..5).map(|_| make(&pool, &bytes, &transform));
        let mut set = Vec::new();
        for request in requests {
            set.push(Box::pin(request));
        }
        let results = all(set).await;
        let busy = results
            .iter()
            .filter(|result| matches!(result, Err(ImageError::Busy { .. })))
            .count();
        let made = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!((made, busy), (3, 2));
        assert!(
            results
                .iter()
                .filter_map(|result| result.as_ref().err())
                .all(|error| !error.is_of_image())
        );
    });
    assert_eq!(pool.status().waiting, 0);
}

/// Drives several futures on one thread.
async fn all<T>(mut futures: Vec<std::pin::Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(done) = future.as_mut().poll(context)
            {
                *result = Some(done);
            }
        }
        if results.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

fn several_runtimes_share_the_workers() {
    let pool = pool(|_| ());
    let bytes = photo(300, 200);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                runtime().block_on(async {
                    for width in 10..30 {
                        make(&pool, &bytes, &to(width, Format::Jpeg)).await.expect("it is made");
                    }
                });
            });
        }
    });
    assert_eq!(pool.status().made, 80);
    assert!(our_workers().len() <= 2);
}

fn eight_bombs_at_once_stay_small() {
    let pool = pool(|_| ());
    // Images that are refused by their headers, and two at the limits.
    let refused = [
        bombs::jpeg(65_500, 65_500),
        bombs::lying_png(100_000, 100_000),
        bombs::lying_png(16_000, 16_000),
        bombs::webp(),
        bombs::jpeg(16_000, 2_500),
    ];
    let allowed = [
        bombs::png(8_000, 5_000),
        bombs::png(5_000, 8_000),
        bombs::text_png(64 << 20),
    ];
    let watcher = std::thread::spawn({
        let pool = Arc::downgrade(&pool);
        move || {
            let mut most = 0;
            while pool.strong_count() > 0 {
                most = most.max(our_workers().into_iter().map(resident).sum::<u64>());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        }
    });
    runtime().block_on(async {
        let transform = to(100, Format::Jpeg);
        let sources: Vec<Bytes> = refused.iter().chain(&allowed).cloned().map(Bytes::from).collect();
        let requests = sources
            .iter()
            .map(|bytes| Box::pin(make(&pool, bytes, &transform)))
            .collect();
        let results = all(requests).await;
        for (index, result) in results.iter().enumerate() {
            match result {
                Ok(_) => assert!(index >= refused.len(), "bomb {index} went through"),
                Err(error) => {
                    assert!(index < refused.len(), "image {index}: {error}");
                    assert!(
                        matches!(error, ImageError::TooLarge { .. } | ImageError::Malformed(_)),
                        "bomb {index}: {error}"
                    );
                }
            }
        }
    });
    assert_eq!(pool.status().crashed, 0);
    drop(pool);
    let most = watcher.join().expect("the watcher ends");
    assert!(most <= 512 << 20, "{} MiB", most >> 20);
    println!("workers: eight bombs took {} MiB at most", most >> 20);
}

/// Resident memory of a process, bytes.
fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0_u64);
    pages * rustix::param::page_size() as u64
}

/// Starts a busy and an idle worker, reports that, and waits to be killed.
fn be_a_victim() {
    let pool = pool(|_| ());
    runtime().block_on(async {
        let (small, large, transform) = (photo(20, 10), large(), to(4000, Format::Png));
        let large_one = make(&pool, &large, &transform);
        let report = async {
            make(&pool, &small, &to(10, Format::Jpeg)).await.expect("it is made");
            println!("ready");
            std::io::stdout().flush().expect("the test reads");
            std::thread::sleep(Duration::from_secs(60));
        };
        let _ = tokio::join!(large_one, report);
    });
}

fn workers_end_with_us() {
    use std::io::BufRead;
    let ourselves = std::env::current_exe().expect("our own program");
    let mut victim = Command::new(ourselves)
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let output = victim.stdout.take().expect("it is piped");
    std::io::BufReader::new(output)
        .read_line(&mut line)
        .expect("it says something");
    assert_eq!(line, "ready\n");
    let workers = workers_of(victim.id());
    assert_eq!(workers.len(), 2);
    victim.kill().expect("it is ours");
    victim.wait().expect("it ends");
    let gone = |pid: &u32| File::open(format!("/proc/{pid}/statm")).is_err() || resident(*pid) == 0;
    wait_until("the end of the workers", || workers.iter().all(gone));
}
