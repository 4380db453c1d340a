//! The behaviour of real php-cgi and php-fpm, and of the client with both.

use haulier_http::Reason;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use haulier_http::BodySource;
use haulier_php::Pool;

use crate::support::{self, Answer, Call, Fpm, Scripts, external, next_bytes, own_pool};

/// Runs a test on supervised php-cgi, on workers of our own inside it, and on php-fpm by Unix socket and TCP, with four
/// workers each.
async fn on_every_server(test: impl AsyncFn(&str, &Scripts, &Arc<Pool>)) {
    let scripts = Scripts::new();
    let own = own_pool(&scripts, 4, |_, _| {});
    test("php-cgi", &scripts, &own).await;
    own.stop(Duration::from_secs(5)).await;
    let embedded = own_pool(&scripts, 4, |_, own| own.embedded = Some(support::embedded(None)));
    test("embedded", &scripts, &embedded).await;
    embedded.stop(Duration::from_secs(5)).await;
    let fpm = Fpm::start(&scripts, 4);
    for (name, server) in [("fpm unix", &fpm.unix), ("fpm tcp", &fpm.tcp)] {
        let pool = Pool::start(external(vec![server.clone()], 3)).expect("the pool starts");
        test(name, &scripts, &pool).await;
        pool.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    on_every_server(async |name, scripts, pool| {
        let pid = Call::get(scripts, "do=pid").text(pool).await;
        for _ in 0..50 {
            assert_eq!(Call::get(scripts, "do=pid").text(pool).await, pid, "{name}");
        }
        let status = pool.status();
        assert_eq!(
            (status.load.idle, status.load.busy, status.counts.served),
            (1, 0, 51),
            "{name}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_small_answer_is_complete_with_its_head_and_the_worker_free() {
    on_every_server(async |name, scripts, pool| {
        Call::get(scripts, "").text(pool).await;
        let mut response = Call::get(scripts, "").send(pool).await.expect("a response");
        let mut body = Vec::new();
        while let Some(chunk) = next_bytes(&mut response).await.expect("a body") {
            body.extend_from_slice(&chunk);
        }
        assert_eq!(pool.status().load.busy, 0, "{name}");
        assert!(matches!(response.try_piece(), Poll::Ready(Ok(None))), "{name}");
    })
    .await;
}

#[tokio::test]
async fn parameters_of_320_kb_and_a_pair_of_60_kb_arrive() {
    on_every_server(async |name, scripts, pool| {
        let mut call = Call::get(scripts, "do=server").param("HTTP_X_BIG", &"b".repeat(60_000));
        for number in 0..320 {
            call = call.param(&format!("HTTP_X_{number}"), &"v".repeat(1000));
        }
        let server = call.text(pool).await;
        assert!(server.contains(&"b".repeat(60_000)), "{name}");
        assert_eq!(
            server.matches(&format!("\"{}\"", "v".repeat(1000))).count(),
            320,
            "{name}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_body_arrives_whole_from_memory_and_from_a_file() {
    let body: Vec<u8> = (0..3_000_001u32).map(|n| (n * 7 + n / 251) as u8).collect();
    on_every_server(async |name, scripts, pool| {
        for length in [1, 65_535, 65_536, 200_000, body.len()] {
            for spooled in [false, true] {
                let call = Call {
                    spooled,
                    ..Call::post(scripts, "do=echo", &body[..length])
                };
                let answer = call.answer(pool).await.expect(name);
                assert!(
                    answer.body == body[..length],
                    "{name}, {length} bytes, spooled: {spooled}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_body_without_content_length_is_not_seen() {
    on_every_server(async |name, scripts, pool| {
        for content_length in [None, Some(String::new())] {
            let call = Call {
                content_length,
                // PHP takes the body for a broken next request and closes the connection.
                idempotent: true,
                ..Call::post(scripts, "do=length", b"four")
            };
            assert_eq!(call.text(pool).await, "0", "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_script_that_does_not_read_its_input_harms_no_later_request() {
    let body = vec![b'x'; 2_000_000];
    on_every_server(async |name, scripts, pool| {
        for spooled in [true, false, true] {
            let call = Call {
                spooled,
                ..Call::post(scripts, "do=unread", &body)
            };
            assert_eq!(call.text(pool).await, "unread", "{name}");
            assert_eq!(
                Call::post(scripts, "do=echo", b"next").text(pool).await,
                "next",
                "{name}"
            );
        }
        assert_eq!(pool.status().counts.crashes, 0, "{name}");
    })
    .await;
}

#[tokio::test]
async fn a_script_that_answers_before_it_reads_does_not_lock_up() {
    let body = vec![b'x'; 3_000_000];
    on_every_server(async |name, scripts, pool| {
        let call = Call {
            spooled: true,
            ..Call::post(scripts, "do=answer-first&n=2000000", &body)
        };
        let answer = call.answer(pool).await.expect(name);
        assert_eq!(answer.body.len(), 2_000_007, "{name}");
        assert!(answer.body.ends_with(b"x3000000"), "{name}");
    })
    .await;
}

#[tokio::test]
async fn exit_with_a_code_is_an_answer_like_any_other() {
    on_every_server(async |name, scripts, pool| {
        assert_eq!(Call::get(scripts, "do=exit").text(pool).await, "before", "{name}");
    })
    .await;
}

#[tokio::test]
async fn head_has_no_body() {
    on_every_server(async |name, scripts, pool| {
        let call = Call {
            method: "HEAD",
            ..Call::get(scripts, "")
        };
        assert_eq!(call.answer(pool).await.expect(name).body, b"", "{name}");
    })
    .await;
}

#[tokio::test]
async fn a_missing_script_is_a_404_of_php() {
    on_every_server(async |name, scripts, pool| {
        let call = Call {
            script: scripts.path("missing.php"),
            ..Call::get(scripts, "")
        };
        let answer = call.answer(pool).await.expect(name);
        assert_eq!(answer.head.status(), 404, "{name}");
        assert!(!answer.text().contains("missing.php"), "{name}");
        assert_eq!(Call::get(scripts, "").text(pool).await, "hello", "{name}");
    })
    .await;
}

#[tokio::test]
async fn the_script_is_that_of_script_filename_with_any_path_translated() {
    on_every_server(async |name, scripts, pool| {
        scripts.add("evil.jpg", "<?php echo 'evil';");
        let evil = scripts.path("evil.jpg").display().to_string();
        let call = Call::get(scripts, "")
            .param("SCRIPT_NAME", "/app.php")
            .param("PATH_INFO", "/evil.jpg")
            .param("PATH_TRANSLATED", &evil);
        assert_eq!(call.text(pool).await, "hello", "{name}");
    })
    .await;
}

#[tokio::test]
async fn path_info_is_passed_through_and_httpoxy_is_not() {
    on_every_server(async |name, scripts, pool| {
        let call = Call::get(scripts, "do=server")
            .param("SCRIPT_NAME", "/app.php")
            .param("PATH_INFO", "/a b/c")
            .param("HTTP_PROXY", "evil");
        let server = call.text(pool).await.replace("\\/", "/");
        assert!(server.contains(r#""PATH_INFO":"/a b/c""#), "{name}: {server}");
        assert!(server.contains(r#""PHP_SELF":"/app.php/a b/c""#), "{name}: {server}");
        assert!(!server.contains("evil"), "{name}: {server}");
    })
    .await;
}

#[tokio::test]
async fn stderr_is_kept_apart_and_capped() {
    on_every_server(async |name, scripts, pool| {
        let answer = Call::get(scripts, "do=stderr&n=300").answer(pool).await.expect(name);
        assert_eq!(answer.text(), "out", "{name}");
        if !name.starts_with("fpm") {
            assert!(
                String::from_utf8_lossy(&answer.stderr).contains(&"e".repeat(300)),
                "{name}: {answer:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn status_location_and_cookies_come_as_php_set_them() {
    on_every_server(async |name, scripts, pool| {
        assert_eq!(
            Call::get(scripts, "do=status&n=418")
                .answer(pool)
                .await
                .expect(name)
                .head
                .status(),
            418,
            "{name}"
        );
        let location = Call::get(scripts, "do=location").answer(pool).await.expect(name);
        assert_eq!(location.head.status(), 302, "{name}");
        assert_eq!(location.head.field("Location"), Some(&b"/elsewhere"[..]), "{name}");
        let cookies = Call::get(scripts, "do=cookies").answer(pool).await.expect(name);
        assert_eq!(
            cookies.head.fields().filter(|(name, _)| *name == b"Set-Cookie").count(),
            2,
            "{name}"
        );
    })
    .await;
}

#[tokio::test]
async fn five_megabytes_come_whole() {
    on_every_server(async |name, scripts, pool| {
        let answer = Call::get(scripts, "do=big&n=5200").answer(pool).await.expect(name);
        assert_eq!(answer.body.len(), 5_200_000, "{name}");
        let expected = (0..5200u32).flat_map(|n| [b'a' + (n % 26) as u8; 1000]);
        assert!(answer.body.iter().copied().eq(expected), "{name}");
    })
    .await;
}

#[tokio::test]
async fn an_answer_dropped_half_way_leaves_a_working_pool() {
    on_every_server(async |name, scripts, pool| {
        for _ in 0..10 {
            let mut response = Call::get(scripts, "do=big&n=2000").send(pool).await.expect(name);
            next_bytes(&mut response).await.expect(name).expect("a first piece");
            drop(response);
        }
        assert_eq!(pool.status().load.busy, 0, "{name}");
        assert_eq!(Call::get(scripts, "").text(pool).await, "hello", "{name}");
        assert_eq!(pool.status().counts.crashes, 0, "{name}");
    })
    .await;
}

#[tokio::test]
async fn what_is_flushed_arrives_before_the_rest() {
    on_every_server(async |name, scripts, pool| {
        let call = Call::held_in_body(scripts, &name.replace(' ', "-"));
        let mut response = call.send(pool).await.expect(name);
        assert_eq!(
            next_bytes(&mut response).await.expect(name).as_deref(),
            Some(&b"first"[..]),
            "{name}"
        );
        assert!(response.try_piece().is_pending(), "{name}");
        assert_eq!(pool.status().load.busy, 1, "{name}");
        scripts.open(&name.replace(' ', "-"));
        let rest = Answer::of(response).await.expect(name);
        assert_eq!(rest.body, b"second", "{name}");
        assert_eq!(pool.status().load.busy, 0, "{name}");
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_dies_in_the_body_is_an_error_at_that_place() {
    on_every_server(async |name, scripts, pool| {
        let mut response = Call::get(scripts, "do=die-in-body").send(pool).await.expect(name);
        assert_eq!(
            next_bytes(&mut response).await.expect(name).as_deref(),
            Some(&b"first"[..]),
            "{name}"
        );
        assert_eq!(
            next_bytes(&mut response).await.expect_err(name).reason(),
            Reason::PhpCrashed,
            "{name}"
        );
        assert_eq!(Call::get(scripts, "").text(pool).await, "hello", "{name}");
    })
    .await;
}
