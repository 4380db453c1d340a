//! RFC 9113 §8: requests and responses.

use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::{END_HEADERS, END_STREAM, FrameType};

use crate::peer::{Peer, data, frame};
use crate::site::{Site, large};

/// Shows the request as PHP received it.
const ECHO: &str =
    "<?php echo json_encode(array_intersect_key($_SERVER, array_flip(['SERVER_PROTOCOL', 'REQUEST_METHOD',
    'REQUEST_URI', 'HTTP_HOST', 'HTTP_COOKIE', 'CONTENT_LENGTH', 'HTTP_X_MINE', 'REQUEST_SCHEME']))), ' ',
    file_get_contents('php://input');";

#[test]
fn an_answer_has_the_same_fields_as_in_http_1_without_those_of_a_connection() {
    let site = Site::start();
    let answer = Peer::connect(&site).fetch("/ten.txt").expect(200);
    let names: Vec<_> = answer.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "content-type",
            "last-modified",
            "etag",
            "accept-ranges",
            "server",
            "date",
            "content-length"
        ]
    );
    let one = site.get("/ten.txt", "");
    for name in [
        "content-type",
        "last-modified",
        "etag",
        "accept-ranges",
        "server",
        "content-length",
    ] {
        assert_eq!(answer.field(name), one.field(name), "{name}");
    }
}

/// §8.1, RFC 9110 §6.5
#[test]
fn trailers_stand_behind_a_body_for_those_who_take_them() {
    let script = "<?php header('X-Accel-Buffering: no'); foreach (['one', 'two'] as $word) { echo $word; flush(); }";
    let site = Site::with_php(&[("stream.php", script)], |settings| {
        settings.sites[0].development = true;
    });
    let mut peer = Peer::connect(&site);
    let stream = peer.request("GET", "/stream.php", &[("te", "trailers")], true);
    let answer = peer.answer(stream).expect(200);
    assert_eq!(
        (answer.text(), answer.field("trailer")),
        ("onetwo", Some("Server-Timing"))
    );
    let [(name, value)] = &answer.trailers[..] else {
        panic!("not one line: {answer:?}")
    };
    assert!(
        name == "server-timing" && value.contains(", php;dur="),
        "{name}: {value}"
    );
    let answer = peer.fetch("/stream.php").expect(200);
    assert_eq!((answer.field("trailer"), answer.trailers.len()), (None, 0));
    peer.assert_alive();
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    for path in ["/ten.txt", "/large.bin", "/missing"] {
        let got = peer.fetch(path);
        let stream = peer.request("HEAD", path, &[], true);
        let answer = peer.answer(stream).expect(got.status);
        assert_eq!(
            (answer.body.len(), answer.field("content-length")),
            (0, got.field("content-length")),
            "{path}"
        );
    }
}

#[test]
fn conditions_and_ranges_are_those_of_http() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let etag = peer.fetch("/ten.txt").field("etag").expect("a tag").to_owned();
    let stream = peer.request("GET", "/ten.txt", &[("if-none-match", &etag)], true);
    let unchanged = peer.answer(stream).expect(304);
    assert!(unchanged.body.is_empty() && unchanged.field("content-length").is_none());
    let stream = peer.request("GET", "/large.bin", &[("range", "bytes=1000000-1999999")], true);
    let part = peer.answer(stream).expect(206);
    assert!(part.body == large()[1_000_000..2_000_000]);
    let stream = peer.request("GET", "/large.bin", &[("range", "bytes=0-9,100000-200000,-5")], true);
    let parts = peer.answer(stream).expect(206);
    assert_eq!(parts.field("content-length"), Some(&*parts.body.len().to_string()));
    assert!(parts.body.len() > 100_000);
}

#[test]
fn php_is_told_the_protocol_and_gets_the_body() {
    let site = Site::with_php(&[("echo.php", ECHO)], |_| {});
    let mut peer = Peer::connect(&site);
    let fields = [
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x-mine", "yes"),
        ("content-length", "4"),
    ];
    let stream = peer.request("POST", "/echo.php?q=1", &fields, false);
    peer.send(data(stream, b"bo", false));
    peer.send(data(stream, b"dy", true));
    let answer = peer.answer(stream).expect(200);
    for said in [
        r#""SERVER_PROTOCOL":"HTTP\/2.0""#,
        r#""REQUEST_METHOD":"POST""#,
        r#""REQUEST_URI":"\/echo.php?q=1""#,
        r#""REQUEST_SCHEME":"http""#,
        r#""HTTP_HOST":"a""#,
        r#""HTTP_COOKIE":"a=1; b=2""#,
        r#""HTTP_X_MINE":"yes""#,
        r#""CONTENT_LENGTH":"4""#,
    ] {
        assert!(answer.text().contains(said), "{said} in {}", answer.text());
    }
    assert!(answer.text().ends_with(" body"));
}

#[test]
fn a_body_without_a_length_gets_one_for_php() {
    let site = Site::with_php(&[("up.php", "<?php echo $_SERVER['CONTENT_LENGTH'];")], |_| {});
    let mut peer = Peer::connect(&site);
    for body in [&b""[..], b"x", &[b'y'; 50_000]] {
        let stream = peer.request("PUT", "/up.php", &[], false);
        peer.send(data(stream, body, true));
        assert_eq!(peer.answer(stream).expect(200).text(), body.len().to_string());
    }
}

/// §8.1
#[test]
fn trailers_end_a_body_and_are_dropped() {
    let site = Site::with_php(&[("echo.php", ECHO)], |_| {});
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/echo.php", &[], false);
    peer.send(data(stream, b"body", false));
    let mut trailers = Vec::new();
    haulier_proto::h2::hpack::encode::field(&mut trailers, b"x-mine", b"smuggled");
    peer.send(frame(FrameType::Headers, END_HEADERS | END_STREAM, stream, &trailers));
    let answer = peer.answer(stream).expect(200);
    assert!(
        answer.text().ends_with(" body") && !answer.text().contains("smuggled"),
        "{}",
        answer.text()
    );
}

/// §8.1.1
#[test]
fn a_body_that_is_not_as_long_as_it_says_resets_its_stream() {
    let site = Site::with_php(&[("echo.php", ECHO)], |_| {});
    let mut peer = Peer::connect(&site);
    for path in ["/echo.php", "/ten.txt"] {
        for body in [&b"12"[..], b"1234"] {
            let stream = peer.request("POST", path, &[("content-length", "3")], false);
            peer.send(data(stream, body, true));
            assert_eq!(peer.answer(stream).reset, Some(ErrorCode::PROTOCOL_ERROR), "{path}");
        }
    }
    peer.assert_alive();
}

#[test]
fn what_could_become_another_line_or_word_resets_its_stream() {
    let site = Site::with_php(&[("echo.php", ECHO)], |_| {});
    let mut peer = Peer::connect(&site);
    let bad_fields = [
        ("x-a", "1\r\nx-b: 2"),
        ("x-a", "1\0"),
        ("x a", "1"),
        ("x-a:", "1"),
        ("X-Upper", "1"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
    ];
    let mut requests: Vec<Vec<u8>> = Vec::new();
    for (name, value) in bad_fields {
        // `encode` lowers names and drops connection fields, so this line is written by hand.
        let mut block = crate::peer::block("GET", "/echo.php", &[]);
        block.extend([0x00, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
        requests.push(block);
    }
    for (method, path) in [
        ("GET x", "/"),
        ("GET", "/a b"),
        ("GET", "/a\r\nx: y"),
        ("GET", "nowhere"),
        ("G\r\n", "/"),
    ] {
        requests.push(crate::peer::block(method, path, &[]));
    }
    for block in requests {
        let stream = peer.take_stream();
        peer.send(frame(FrameType::Headers, END_HEADERS | END_STREAM, stream, &block));
        let answer = peer.answer(stream);
        assert_eq!(
            answer.reset,
            Some(ErrorCode::PROTOCOL_ERROR),
            "{}",
            block.escape_ascii()
        );
    }
    peer.assert_alive();
}

/// RFC 9110 §10.1.1
#[test]
fn continue_is_said_once_somebody_wants_the_body() {
    let site = Site::with_php(&[("echo.php", ECHO)], |_| {});
    let mut peer = Peer::connect(&site);
    let fields = [("expect", "100-continue"), ("content-length", "4")];
    let stream = peer.request("POST", "/echo.php", &fields, false);
    let interim = peer.answer_until(stream, |answer| !answer.interim.is_empty()).interim;
    assert_eq!(interim, [[(":status".to_owned(), "100".to_owned())]]);
    peer.send(data(stream, b"body", true));
    assert!(peer.answer(stream).expect(200).text().ends_with(" body"));
    let unwanted = peer.request("POST", "/ten.txt", &fields, false);
    let answer = peer.answer(unwanted);
    assert!(answer.interim.is_empty() && answer.complete, "{answer:?}");
    let unknown = peer.request("POST", "/echo.php", &[("expect", "a-pony")], false);
    assert_eq!(peer.answer_until(unknown, |answer| answer.complete).status, 417);
    peer.assert_alive();
}

#[test]
fn early_hints_come_before_the_answer() {
    // Stock PHP sends one header block; the second one is its output.
    let hints = r#"<?php header('Status: 103 Early Hints'); header('Link: </a.css>; rel=preload'); flush();
        echo "Status: 200 OK\r\nContent-Type: text/plain\r\n\r\nbody";"#;
    let site = Site::with_php(&[("hints.php", hints)], |_| {});
    let answer = Peer::connect(&site).fetch("/hints.php").expect(200);
    assert_eq!(answer.text(), "body");
    let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let hints = [line(":status", "103"), line("link", "</a.css>; rel=preload")];
    assert_eq!(answer.interim, [hints.to_vec()]);
    assert_eq!(answer.field("link"), None);
}

/// §8.1: the client may be told to stop sending.
#[test]
fn a_body_that_is_too_large_is_refused_before_it_comes() {
    let site = Site::with_php(&[("echo.php", ECHO)], |settings| settings.sites[0].limits.body = 1000);
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/echo.php", &[("content-length", "100000")], false);
    let answer = peer.answer_until(stream, |answer| answer.reset.is_some());
    assert_eq!(
        (answer.status, answer.complete, answer.reset),
        (413, true, Some(ErrorCode::NO_ERROR))
    );
    let stream = peer.request("POST", "/echo.php", &[], false);
    peer.send(data(stream, &[0; 5000], false));
    assert_eq!(peer.answer_until(stream, |answer| answer.complete).status, 413);
    peer.assert_alive();
}

#[test]
fn a_body_nobody_wants_is_read_away_before_the_answer() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/ten.txt", &[("content-length", "6")], false);
    peer.send(data(stream, b"abc", false));
    assert!(peer.is_answered_only_after(stream, data(stream, b"def", true)));
}

#[test]
fn a_head_beyond_the_limits_is_answered_on_its_stream() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let many: Vec<_> = (0..120).map(|n| format!("x-{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    let stream = peer.request("GET", "/ten.txt", &many, true);
    peer.answer(stream).expect(431);
    let stream = peer.get(&format!("/ten.txt?{}", "x".repeat(16_385)));
    peer.answer(stream).expect(414);
    peer.assert_alive();
    site.log_until(|log| log.contains(r#""status":431"#));
}

#[test]
fn a_script_that_streams_is_read_as_it_comes() {
    let steps = "<?php header('Content-Type: text/event-stream'); ob_end_flush(); for ($i = 0; $i < 3; $i++) { echo \"data: $i\\n\\n\"; flush();
        while (!file_exists(__DIR__ . \"/go$i\")) { usleep(5000); clearstatcache(); } }";
    let site = Site::with_php(&[("steps.php", steps)], |_| {});
    let mut peer = Peer::connect(&site);
    let stream = peer.get("/steps.php");
    for step in 0..3 {
        let wanted = format!("data: {step}\n\n");
        peer.answer_until(stream, |answer| answer.text().ends_with(&wanted));
        std::fs::write(site.root().join(format!("go{step}")), "").expect("the directory is ours");
    }
    assert_eq!(
        peer.answer(stream).expect(200).text(),
        "data: 0\n\ndata: 1\n\ndata: 2\n\n"
    );
}

#[test]
fn a_large_answer_of_php_arrives_whole() {
    let site = Site::with_php(&[("big.php", "<?php readfile(__DIR__ . '/large.bin');")], |_| {});
    let answer = Peer::connect(&site).fetch("/big.php").expect(200);
    assert!(answer.body == large());
}

#[test]
fn a_body_that_breaks_off_resets_its_stream() {
    let broken = "<?php header('Content-Length: 1000000'); echo str_repeat('x', 100000);";
    let site = Site::with_php(&[("broken.php", broken)], |_| {});
    let mut peer = Peer::connect(&site);
    let answer = peer.fetch("/broken.php");
    assert!(
        !answer.complete && answer.reset.is_some(),
        "a part must not pass for the whole"
    );
    peer.assert_alive();
}
