//! The native mode: statuses mean what they say, and what zimg never had.

use std::sync::{Arc, Barrier};

use std::time::SystemTime;

use haulier_image::Format;

use crate::support::client::{Connection, Request, Response};
use crate::support::haulier::Haulier;
use crate::support::images::{Images, jpeg, md5, picture, png, seen, upload};
use crate::support::wait_until;

const MISSING: &str = "5f189d8ec57f5a5a0d3dcba47fa797e2";
const TOKEN: &str = "a token of this test";

fn raw(body: &[u8]) -> Request {
    Request::post("/upload", body).with("Content-Type", "image/jpeg")
}

fn json(answer: &Response) -> serde_json::Value {
    assert_eq!(answer.field("Content-Type"), Some("application/json"));
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn accept(haulier: &Haulier, target: &str, accept: &str) -> Response {
    haulier.ask(&Request::get(target).with("Accept", accept))
}

#[test]
fn an_upload_is_created_once() {
    let haulier = Images::new().start();
    let image = jpeg(64, 48, 0);
    let created = haulier.ask(&raw(&image)).expect(201);
    let id = md5(&image);
    assert_eq!(created.field("Location"), Some(format!("/{id}").as_str()));
    let told = json(&created);
    assert_eq!(told["info"]["md5"], id);
    assert_eq!(
        (told["info"]["width"].as_u64(), told["info"]["format"].as_str()),
        (Some(64), Some("jpeg"))
    );
    haulier.ask(&raw(&image)).expect(200);
    let chunked = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n";
    let png = png(20, 10);
    let mut connection = haulier.connect();
    connection.send(chunked);
    connection.send(format!("{:x}\r\n", png.len()));
    connection.send(&png);
    connection.send("\r\n0\r\n\r\n");
    connection.read_response("POST").expect("an answer").expect(201);
    assert_eq!(picture(haulier.get(&format!("/{}", md5(&png)))), (Format::Png, 20, 10));
}

#[test]
fn what_is_refused_has_its_own_status_and_says_why() {
    let haulier = Images::new()
        .more("[site.img.images.upload]\nmax_size = \"100KiB\"")
        .start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let mut bomb = png(10, 10);
    // A header that says 60,000 × 60,000 pixels, with its right check sum.
    bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    for (request, status) in [
        (raw(b"this is text"), 415),
        (raw(&vec![0; 200 << 10]), 413),
        (raw(&bomb), 422),
        (Request::post("/upload", "x"), 400),
        (
            Request::post("/upload", "x").with("Content-Type", "multipart/form-data; boundary=y"),
            400,
        ),
        (Request::get("/upload"), 405),
        (Request::new("PUT", &format!("/{id}")), 405),
        (Request::get(&format!("/{MISSING}")), 404),
        (Request::get(&format!("/{id}?width=10")), 400),
        (Request::get(&format!("/{id}?w=ten")), 400),
        (Request::get(&format!("/{id}?w=10&w=20")), 400),
        (Request::get(&format!("/{id}?w=5000")), 400),
        (Request::get(&format!("/{id}?t=nobody")), 404),
        (Request::get("/somewhere"), 404),
        (Request::get("/info?md5=x"), 400),
        (Request::get(&format!("/info?md5={MISSING}")), 404),
    ] {
        let answer = haulier.ask(&request);
        assert_eq!(answer.status(), status, "{request:?}: {}", answer.text());
        if request.method == "POST" {
            let told = json(&answer);
            assert!(told["ret"] == false && told["error"]["message"].as_str().is_some_and(|text| text.len() > 5));
        }
    }
    let allowed = haulier.get("/upload");
    assert_eq!(allowed.field("Allow"), Some("POST, OPTIONS"));
    let closed = Images::new().more("[site.img.images.upload]\nfrom = []").start();
    closed.ask(&raw(&jpeg(10, 10, 0))).expect(403);
}

#[test]
fn without_a_query_it_is_the_original_and_every_mode_has_its_size() {
    let haulier = Images::new().start();
    let image = jpeg(640, 480, 0);
    let id = upload(&haulier, &image);
    assert!(haulier.get(&format!("/{id}")).expect(200).body == image);
    for (query, expected) in [
        ("w=200&h=100&mode=cover", (200, 100)),
        ("w=200&h=100&mode=contain", (200, 100)),
        ("w=200&h=100&mode=fit", (133, 100)),
        ("w=200&h=100&mode=fill", (200, 100)),
        ("w=2000&h=1000&mode=scale-down", (640, 480)),
        ("w=200&h=100&mode=crop", (200, 100)),
        ("w=100&dpr=2", (200, 150)),
        ("w=100&pad=10", (120, 95)),
        ("w=100&h=100&gravity=attention", (100, 100)),
        ("w=100&h=100&focal=0.9,0.1", (100, 100)),
        ("crop=10,10,30,20", (30, 20)),
        ("w=100&flip=h&blur=1&sharpen=0.5&bg=fff", (100, 75)),
    ] {
        let (format, width, height) = picture(haulier.get(&format!("/{id}?{query}")));
        assert_eq!((format, (width, height)), (Format::Jpeg, expected), "{query}");
    }
}

/// With Exif that has an artist, a copyright, and the program that made it.
fn credited(jpeg: &[u8]) -> Vec<u8> {
    let mut tiff = b"MM\0*\0\0\0\x08\0\x03".to_vec();
    let texts = [(0x0131_u16, "a program"), (0x013b, "A. Artist"), (0x8298, "(c) Owner")];
    for (index, (tag, text)) in texts.iter().enumerate() {
        tiff.extend(tag.to_be_bytes());
        tiff.extend([0, 2, 0, 0, 0, text.len() as u8 + 1]);
        tiff.extend((50 + 10 * index as u32).to_be_bytes());
    }
    tiff.extend([0; 4]);
    tiff.extend(texts.iter().flat_map(|(_, text)| format!("{text}\0").into_bytes()));
    let length = (8 + tiff.len() as u16).to_be_bytes();
    [&jpeg[..2], b"\xff\xe1", &length, b"Exif\0\0", &tiff, &jpeg[2..]].concat()
}

#[test]
fn variants_say_whose_they_are_where_that_is_wanted_and_nothing_else() {
    let image = credited(&jpeg(64, 48, 0));
    let contains = |body: &[u8], text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    for (settings, expected) in [("", false), ("metadata = \"copyright\"", true)] {
        let haulier = Images::new()
            .with(settings)
            .more("[site.img.images.presets]\nthumb = \"w=20\"")
            .start();
        let id = upload(&haulier, &image);
        for query in ["w=32", "w=32&f=png", "w=32&f=webp", "w=32&f=gif", "t=thumb"] {
            let answer = haulier.get(&format!("/{id}?{query}"));
            let body = answer.body.clone();
            assert!(picture(answer).1 <= 32, "{query}");
            assert_eq!(contains(&body, "A. Artist"), expected, "{query} {settings}");
            assert_eq!(contains(&body, "(c) Owner"), expected, "{query} {settings}");
            assert!(!contains(&body, "a program"), "{query} {settings}");
        }
        assert!(haulier.get(&format!("/{id}")).expect(200).body == image);
    }
}

#[test]
fn the_best_format_the_client_takes_is_sent_and_said() {
    let haulier = Images::new().start();
    let id = upload(&haulier, &png(100, 80));
    let target = format!("/{id}?w=50&f=auto");
    let mut tags = Vec::new();
    for (accepts, format) in [
        ("image/avif,image/webp,image/apng,*/*;q=0.8", Format::WebP),
        ("image/webp;q=0.5,*/*", Format::WebP),
        ("*/*", Format::Jpeg),
        ("image/webp;q=0,*/*", Format::Jpeg),
        ("", Format::Jpeg),
    ] {
        for _ in 0..2 {
            let answer = accept(&haulier, &target, accepts);
            assert_eq!(answer.field("Vary"), Some("Accept"), "{accepts}");
            tags.push((format, answer.field("ETag").expect("a tag").to_owned()));
            assert_eq!(picture(answer), (format, 50, 40), "{accepts}");
        }
    }
    let tag_of = |format| tags.iter().find(|(made, _)| *made == format).expect("made").1.clone();
    assert!(
        tags.iter().all(|(format, tag)| *tag == tag_of(*format)),
        "one variant a format: {tags:?}"
    );
    assert_ne!(tag_of(Format::WebP), tag_of(Format::Jpeg));
    let webp = tag_of(Format::WebP);
    let unchanged = Request::get(&target)
        .with("If-None-Match", &webp)
        .with("Accept", "image/webp");
    assert_eq!(haulier.ask(&unchanged).expect(304).field("Vary"), Some("Accept"));
    let other = Request::get(&target).with("If-None-Match", &webp).with("Accept", "*/*");
    haulier.ask(&other).expect(200);
    let fixed = haulier.get(&format!("/{id}?w=50&f=webp")).expect(200);
    assert_eq!((fixed.field("Vary"), fixed.field("ETag")), (None, Some(webp.as_str())));
}

#[test]
fn a_browser_that_says_what_screen_it_has_gets_a_picture_for_it() {
    let haulier = Images::new()
        .with("client_hints = true")
        .more("[site.img.images.presets]\nthumb = \"w=50&h=40\"")
        .start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let ask = |query: &str, field: &str, value: &str| {
        haulier.ask(&Request::get(&format!("/{id}?{query}")).with(field, value))
    };
    for (query, field, value, expected, vary) in [
        ("w=100", "X-Nothing", "1", 100, Some("Sec-CH-DPR, DPR")),
        ("w=100", "Sec-CH-DPR", "2.0", 200, Some("Sec-CH-DPR, DPR")),
        ("w=100", "DPR", "1.2", 150, Some("Sec-CH-DPR, DPR")),
        ("w=100", "Sec-CH-Width", "500", 100, Some("Sec-CH-DPR, DPR")),
        ("w=100&dpr=1", "Sec-CH-DPR", "2", 100, None),
        ("q=70", "Sec-CH-Width", "300", 320, Some("Sec-CH-Width, Width")),
        ("q=70", "Width", "3000", 640, Some("Sec-CH-Width, Width")),
        ("q=70", "Width", "wide", 640, Some("Sec-CH-Width, Width")),
        ("t=thumb", "Sec-CH-DPR", "3", 150, Some("Sec-CH-DPR, DPR")),
        ("w=100&f=auto", "Sec-CH-DPR", "3", 300, Some("Accept, Sec-CH-DPR, DPR")),
    ] {
        // From the worker, and then from memory.
        for _ in 0..2 {
            let answer = ask(query, field, value);
            assert_eq!(answer.field("Vary"), vary, "{query} {field}: {value}");
            assert_eq!(picture(answer).1, expected, "{query} {field}: {value}");
        }
    }
    let hinted = ask("w=100", "Sec-CH-DPR", "2").expect(200);
    let said = haulier.get(&format!("/{id}?w=200")).expect(200);
    assert_eq!(
        hinted.field("ETag"),
        said.field("ETag"),
        "one variant, however it was asked for"
    );
    let request = Request::get(&format!("/{id}?w=100")).with("Sec-CH-DPR", "2");
    let tag = hinted.field("ETag").expect("a tag").to_owned();
    let unchanged = haulier.ask(&request.with("If-None-Match", &tag)).expect(304);
    assert_eq!(unchanged.field("Vary"), Some("Sec-CH-DPR, DPR"));
    assert!(haulier.get(&format!("/{id}")).expect(200).body == jpeg(640, 480, 0));
    let page = haulier.get("/").expect(200);
    assert_eq!(page.field("Accept-CH"), Some("Sec-CH-DPR, Sec-CH-Width, DPR, Width"));
}

#[test]
fn a_hint_never_costs_a_picture() {
    let haulier = Images::new()
        .with("client_hints = true\nmax_side = 400\nwidths = [100, 200, 300, 400]")
        .more("[site.img.images.presets]\nframed = \"q=70&pad=10\"")
        .start();
    // As high as the limit at twice the width, and higher at three times.
    let id = upload(&haulier, &jpeg(200, 400, 0));
    let ask = |query: &str, field: &str, value: &str| {
        haulier.ask(&Request::get(&format!("/{id}?{query}")).with(field, value))
    };
    for (query, field, value, expected, vary) in [
        ("w=100", "DPR", "2", (200, 400), "Sec-CH-DPR, DPR"),
        ("w=100", "DPR", "3", (100, 200), "Sec-CH-DPR, DPR"),
        ("w=200&f=auto", "DPR", "2", (200, 400), "Accept, Sec-CH-DPR, DPR"),
        ("w=100&h=100&pad=10", "DPR", "3", (360, 360), "Sec-CH-DPR, DPR"),
        ("w=240&h=100&pad=10", "DPR", "1.5", (320, 145), "Sec-CH-DPR, DPR"),
    ] {
        for _ in 0..2 {
            let answer = ask(query, field, value);
            assert_eq!(answer.field("Vary"), Some(vary), "{query} {field}: {value}");
            let (_, width, height) = picture(answer);
            assert_eq!((width, height), expected, "{query} {field}: {value}");
        }
    }
    let tag = ask("w=100", "DPR", "3").field("ETag").expect("a tag").to_owned();
    let again = Request::get(&format!("/{id}?w=100")).with("DPR", "3");
    haulier.ask(&again.with("If-None-Match", &tag)).expect(304);
    ask("w=300", "DPR", "3").expect(422);
    let wide = upload(&haulier, &jpeg(800, 100, 0));
    for query in ["q=70&pad=10", "t=framed"] {
        let answer = haulier.ask(&Request::get(&format!("/{wide}?{query}")).with("Width", "4000"));
        assert_eq!(picture(answer).1, 400, "{query}: with the frame as wide as may be");
    }
}

#[test]
fn hints_are_passed_over_where_nobody_wants_them() {
    let haulier = Images::new().start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let answer = haulier.ask(&Request::get(&format!("/{id}?w=100")).with("Sec-CH-DPR", "2"));
    assert_eq!(answer.field("Vary"), None);
    assert_eq!(picture(answer).1, 100);
    assert_eq!(haulier.get("/").expect(200).field("Accept-CH"), None);
}

#[test]
fn deleting_takes_the_token_of_the_site() {
    let haulier = Images::new().with(&format!("token = {TOKEN:?}")).start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let target = format!("/{id}");
    haulier.get(&format!("{target}?w=10")).expect(200);
    let delete = || Request::new("DELETE", &target);
    let refused = haulier.ask(&delete()).expect(401);
    assert_eq!(refused.field("WWW-Authenticate"), Some("Bearer"));
    haulier.ask(&delete().with("Authorization", "Bearer wrong")).expect(401);
    haulier
        .ask(&delete().with("Authorization", &format!("Basic {TOKEN}")))
        .expect(401);
    let right = format!("Bearer {TOKEN}");
    let gone = haulier.ask(&delete().with("Authorization", &right)).expect(204);
    assert!(gone.body.is_empty());
    haulier.get(&target).expect(404);
    haulier.get(&format!("{target}?w=10")).expect(404);
    haulier.ask(&delete().with("Authorization", &right)).expect(404);
    assert_eq!(upload(&haulier, &jpeg(64, 48, 0)), id);
    haulier.get(&format!("{target}?w=10")).expect(200);
    let without = Images::new().start();
    without.ask(&delete().with("Authorization", "Bearer x")).expect(403);
}

#[test]
fn only_presets_are_made_where_only_they_are_wanted() {
    let haulier = Images::new()
        .with("only_presets = true")
        .more("[site.img.images.presets]\nthumb = \"w=100&h=100\"")
        .start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    assert_eq!(
        picture(haulier.get(&format!("/{id}?t=thumb"))),
        (Format::Jpeg, 100, 100)
    );
    for query in ["", "?w=100&h=100", "?p=0", "?w=101"] {
        haulier.get(&format!("/{id}{query}")).expect(403);
    }
}

#[test]
fn signed_addresses_hold_until_they_expire_and_no_letter_may_change() {
    const KEY: &str = "a key with enough letters";
    let haulier = Images::new()
        .with(&format!("sign = [\"the key that comes next\", {KEY:?}]"))
        .more("[site.img.images.presets]\nthumb = \"w=100&h=100\"")
        .start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let sign = |target: &str| haulier_server::sign(KEY.as_bytes(), target);
    let signed = sign(&format!("/{id}?w=100"));
    assert_eq!(picture(haulier.get(&signed)).1, 100);
    haulier.get(&sign(&format!("/{id}"))).expect(200);
    haulier.get(&format!("/{id}?t=thumb")).expect(200);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    haulier
        .get(&sign(&format!("/{id}?w=100&expires={}", now + 1000)))
        .expect(200);
    for refused in [
        format!("/{id}"),
        format!("/{id}?w=100"),
        signed.replace("w=100", "w=101"),
        format!("{signed}&w=5"),
        sign(&format!("/{id}?w=100&expires={}", now - 1)),
        sign(&format!("/{id}?w=100&expires={}", now + 1000))
            .replace(&format!("{}", now + 1000), &format!("{}", now + 9000)),
    ] {
        haulier.get(&refused).expect(403);
    }
}

#[test]
fn a_missing_image_has_a_stand_in() {
    let images = Images::new();
    let path = images.path("missing.png");
    std::fs::write(&path, png(300, 200)).expect("the directory is ours");
    let haulier = images.with(&format!("fallback = {path:?}")).start();
    for (query, expected) in [("", (Format::Png, 300, 200)), ("?w=30&f=webp", (Format::WebP, 30, 20))] {
        for _ in 0..2 {
            let answer = haulier.get(&format!("/{MISSING}{query}")).expect(404);
            assert_eq!(seen(&answer.body), expected);
            assert_eq!(answer.field("Cache-Control"), Some("no-cache"));
        }
    }
}

#[test]
fn a_full_queue_is_503_with_a_time_to_come_again() {
    let haulier = Images::new().with("workers = 1\nqueue = 1\ntimeout = \"60s\"").start();
    let id = upload(&haulier, &png(2000, 1500));
    const CLIENTS: usize = 12;
    // All of them at once, as far as the machine lets them.
    let ask_all = |round: usize| -> Vec<(u16, Option<String>)> {
        std::thread::scope(|scope| {
            let address = haulier.address();
            let together = Arc::new(Barrier::new(CLIENTS));
            let ask = |number: usize| {
                let target = format!("/{id}?w={}&f=webp", 1900 - round * CLIENTS - number);
                let together = Arc::clone(&together);
                scope.spawn(move || {
                    together.wait();
                    let answer = Connection::open(address).ask(&Request::get(&target));
                    (answer.status(), answer.field("Retry-After").map(str::to_owned))
                })
            };
            let all: Vec<_> = (0..CLIENTS).map(ask).collect();
            all.into_iter().map(|one| one.join().expect("an answer")).collect()
        })
    };
    let mut statuses = Vec::new();
    for round in 0..5 {
        statuses.extend(ask_all(round));
        if statuses.iter().any(|(status, _)| *status == 503) {
            break;
        }
    }
    let made = statuses.iter().filter(|(status, _)| *status == 200).count();
    let refused: Vec<_> = statuses.iter().filter(|(status, _)| *status == 503).collect();
    assert!(made >= 1 && made + refused.len() == statuses.len(), "{statuses:?}");
    assert!(!refused.is_empty(), "{statuses:?}");
    let seconds = |after: &Option<String>| after.as_ref().and_then(|after| after.parse::<u64>().ok());
    assert!(
        refused
            .iter()
            .all(|(_, after)| seconds(after).is_some_and(|seconds| seconds >= 1)),
        "{statuses:?}"
    );
    let series = "haulier_errors_total{site=\"img\",reason=\"image_queue_full\"}";
    wait_until("all of them to be counted", || {
        haulier.metrics().count(series) == refused.len() as u64
    });
}

#[test]
fn status_and_dashboard_say_where_images_came_from() {
    let haulier = Images::new().start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    for _ in 0..3 {
        haulier.get(&format!("/{id}?w=100")).expect(200);
    }
    let state = || {
        let answer = Connection::open(haulier.admin()).ask(&Request::get("/api/state.json"));
        let state: serde_json::Value = serde_json::from_slice(&answer.expect(200).body).expect("JSON");
        state["images"][0].clone()
    };
    wait_until("the last one to be counted", || {
        state()["shares"]["memory"] == 2.0 / 3.0
    });
    let images = state();
    assert_eq!(
        (&images["site"], images["made_total"].as_u64()),
        (&"img".into(), Some(1))
    );
    assert_eq!(images["uploads_total"], 1);
    for step in ["fetch", "decode", "resize", "encode"] {
        assert!(
            images["steps_ms"][step].as_f64().is_some_and(|time| time >= 0.0),
            "{images}"
        );
    }
    let status = haulier.tell(&["status"]);
    let text = String::from_utf8(status.stdout).expect("text");
    let line = text.lines().skip_while(|line| !line.starts_with("images")).nth(1);
    let cells: Vec<&str> = line.expect("a line for the site").split_whitespace().collect();
    assert_eq!(cells[..3], ["img", "67%", "33%"], "{text}");
    let page = Connection::open(haulier.admin())
        .ask(&Request::get("/"))
        .expect(200)
        .text();
    assert!(
        page.contains("<h2>Images</h2>") && page.contains("memory 67%, made 33%"),
        "{page}"
    );
}

#[test]
fn metrics_say_where_images_came_from() {
    let haulier = Images::new().start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    for _ in 0..3 {
        haulier.get(&format!("/{id}?w=100")).expect(200);
    }
    haulier.get(&format!("/{id}")).expect(200);
    haulier.get(&format!("/{MISSING}")).expect(404);
    let count = |series: &str| haulier.metrics().count(series);
    wait_until("the last one to be counted", || {
        count("haulier_image_requests_total{site=\"img\",result=\"error\"}") == 1
    });
    let metrics = haulier.metrics();
    let of = |result: &str| {
        metrics.count(&format!(
            "haulier_image_requests_total{{site=\"img\",result=\"{result}\"}}"
        ))
    };
    assert_eq!((of("made"), of("memory"), of("original"), of("error")), (1, 2, 1, 1));
    assert_eq!(metrics.count("haulier_image_uploads_total{site=\"img\"}"), 1);
    assert!(metrics.value("haulier_image_memory_bytes{site=\"img\"}") > 1000.0);
    assert_eq!(
        metrics.count("haulier_requests_total{site=\"img\",handler=\"image\",code=\"2xx\"}"),
        5
    );
}
