//! What a script does to its worker costs its own request and nothing else.

use std::sync::Arc;
use std::time::Duration;

use haulier_http::Reason;
use haulier_php::Pool;

use crate::support::{
    Answer, Call, PATIENCE, Scripts, embedded, mark, own_pool, php_processes, wait_until, wait_until_async,
};

/// A function that answers a request, or fails in one of the ways that PHP knows.
const FAILING: &str = r#"<?php
    function recurse() { array_map('recurse', [1]); }
    function respond() {
        set_time_limit(0);
        switch ($_GET['do'] ?? '') {
            case 'exception': throw new RuntimeException('thrown');
            case 'fatal': eval('interface Stone {} class Wood extends Stone {}'); break;
            case 'memory': str_repeat('x', 1 << 30); break;
            case 'overflow': recurse(); break;
            case 'endless': for (;;);
            case 'segfault': posix_kill(getmypid(), 11); break;
            case 'held':
                echo 'first';
                ob_flush();
                flush();
                while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
                echo ' last';
                break;
            default: echo getmypid();
        }
    }
"#;

/// Failure, its status or reason, and what the log says of it.
const FAILURES: [(&str, Result<u16, Reason>, &str); 6] = [
    ("exception", Ok(500), "RuntimeException: thrown"),
    ("fatal", Ok(500), "cannot extend interface Stone"),
    ("memory", Ok(500), "Allowed memory size of"),
    ("overflow", Err(Reason::PhpCrashed), ""),
    ("endless", Err(Reason::PhpTimeout), ""),
    ("segfault", Err(Reason::PhpCrashed), ""),
];
const WORKERS: usize = 2;

fn call(scripts: &Scripts, query: &str) -> Call {
    Call {
        script: scripts.path("failing.php"),
        ..Call::get(scripts, query)
    }
}

fn pool(scripts: &Scripts, end: &str, is_booted: bool) -> Arc<Pool> {
    scripts.add("failing.php", &format!("{FAILING}{end}"));
    own_pool(scripts, WORKERS, |settings, own| {
        settings.timeout = Duration::from_secs(2);
        settings.body_timeout = PATIENCE;
        own.embedded = Some(embedded(is_booted.then(|| scripts.path("failing.php"))));
        own.ini.push(("memory_limit".into(), "128M".into()));
        mark(scripts, own);
    })
}

/// Each failure beside a request on the other worker, which goes on through all of them.
async fn fail_in_all_ways(scripts: &Scripts, pool: &Arc<Pool>, processes: usize) {
    wait_until_async("all workers are there", || {
        php_processes(scripts.dir.path()).len() == processes
    })
    .await;
    let gate = scripts.path("gate");
    let held = call(scripts, &format!("do=held&gate={}", gate.display()));
    let held = held.send(pool).await.expect("a head");
    for (failure, expected, logged) in FAILURES {
        let failed = call(scripts, &format!("do={failure}")).answer(pool).await;
        let (seen, stderr) = match &failed {
            Ok(answer) => (
                Ok(answer.head.status()),
                String::from_utf8_lossy(&answer.stderr).into_owned(),
            ),
            Err(error) => (Err(error.reason()), error.stderr_tail().to_owned()),
        };
        // PHP 8.3 and later notice the end of their stack.
        let is_noticed = failure == "overflow" && seen == Ok(500) && stderr.contains("Maximum call stack size");
        assert!(seen == expected || is_noticed, "{failure}: {failed:?}");
        assert!(stderr.contains(logged), "{failure}: {stderr}");
        for _ in 0..2 * WORKERS {
            let next = call(scripts, "").answer(pool).await.expect(failure);
            assert_eq!(next.head.status(), 200, "behind {failure}");
        }
    }
    scripts.open("gate");
    assert_eq!(Answer::of(held).await.expect("it goes on").text(), "first last");
    wait_until("the workers are as many as before", || {
        php_processes(scripts.dir.path()).len() == processes
    });
    let counts = pool.status().counts;
    assert_eq!((counts.timeouts, counts.exits), (1, 0), "{counts:?}");
}

#[tokio::test]
async fn a_failure_in_worker_mode_costs_its_request_alone() {
    let scripts = Scripts::new();
    let pool = pool(&scripts, "while (frankenphp_handle_request('respond')) {}", true);
    fail_in_all_ways(&scripts, &pool, 1 + WORKERS + 1).await;
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_failure_of_a_script_costs_its_request_alone() {
    let scripts = Scripts::new();
    let pool = pool(&scripts, "respond();", false);
    fail_in_all_ways(&scripts, &pool, 1 + WORKERS).await;
    pool.stop(Duration::from_secs(5)).await;
}
