//! Files that a script passes on: the server gets the descriptor in place of the bytes, where no script can see the
//! difference.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use haulier_http::Piece;
use haulier_php::Pool;

use crate::support::{Call, Scripts, embedded, own_pool};

const LENGTH: usize = 200_000;

/// A pool on haulier's workers and one on php-cgi, and two files that were last changed a minute ago.
fn servers(scripts: &Scripts) -> [Arc<Pool>; 2] {
    let content: Vec<u8> = (0..LENGTH).map(|at| (at / 251 + at % 251) as u8).collect();
    for (name, content) in [("long.bin", &content[..]), ("short.bin", &content[..1000])] {
        fs::write(scripts.path(name), content).expect("a file");
        let file = File::options().write(true).open(scripts.path(name)).expect("the file");
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .expect("its time");
    }
    [
        own_pool(scripts, 1, |_, _| {}),
        own_pool(scripts, 1, |_, own| own.embedded = None),
    ]
}

/// A body, and which of its pieces are files.
#[derive(Debug, PartialEq)]
struct Body {
    bytes: Vec<u8>,
    files: Vec<(u64, u64)>,
    stderr: String,
}

async fn body(pool: &Arc<Pool>, call: &Call) -> Body {
    let mut response = call.send(pool).await.expect("a response");
    let (mut bytes, mut files) = (Vec::new(), Vec::new());
    while let Some(piece) = response.piece().await.expect("a piece") {
        if let Piece::File(slice) = &piece {
            files.push((slice.range.start, slice.range.end));
        }
        piece.read_to(&mut bytes).expect("its bytes");
    }
    Body {
        bytes,
        files,
        stderr: String::from_utf8_lossy(&response.take_stderr()).into_owned(),
    }
}

/// A request for a script of its own: opcache does not look at one again within two seconds.
fn call(scripts: &Scripts, script: &str) -> Call {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("pass{}.php", NUMBER.fetch_add(1, Ordering::Relaxed));
    let directory = scripts.dir.path().display();
    scripts.add(
        &name,
        &format!("<?php $file = '{directory}/long.bin'; $short = '{directory}/short.bin';\n{script}"),
    );
    let mut call = Call::get(scripts, "");
    call.script = scripts.path(&name);
    if script.contains("zlib") || script.contains("gz") {
        call.params.push(("HTTP_ACCEPT_ENCODING".into(), "gzip".into()));
    }
    call
}

/// Runs a script on both; the body of our worker, which is the same as php-cgi's but for the files in it.
async fn same(scripts: &Scripts, pools: &[Arc<Pool>; 2], script: &str) -> Body {
    let call = call(scripts, script);
    let [ours, theirs] = [body(&pools[0], &call).await, body(&pools[1], &call).await];
    assert!(
        ours.bytes == theirs.bytes,
        "{script}: {} and {} bytes",
        ours.bytes.len(),
        theirs.bytes.len()
    );
    assert_eq!(ours.stderr, theirs.stderr, "{script}");
    assert_eq!(theirs.files, []);
    ours
}

const WHOLE: (u64, u64) = (0, LENGTH as u64);

#[tokio::test]
async fn a_file_that_a_script_passes_on_is_handed_over_in_its_place() {
    let scripts = Scripts::new();
    let pools = servers(&scripts);
    for (script, files) in [
        ("readfile($file);", vec![WHOLE]),
        ("echo 'before '; echo readfile($file), ' after';", vec![WHOLE]),
        (
            "readfile($file); readfile($short); readfile($file); echo '.';",
            vec![WHOLE, WHOLE],
        ),
        ("chdir(__DIR__); readfile('long.bin');", vec![WHOLE]),
        ("set_include_path(__DIR__); readfile('long.bin', true);", vec![WHOLE]),
        (
            "$f = fopen($file, 'rb'); fread($f, 10); echo fpassthru($f), ' ', ftell($f), ' ', json_encode(feof($f)), fread($f, 1);",
            vec![(10, WHOLE.1)],
        ),
        (
            "$f = fopen($file, 'r'); fseek($f, -100000, SEEK_END); fpassthru($f); rewind($f); echo fread($f, 3);",
            vec![(100_000, WHOLE.1)],
        ),
        (
            "$f = fopen($file, 'r'); $o = fopen('php://output', 'w'); fwrite($o, 'x'); echo stream_copy_to_stream($f, $o), ftell($o), ftell($f);",
            vec![WHOLE],
        ),
        (
            "$f = fopen($file, 'r'); $o = fopen('php://output', 'w'); echo stream_copy_to_stream($f, $o, 50000, 1000), ' ', ftell($f), stream_copy_to_stream($f, $o, 100), ' ', ftell($o);",
            vec![(1000, 51_000)],
        ),
        (
            "ob_start(null, 4096); echo 'before '; readfile($file); echo ' after';",
            vec![WHOLE],
        ),
        (
            "ob_start(null, 4096); ob_start(null, 100); echo 'before '; readfile($file); echo ' after'; ob_end_flush();",
            vec![WHOLE],
        ),
        (
            "ob_start(); echo 'before '; ob_end_flush(); flush(); readfile($file); @header('Late: 1'); echo headers_sent() ? 'sent' : '';",
            vec![WHOLE],
        ),
        (
            "$copy = __DIR__ . '/copy.bin'; copy($file, $copy); touch($copy, time() - 60); readfile($copy); unlink($copy); echo json_encode(file_exists($copy));",
            vec![WHOLE],
        ),
        (
            "$f = fopen($file, 'r'); fseek($f, 8192); fpassthru($f); echo json_encode(feof($f));",
            vec![(8192, WHOLE.1)],
        ),
        ("readfile('file://' . $file);", vec![WHOLE]),
        ("readfile($file, false, stream_context_create());", vec![WHOLE]),
        (
            "register_shutdown_function(function () use ($file) { readfile($file); }); echo 'first'; exit;",
            vec![WHOLE],
        ),
    ] {
        assert_eq!(same(&scripts, &pools, script).await.files, files, "{script}");
    }
    for pool in pools {
        pool.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn what_something_looks_at_on_its_way_is_copied() {
    let scripts = Scripts::new();
    let pools = servers(&scripts);
    for script in [
        "readfile($short);",
        "ob_start(); readfile($file); echo md5(ob_get_clean());",
        "ob_start(fn ($text) => strrev($text)); readfile($file);",
        "ob_start(null, 4096); ob_start(); readfile($file); ob_end_clean(); echo 'nothing';",
        "ob_start('ob_gzhandler'); readfile($file);",
        "ini_set('zlib.output_compression', '1'); readfile($file);",
        "$f = fopen($file, 'r'); stream_filter_append($f, 'string.rot13'); fpassthru($f);",
        "readfile('php://filter/read=string.toupper/resource=' . $file);",
        "readfile('data:,' . str_repeat('x', 100000));",
        "$f = fopen('php://temp', 'w+'); fwrite($f, file_get_contents($file)); rewind($f); fpassthru($f);",
        "$f = tmpfile(); fwrite($f, file_get_contents($file)); rewind($f); fpassthru($f); ftruncate($f, 0); echo 'gone';",
        "$f = fopen($file, 'r+'); fpassthru($f);",
        "copy($file, $new = __DIR__ . '/new.bin'); readfile($new); file_put_contents($new, 'other'); readfile($new);",
        "$f = fopen($file, 'r'); $o = fopen('php://output', 'w'); stream_filter_append($o, 'string.rot13'); stream_copy_to_stream($f, $o);",
        "$f = fopen($file, 'r'); $m = fopen('php://memory', 'w+'); echo stream_copy_to_stream($f, $m);",
        "$f = fopen($file, 'r'); $o = fopen('php://output', 'w'); echo stream_copy_to_stream($f, $o, 0), stream_copy_to_stream($f, $o, 5);",
        "$p = popen('head -c 100000 /dev/zero', 'r'); fpassthru($p);",
        "fastcgi_finish(); readfile($file); function fastcgi_finish() { echo 'done'; }; ob_start(); readfile($file); ob_end_clean();",
        "echo json_encode(@readfile(__DIR__ . '/missing')), error_get_last()['message'];",
        "try { readfile(\"a\\0b\"); } catch (ValueError $e) { echo $e->getMessage(); }",
        "try { readfile(); } catch (ArgumentCountError $e) { echo $e->getMessage(); }",
        "try { fpassthru(1); } catch (TypeError $e) { echo $e->getMessage(); }",
        "$f = fopen($file, 'r'); fclose($f); try { fpassthru($f); } catch (TypeError $e) { echo $e->getMessage(); }",
        "try { stream_copy_to_stream(1, 2); } catch (TypeError $e) { echo $e->getMessage(); }",
        "echo json_encode(@readfile(__DIR__)), error_get_last()['message'];",
        "ini_set('open_basedir', '/nowhere'); echo json_encode(@readfile($file)), error_get_last()['message'];",
    ] {
        let ours = same(&scripts, &pools, script).await;
        let files = if script.starts_with("fastcgi_finish") {
            vec![WHOLE]
        } else {
            vec![]
        };
        assert_eq!(ours.files, files, "{script}");
    }
    let mut head = call(&scripts, "readfile($file);");
    head.method = "HEAD";
    let nothing = body(&pools[0], &head).await;
    assert_eq!((nothing.bytes, nothing.files), (vec![], vec![]));
    for pool in pools {
        pool.stop(Duration::from_secs(5)).await;
    }
}

/// Descriptors of a process for a file of this name.
fn open_files(process: &str, name: &str) -> usize {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).expect("the descriptors");
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.ends_with(name)).count()
}

#[tokio::test]
async fn no_descriptor_is_left_behind() {
    let scripts = Scripts::new();
    let [pool, _] = servers(&scripts);
    let pid = Call::get(&scripts, "do=pid").text(&pool).await;
    let all = || {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("the descriptors")
            .count()
    };
    let before = all();
    for number in 0..200 {
        let script = match number % 4 {
            0 => "readfile($file);",
            1 => "$f = fopen($file, 'r'); fpassthru($f); rewind($f); fpassthru($f); echo 'end';",
            2 => "echo 'finished'; fastcgi_finish_request(); readfile($file);",
            _ => "readfile($file); fastcgi_finish_request(); readfile($file);",
        };
        let mut response = call(&scripts, script).send(&pool).await.expect("a response");
        // Every third client leaves at once, and others in the middle.
        for _ in 0..number % 3 {
            response.piece().await.expect("a piece");
        }
        while number % 3 == 2 && response.piece().await.expect("a piece").is_some() {}
    }
    assert_eq!(Call::get(&scripts, "do=pid").text(&pool).await, pid, "the same worker");
    assert_eq!((all(), open_files(&pid, "long.bin")), (before, 0), "in the worker");
    pool.stop(Duration::from_secs(5)).await;
    drop(pool);
    assert_eq!(
        open_files("self", &scripts.path("long.bin").display().to_string()),
        0,
        "in the server"
    );
}

#[tokio::test]
async fn a_response_has_as_many_files_as_the_limit_allows_and_the_rest_as_bytes() {
    let scripts = Scripts::new();
    let pools = servers(&scripts);
    let ours = same(
        &scripts,
        &pools,
        "for ($i = 0; $i < 40; $i++) { echo $i; readfile($file); }",
    )
    .await;
    assert_eq!(ours.files.len(), 32);
    let again = same(&scripts, &pools, "readfile($file);").await;
    assert_eq!(again.files, [WHOLE], "each response has its own");
    for pool in pools {
        pool.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_booted_script_hands_files_over_too() {
    let scripts = Scripts::new();
    let [classic, _] = servers(&scripts);
    scripts.add(
        "worker.php",
        "<?php $handle = function () { echo 'before '; echo readfile(__DIR__ . '/long.bin'); };
        while (frankenphp_handle_request($handle)) {}",
    );
    let pool = own_pool(&scripts, 1, |_, own| {
        own.embedded = Some(embedded(Some(scripts.path("worker.php"))));
    });
    for _ in 0..3 {
        let booted = body(&pool, &Call::get(&scripts, "")).await;
        assert_eq!(booted.files, [WHOLE]);
        let expected = call(&scripts, "echo 'before '; echo readfile($file);");
        assert!(booted.bytes == body(&classic, &expected).await.bytes);
    }
    for pool in [pool, classic] {
        pool.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn php_reads_a_request_body_from_the_file_that_it_lies_in() {
    let scripts = Scripts::new();
    let pools = servers(&scripts);
    let content: Vec<u8> = (0..300_000).map(|at| (at / 7) as u8).collect();
    for query in [
        "do=md5",
        "do=length",
        "do=echo",
        "do=unread",
        "do=answer-first&n=300000",
    ] {
        let call = Call {
            spooled: true,
            ..Call::post(&scripts, query, &content)
        };
        let [ours, theirs] = [body(&pools[0], &call).await, body(&pools[1], &call).await];
        assert!(
            ours == theirs,
            "{query}: {} and {} bytes",
            ours.bytes.len(),
            theirs.bytes.len()
        );
    }
    scripts.add(
        "open.php",
        "<?php $links = array_map(fn ($name) => @readlink(\"/proc/self/fd/$name\"), scandir('/proc/self/fd'));
        echo count(preg_grep('/^\\/tmp\\/#.*deleted/', array_filter($links))), ' ', strlen(file_get_contents('php://input', false, null, 0, 1000));",
    );
    let mut post = Call {
        spooled: true,
        ..Call::post(&scripts, "", &content)
    };
    post.script = scripts.path("open.php");
    let mut get = Call::get(&scripts, "");
    get.script = scripts.path("open.php");
    for _ in 0..50 {
        assert_eq!(post.text(&pools[0]).await, "1 1000", "the descriptor");
        assert_eq!(get.text(&pools[0]).await, "0 0", "it is closed with its request");
    }
    for pool in pools {
        pool.stop(Duration::from_secs(5)).await;
    }
}
