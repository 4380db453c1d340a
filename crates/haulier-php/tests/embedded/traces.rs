//! The calls of a slow script: in the log of slow requests, and with the error of a request that was ended.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haulier_http::Reason;
use haulier_php::{Pool, Slow};
use serde_json::Value;

use crate::support::{Call, PATIENCE, Scripts, embedded, own_pool};

/// Its lines count in the tests.
const SHOP: &str = r#"<?php
class Shop {
    static function charge() {
        return sleep(1);
    }
    static function compute($depth) {
        if ($depth > 0) {
            self::compute($depth - 1);
        }
        for (;;);
    }
}
function respond() {
    set_time_limit(0);
    echo isset($_GET['charge']) ? Shop::charge() : Shop::compute(50);
}
"#;

/// A pool that logs slow requests; with a loop, its workers have booted the script.
fn shop(scripts: &Scripts, end: &str, timeout: Duration) -> (Arc<Pool>, PathBuf) {
    let log = scripts.path("slow.log");
    scripts.add("shop.php", &format!("{SHOP}{end}"));
    let pool = own_pool(scripts, 1, |settings, own| {
        settings.timeout = timeout;
        settings.slow = Some(Slow {
            after: Duration::from_millis(300),
            log: Some(log.clone()),
        });
        let is_booted = end.contains("frankenphp_handle_request");
        own.embedded = Some(embedded(is_booted.then(|| scripts.path("shop.php"))));
    });
    (pool, log)
}

fn call(scripts: &Scripts, query: &str) -> Call {
    Call {
        script: scripts.path("shop.php"),
        ..Call::get(scripts, query)
    }
}

const ENDS: [(&str, usize); 2] = [
    ("while (frankenphp_handle_request('respond')) {}", 2),
    ("respond();", 1),
];

#[tokio::test]
async fn the_slow_log_tells_the_calls_of_a_script_that_waits() {
    for (end, frames_below) in ENDS {
        let scripts = Scripts::new();
        let (pool, log) = shop(&scripts, end, PATIENCE);
        // What sleep() returns is the time that a signal has taken from it.
        assert_eq!(call(&scripts, "charge").text(&pool).await, "0", "{end}");
        let text = fs::read_to_string(log).expect("a slow request");
        let line: Value = serde_json::from_str(text.trim_end()).expect("one JSON object");
        let path = scripts.path("shop.php");
        let at = |call: &str, line: u32| format!("{call} {}:{line}", path.display());
        let trace: Vec<&str> = line["trace"]
            .as_array()
            .unwrap_or_else(|| panic!("no trace: {text}"))
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(
            trace[..3],
            [at("sleep()", 4), at("Shop::charge()", 4), at("respond()", 15)]
        );
        assert_eq!(trace.len(), 3 + frames_below, "{trace:?}");
        assert_eq!(trace.last(), Some(&&*at("{main}", 17)));
        assert_eq!(pool.traced().len(), 1);
        pool.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn the_error_of_a_request_that_was_ended_tells_where_its_script_was() {
    for (end, _) in ENDS {
        let scripts = Scripts::new();
        let (pool, _) = shop(&scripts, end, Duration::from_secs(1));
        let error = call(&scripts, "").answer(&pool).await.expect_err("an endless loop");
        assert_eq!(error.reason(), Reason::PhpTimeout);
        let tail = error.stderr_tail();
        let innermost = format!("PHP was at Shop::compute() {}:", scripts.path("shop.php").display());
        let (_, rest) = tail.split_once(&innermost).unwrap_or_else(|| panic!("{tail}"));
        let line = rest.split(' ').next().and_then(|line| line.parse().ok());
        // PHP does not note the instruction of a loop: the line may be the first one of the function.
        assert!(line.is_some_and(|line| (6..=10).contains(&line)), "{tail}");
        assert_eq!(tail.matches("compute()").count(), 20, "no more than the limit: {tail}");
        pool.stop(Duration::ZERO).await;
    }
}
