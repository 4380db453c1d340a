//! A script that stays booted: what it keeps from one request to the next, and what it does not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use haulier_php::Pool;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::{Answer, Call, Scripts, embedded, own_pool};

/// A pool whose workers have booted this script.
fn booted(scripts: &Scripts, workers: usize, script: &str) -> Arc<Pool> {
    scripts.add("worker.php", script);
    own_pool(scripts, workers, |_, own| {
        own.embedded = Some(embedded(Some(scripts.path("worker.php"))));
    })
}

/// A worker that runs what the request says, and tells of itself in JSON.
const TELLING: &str = r#"<?php
    register_shutdown_function(function () { error_log('the script has ended'); });
    set_time_limit(20);
    putenv('BOOTED=1');
    class Counter { public static int $requests = 0; }
    echo 'nobody reads what the boot prints';
    $handle = function () {
        Counter::$requests++;
        $do = $_GET['do'] ?? '';
        if ($do === 'exit') { echo 'bye'; exit; }
        if ($do === 'throw') { throw new RuntimeException('thrown'); }
        if ($do === 'memory') { ini_set('memory_limit', '8M'); str_repeat('x', 100 << 20); }
        if ($do === 'soil') {
            strtok('a b c', ' ');
            @trigger_error('soiled');
            chdir('/tmp');
            umask(0);
            putenv('SOILED=1');
            putenv('BOOTED=2');
            setlocale(LC_ALL, 'C.UTF-8');
            date_default_timezone_set('Asia/Tokyo');
            mt_srand(5);
            stream_context_get_default(['http' => ['header' => 'Authorization: secret']]);
            set_time_limit(7);
            register_shutdown_function(function () { echo '[of this request]'; });
            if (function_exists('libxml_use_internal_errors')) { libxml_use_internal_errors(true); simplexml_load_string('<a'); }
            session_id('ofthefirst');
            session_start();
            $_SESSION['who'] = 'first';
            setcookie('of', 'first');
            http_response_code(201);
            ob_start();
        }
        echo json_encode([
            'requests' => Counter::$requests, 'pid' => getmypid(), 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
            'request' => $_REQUEST, 'files' => array_map(fn ($file) => [$file['size'], is_uploaded_file($file['tmp_name'])], $_FILES),
            'body' => strlen(file_get_contents('php://input')), 'worker' => $_SERVER['FRANKENPHP_WORKER'] ?? null,
            'strtok' => strtok(' '), 'error' => error_get_last()['message'] ?? null, 'directory' => getcwd(), 'umask' => umask(),
            'soiled' => getenv('SOILED'), 'booted' => getenv('BOOTED'), 'locale' => setlocale(LC_CTYPE, 0),
            'zone' => date_default_timezone_get(), 'context' => stream_context_get_options(stream_context_get_default()),
            'session' => $_SESSION ?? null, 'session_id' => session_id(), 'limit' => ini_get('max_execution_time'),
            'buffers' => ob_get_level(), 'draw' => mt_rand(), 'status' => http_response_code(), 'headers' => headers_list(),
            'xml' => function_exists('libxml_get_errors') ? count(libxml_get_errors()) : 0,
        ]);
    };
    while (frankenphp_handle_request($handle)) {}
"#;

async fn tell(scripts: &Scripts, pool: &Arc<Pool>, query: &str) -> Value {
    let text = Call::get(scripts, query).text(pool).await;
    let end = text.rfind('}').expect("an object") + 1;
    serde_json::from_str(&text[..end]).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn answer(scripts: &Scripts, pool: &Arc<Pool>, query: &str) -> Answer {
    Call::get(scripts, query).answer(pool).await.expect(query)
}

#[tokio::test]
async fn the_application_is_booted_once() {
    let scripts = Scripts::new();
    let pool = booted(&scripts, 1, TELLING);
    for number in 1..=20 {
        let told = tell(&scripts, &pool, "a=1").await;
        assert_eq!(told["requests"], number, "{told}");
        assert_eq!(
            (&told["get"]["a"], &told["worker"]),
            (&"1".into(), &"1".into()),
            "{told}"
        );
    }
    assert_eq!(pool.status().counts.crashes, 0);
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn nothing_of_a_request_is_left_for_the_next_one() {
    let scripts = Scripts::new();
    let pool = booted(&scripts, 1, TELLING);
    let clean = tell(&scripts, &pool, "").await;
    let soiled = answer(&scripts, &pool, "do=soil").await;
    assert_eq!(soiled.head.status(), 201);
    assert!(soiled.text().ends_with("}[of this request]"), "{}", soiled.text());
    assert!(soiled.text().contains(r#""soiled":"1""#), "{}", soiled.text());
    let after = tell(&scripts, &pool, "").await;
    assert_eq!(after["requests"], 3);
    assert_eq!(after["pid"], clean["pid"]);
    for name in [
        "get",
        "post",
        "cookie",
        "request",
        "files",
        "body",
        "strtok",
        "error",
        "directory",
        "umask",
        "soiled",
        "booted",
        "locale",
        "zone",
        "context",
        "session",
        "session_id",
        "limit",
        "buffers",
        "status",
        "headers",
        "xml",
    ] {
        assert_eq!(after[name], clean[name], "{name}");
    }
    assert_eq!((&after["booted"], &after["limit"]), (&"1".into(), &"20".into()));
    // With the seed that the request has given it would be 1328851649.
    assert_ne!(after["draw"], 1_328_851_649);
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_uncaught_exception_ends_its_request_alone() {
    let scripts = Scripts::new();
    let pool = booted(&scripts, 1, TELLING);
    tell(&scripts, &pool, "").await;
    let thrown = answer(&scripts, &pool, "do=throw").await;
    assert_eq!(thrown.head.status(), 500);
    assert!(String::from_utf8_lossy(&thrown.stderr).contains("RuntimeException: thrown"));
    assert_eq!(tell(&scripts, &pool, "").await["requests"], 3);
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_end_of_the_script_belongs_to_its_request_and_a_spare_takes_the_next_one() {
    let scripts = Scripts::new();
    let pool = booted(&scripts, 1, TELLING);
    for (query, status, text) in [("do=exit", 200, "bye"), ("do=memory", 500, "")] {
        let before = tell(&scripts, &pool, "").await;
        let ended = answer(&scripts, &pool, query).await;
        assert_eq!((ended.head.status(), &*ended.text()), (status, text), "{query}");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(stderr.contains("the script has ended"), "{query}: {stderr}");
        let after = tell(&scripts, &pool, "").await;
        assert_eq!(after["requests"], 1, "{query}");
        assert_ne!(after["pid"], before["pid"], "{query}");
    }
    assert_eq!(pool.status().counts.crashes, 0);
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_fields_of_request_and_response_are_told() {
    let scripts = Scripts::new();
    let script = r#"<?php while (frankenphp_handle_request(function () {
        header('X-Of: ' . $_GET['n']);
        echo json_encode([getallheaders(), apache_request_headers(), apache_response_headers()]);
    })) {}"#;
    let pool = booted(&scripts, 1, script);
    for n in ["1", "2"] {
        let call = Call::get(&scripts, &format!("n={n}"))
            .param("HTTP_X_ASKED", n)
            .param("HTTP_HOST", "shop.example");
        let told: Value = serde_json::from_str(&call.text(&pool).await).expect("JSON");
        let asked = serde_json::json!({"X-Asked": n, "Host": "shop.example"});
        assert_eq!((&told[0], &told[1]), (&asked, &asked));
        assert_eq!(told[2]["X-Of"], n, "{told}");
    }
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn frankenphp_log_tells_level_and_context() {
    let scripts = Scripts::new();
    let script = r#"<?php while (frankenphp_handle_request(function () {
        frankenphp_log('plain');
        frankenphp_log('stock is low', FRANKENPHP_LOG_LEVEL_WARN, ['left' => 3, 'path' => 'a/ä']);
        frankenphp_log('below', FRANKENPHP_LOG_LEVEL_DEBUG - 1);
        frankenphp_log('above', FRANKENPHP_LOG_LEVEL_ERROR + 2, []);
    })) {}"#;
    let pool = booted(&scripts, 1, script);
    let logged = answer(&scripts, &pool, "").await.stderr;
    let logged = String::from_utf8_lossy(&logged);
    for line in [
        "INFO: plain",
        r#"WARN: stock is low {"left":3,"path":"a/ä"}"#,
        "DEBUG-1: below",
        "ERROR+2: above",
    ] {
        assert!(logged.lines().any(|logged| logged.ends_with(line)), "{line}: {logged}");
    }
    pool.stop(Duration::from_secs(5)).await;
}

/// Two clients at a time, of POST requests that must not be repeated once they were begun.
#[tokio::test(flavor = "local")]
async fn a_script_that_ends_its_loop_costs_no_request() {
    const LOOPS: usize = 3;
    let scripts = Scripts::new();
    let script = r#"<?php
        $handle = function () { echo getmypid(); };
        for ($left = (int) $_SERVER['MAX_REQUESTS']; $left > 0 && frankenphp_handle_request($handle); $left--) {}
        usleep(1000); // the next request comes while the script ends
    "#;
    scripts.add("worker.php", script);
    let pool = own_pool(&scripts, 2, |_, own| {
        own.embedded = Some(embedded(Some(scripts.path("worker.php"))));
        own.env.push(("MAX_REQUESTS".into(), LOOPS.to_string()));
    });
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let (pool, calls) = (
            Arc::clone(&pool),
            (0..60).map(|_| Call::post(&scripts, "", b"x")).collect::<Vec<_>>(),
        );
        tasks.spawn_local(async move {
            let mut pids = Vec::new();
            for call in calls {
                pids.push(call.text(&pool).await);
            }
            pids
        });
    }
    let mut served: HashMap<String, usize> = HashMap::new();
    for pid in tasks.join_all().await.into_iter().flatten() {
        *served.entry(pid).or_default() += 1;
    }
    assert_eq!(served.values().sum::<usize>(), 120);
    assert!(served.values().all(|&count| count <= LOOPS), "{served:?}");
    let counts = pool.status().counts;
    assert_eq!((counts.crashes, counts.exits), (0, 0), "{counts:?}");
    assert!(counts.retries > 0, "no request came while a script ended: {counts:?}");
    pool.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_script_that_keeps_something_of_every_request_is_known_by_its_growth() {
    for (kept, is_leak) in [
        ("$all[] = str_repeat('x', 1000);", true),
        ("$all = str_repeat('x', 1000);", false),
    ] {
        let scripts = Scripts::new();
        let script = format!(
            "<?php function handle() {{ static $all; {kept} }} while (frankenphp_handle_request('handle')) {{}}"
        );
        let pool = booted(&scripts, 1, &script);
        answer(&scripts, &pool, "").await;
        let first = pool.status().kept;
        assert!(
            first.bytes.is_some_and(|bytes| bytes > 100_000) && first.growth.is_none(),
            "{first:?}"
        );
        for _ in 0..700 {
            answer(&scripts, &pool, "").await;
        }
        let kept = pool.status().kept;
        // PHP's heap may take a few more pages once, whatever the script keeps.
        let expected = if is_leak { 1025..1500 } else { 0..200 };
        assert!(kept.growth.is_some_and(|growth| expected.contains(&growth)), "{kept:?}");
        assert_eq!(kept.is_leak(), is_leak);
        pool.stop(Duration::from_secs(5)).await;
    }
}
