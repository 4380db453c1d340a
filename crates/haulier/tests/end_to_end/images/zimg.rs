//! What zimg's clients see: every row of its API, with `compat = "zimg"`.

use haulier_image::Format;

use crate::support::client::{Connection, Request, Response};
use crate::support::haulier::Haulier;
use crate::support::images::{Images, jpeg, md5, picture, png, seen, upload};
use crate::support::wait_until;

const NOT_FOUND: &str = "<html><body><h1>404 Not Found!</h1></body></html>";
const FORBIDDEN: &str = "<html><body><h1>403 Forbidden!</h1></body></html>";
const MISSING: &str = "5f189d8ec57f5a5a0d3dcba47fa797e2";

#[track_caller]
fn error(answer: Response, code: u8, message: &str) {
    let answer = answer.expect(200);
    assert_eq!(answer.field("Content-Type"), Some("application/json"));
    let expected = format!("{{\"ret\":false,\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}");
    assert_eq!(answer.text(), expected);
}

#[track_caller]
fn not_found(answer: Response) {
    let answer = answer.expect(404);
    assert_eq!(
        (answer.text().as_str(), answer.field("Content-Type")),
        (NOT_FOUND, Some("text/html"))
    );
}

fn raw(content_type: &str, body: &[u8]) -> Request {
    Request::post("/upload", body).with("Content-Type", content_type)
}

fn form(parts: &[(Option<&str>, &[u8])]) -> Request {
    let mut body = Vec::new();
    for (name, content) in parts {
        body.extend_from_slice(b"--XX\r\nContent-Disposition: form-data; name=\"userfile\"");
        if let Some(name) = name {
            body.extend_from_slice(format!("; filename=\"{name}\"").as_bytes());
        }
        body.extend_from_slice(b"\r\n\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    Request::post("/upload", body).with("Content-Type", "multipart/form-data; boundary=XX")
}

#[test]
fn a_raw_upload_is_told_its_md5_and_size() {
    let haulier = Images::zimg().start();
    let (picture, other) = (jpeg(40, 30, 0), png(40, 30));
    for (content_type, image) in [("jpeg", &picture), ("JPG", &picture), ("image/png", &other)] {
        for path in ["/upload", "/", "/any/path", "/admin"] {
            let request = Request::post(path, image.clone()).with("Content-Type", content_type);
            let answer = haulier.ask(&request).expect(200);
            assert_eq!(answer.field("Content-Type"), Some("application/json"));
            let expected = format!(
                "{{\"ret\":true,\"info\":{{\"md5\":\"{}\",\"size\":{}}}}}",
                md5(image),
                image.len()
            );
            assert_eq!(answer.text(), expected);
        }
    }
}

#[test]
fn an_upload_that_is_refused_says_why_in_zimgs_order() {
    let haulier = Images::zimg()
        .more("[site.img.images.upload]\nmax_size = \"100KiB\"")
        .start();
    let image = jpeg(40, 30, 0);
    error(haulier.get("/upload"), 2, "Request method error.");
    error(haulier.ask(&Request::new("PUT", "/upload")), 2, "Request method error.");
    error(haulier.ask(&raw("jpeg", b"")), 5, "Content-Length error.");
    let chunked = b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: jpeg\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    error(haulier.ask_raw(chunked), 5, "Content-Length error.");
    error(haulier.ask(&raw("jpeg", &vec![0; 200 << 10])), 7, "File too large.");
    error(
        haulier.ask(&Request::post("/upload", image.clone())),
        6,
        "Content-Type error.",
    );
    error(haulier.ask(&raw("text/plain", &image)), 1, "File type not support.");
    error(haulier.ask(&raw("PNG", b"this is text")), 1, "File type not support.");
    let closed = Images::zimg()
        .more("[site.img.images.upload]\nfrom = [\"10.0.0.0/8\"]")
        .start();
    error(closed.ask(&raw("jpeg", &image)), 3, "Access error.");
}

#[test]
fn a_form_may_hold_several_files_and_its_page_names_each() {
    let haulier = Images::zimg().start();
    let (one, two) = (jpeg(40, 30, 1), png(20, 20));
    let request = form(&[
        (Some("one.JPG"), &one),
        (None, b"a plain field"),
        (Some("C:\\two.png"), &two),
        (Some("notes.txt"), b"text"),
        (Some("fake.png"), b"text"),
    ]);
    let answer = haulier.ask(&request).expect(200);
    assert_eq!(answer.field("Content-Type"), Some("text/html"));
    let page = answer.text();
    for image in [&one, &two] {
        assert!(page.contains(&format!("<h1>MD5: {}</h1>", md5(image))), "{page}");
        haulier.get(&format!("/{}", md5(image))).expect(200);
    }
    assert!(page.contains("<title>Upload Result</title>"), "{page}");
    assert!(
        page.contains("<h1>File: notes.txt</h1>\n<p>File type is not supported!</p>"),
        "{page}"
    );
    assert!(page.contains("<h1>File: fake.png</h1>"), "{page}");
    assert!(!page.contains(&md5(b"a plain field")), "a field is no image");
    let nothing = haulier.ask(&form(&[(None, b"only a field")])).expect(200).text();
    assert!(nothing.contains("<h1>Upload Failed!</h1>"), "{nothing}");
    let broken = Request::post("/upload", "x").with("Content-Type", "multipart/form-data");
    assert!(
        haulier
            .ask(&broken)
            .expect(200)
            .text()
            .contains("<h1>Upload Failed!</h1>")
    );
}

#[test]
fn queries_make_what_they_made_in_zimg() {
    let haulier = Images::zimg().start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let large = upload(&haulier, &png(100, 50));
    for (id, query, expected) in [
        (&id, "", (Format::Jpeg, 640, 480)),
        (&large, "", (Format::Jpeg, 100, 50)),
        (&id, "?w=100", (Format::Jpeg, 100, 75)),
        (&id, "?h=100", (Format::Jpeg, 133, 100)),
        (&id, "?w=100&h=100", (Format::Jpeg, 100, 100)),
        (&id, "?w=100&h=100&g=1", (Format::Jpeg, 100, 100)),
        (&id, "?W=100&H=50&nonsense=1", (Format::Jpeg, 100, 50)),
        (&id, "?w=100&h=100&p=0", (Format::Jpeg, 100, 100)),
        (&id, "?w=100&h=100&p=2", (Format::Jpeg, 100, 100)),
        (&id, "?w=50&p=3", (Format::Jpeg, 320, 240)),
        (&id, "?w=50&h=25&p=3", (Format::Jpeg, 320, 120)),
        (&id, "?w=100&h=100&p=4", (Format::Jpeg, 100, 75)),
        (&id, "?x=600&y=400&w=100&h=100", (Format::Jpeg, 40, 80)),
        (&id, "?w=100&r=90", (Format::Jpeg, 75, 100)),
        (&id, "?w=100&f=png", (Format::Png, 100, 75)),
        (&id, "?w=100&f=WEBP", (Format::WebP, 100, 75)),
        (&large, "?w=200&f=none", (Format::Png, 200, 100)),
    ] {
        assert_eq!(picture(haulier.get(&format!("/{id}{query}"))), expected, "{query}");
    }
    let upper = format!("/{}?w=100", id.to_uppercase());
    assert_eq!(picture(haulier.get(&upper)), (Format::Jpeg, 100, 75));
}

#[test]
fn p_0_is_the_original_untouched_with_ranges_and_head() {
    let haulier = Images::zimg().start();
    let image = jpeg(640, 480, 0);
    let id = upload(&haulier, &image);
    for query in ["?p=0", "?p=0&g=1&q=5"] {
        let answer = haulier.get(&format!("/{id}{query}")).expect(200);
        assert!(answer.body == image, "{query}");
        assert_eq!(answer.field("Content-Type"), Some("image/jpeg"));
    }
    let part = haulier
        .ask(&Request::get(&format!("/{id}?p=0")).with("Range", "bytes=10-19"))
        .expect(206);
    assert_eq!(part.body, image[10..20]);
    let head = haulier.ask(&Request::head(&format!("/{id}?p=0"))).expect(200);
    assert_eq!(head.field("Content-Length"), Some(image.len().to_string().as_str()));
    let made = haulier.get(&format!("/{id}?w=100")).expect(200);
    let part = haulier
        .ask(&Request::get(&format!("/{id}?w=100")).with("Range", "bytes=5-"))
        .expect(206);
    assert_eq!(part.body, made.body[5..]);
}

#[test]
fn whatever_cannot_be_is_404() {
    let haulier = Images::zimg().start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    for target in [
        format!("/{MISSING}"),
        format!("/{MISSING}?w=10"),
        format!("/{MISSING}?p=0"),
        format!("/{id}?w=-1"),
        format!("/{id}?p=5"),
        format!("/{id}?p=0&w=10"),
        format!("/{id}?f=txt"),
        format!("/{id}?x=64&y=0&w=10"),
        format!("/{id}?w=9000&h=9000"),
        format!("/{id}?t=nobody"),
        format!("/{id}/x"),
        "/nothing".to_owned(),
        "/5f189d8e".to_owned(),
    ] {
        not_found(haulier.get(&target));
    }
    not_found(haulier.ask(&Request::new("PUT", &format!("/{id}"))));
    let forbidden = haulier.get("/a/../b").expect(403);
    assert_eq!(forbidden.text(), FORBIDDEN);
}

#[test]
fn an_image_that_does_not_decode_is_404_and_is_not_tried_at_every_request() {
    let haulier = Images::zimg().start();
    let mut broken = jpeg(640, 480, 0);
    broken.truncate(20);
    let id = upload(&haulier, &broken);
    for _ in 0..3 {
        not_found(haulier.get(&format!("/{id}?w=100")));
    }
    error(haulier.get(&format!("/info?md5={id}")), 0, "Internal error.");
    let original = haulier.get(&format!("/{id}?p=0")).expect(200);
    assert_eq!(original.body, broken);
}

#[test]
fn an_etag_is_strong_and_known_before_the_image_is() {
    let haulier = Images::zimg().start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let target = format!("/{id}?w=100");
    let answer = haulier.get(&target).expect(200);
    let etag = answer.field("ETag").expect("a tag").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    assert!(
        answer
            .field("Cache-Control")
            .is_some_and(|value| value.contains("max-age"))
    );
    let bare = etag.trim_matches('"');
    for value in [etag.as_str(), bare, &format!("\"x\", {etag}"), "*"] {
        let again = haulier
            .ask(&Request::get(&target).with("If-None-Match", value))
            .expect(304);
        assert_eq!(again.field("ETag"), Some(etag.as_str()), "{value}");
        assert_eq!(again.field("Cache-Control"), answer.field("Cache-Control"));
        assert!(again.body.is_empty());
    }
    haulier
        .ask(&Request::get(&target).with("If-None-Match", "\"x\""))
        .expect(200);
    let other = haulier.get(&format!("/{id}?w=101")).expect(200);
    assert_ne!(other.field("ETag"), Some(etag.as_str()));
    let same = haulier.get(&format!("/{id}?W=0100&f=JPEG")).expect(200);
    assert_eq!(
        same.field("ETag"),
        Some(etag.as_str()),
        "one variant, however it is spelt"
    );
}

#[test]
fn info_describes_the_original() {
    let haulier = Images::zimg().start();
    let image = jpeg(64, 48, 0);
    let id = upload(&haulier, &image);
    let answer = haulier.get(&format!("/info?md5={id}")).expect(200);
    assert_eq!(answer.field("Content-Type"), Some("application/json"));
    let told: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let info = &told["info"];
    assert_eq!(told["ret"], true);
    assert_eq!((info["width"].as_u64(), info["height"].as_u64()), (Some(64), Some(48)));
    assert_eq!(
        (info["size"].as_u64(), info["format"].as_str()),
        (Some(image.len() as u64), Some("JPEG"))
    );
    let quality = info["quality"].as_u64().expect("a quality");
    assert!((80..=90).contains(&quality), "{quality}");
    assert!(
        answer.text().starts_with("{\"ret\":true,\"info\":{\"size\":"),
        "{}",
        answer.text()
    );
    error(haulier.get("/info"), 8, "Request url illegal.");
    error(haulier.get("/info?md5=x"), 8, "Request url illegal.");
    error(haulier.get(&format!("/info?md5={MISSING}")), 9, "Image not existed.");
    error(haulier.ask(&Request::post("/info", "x")), 2, "Request method error.");
}

#[test]
fn admin_deletes_the_original_with_all_that_was_made_of_it() {
    let images = Images::zimg();
    let store = images.store_path();
    let haulier = images.start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let target = format!("/{id}?w=100");
    haulier.get(&target).expect(200);
    let page = haulier.get("/admin").expect(200);
    assert!(page.text().contains("<form"), "{}", page.text());
    let other = haulier.get(&format!("/admin?md5={id}&t=5")).expect(200).text();
    assert!(
        other.contains("Admin Command Failed!") && other.contains("Command Failed."),
        "{other}"
    );
    let done = haulier.get(&format!("/admin?md5={id}&t=1")).expect(200).text();
    assert!(
        done.contains("Admin Command Successful!") && done.contains(&id),
        "{done}"
    );
    not_found(haulier.get(&target));
    not_found(haulier.get(&format!("/{id}?p=0")));
    assert!(!store.join(&id[..2]).join(&id[2..4]).join(&id).exists());
    let again = haulier.get(&format!("/admin?md5={id}&t=1")).expect(200).text();
    assert!(again.contains("Image Not Found."), "{again}");
    not_found(haulier.get("/admin?md5=x&t=1"));
    let closed = Images::new().with("compat = \"zimg\"").start();
    assert_eq!(
        closed.get(&format!("/admin?md5={MISSING}&t=1")).expect(403).text(),
        FORBIDDEN
    );
}

#[test]
fn the_small_pages_are_there() {
    let haulier = Images::zimg().start();
    let echo = haulier.get("/echo").expect(200);
    assert_eq!(echo.text(), "<html><body><h1>zimg works!</h1></body></html>");
    let icon = haulier.get("/favicon.ico").expect(200);
    assert!(icon.body.is_empty());
    let page = haulier.get("/").expect(200);
    assert!(
        page.field("Content-Type")
            .is_some_and(|value| value.starts_with("text/html"))
    );
    assert!(page.text().contains("Drop a picture"), "{}", page.text());
    assert!(
        page.field("Content-Security-Policy")
            .is_some_and(|policy| policy.contains("'sha256-"))
    );
}

#[test]
fn who_may_not_download_is_told_so() {
    let haulier = Images::zimg().with("download = [\"10.0.0.0/8\"]").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let answer = haulier.get(&format!("/{id}?w=10")).expect(403);
    assert_eq!(answer.text(), FORBIDDEN);
    let forwarded = Request::get(&format!("/{id}?w=10")).with("X-Forwarded-For", "10.0.0.1");
    haulier.ask(&forwarded).expect(403);
}

#[test]
fn in_the_first_version_the_height_rules_and_nothing_is_enlarged() {
    let haulier = Images::new().with("compat = \"zimg_v1\"").start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    for (query, expected) in [
        ("?w=100&h=100&g=1", (Format::Jpeg, 133, 100)),
        ("?w=100", (Format::Jpeg, 100, 75)),
        ("?w=2000", (Format::Jpeg, 640, 480)),
        ("?w=100&f=png", (Format::Jpeg, 100, 75)),
    ] {
        assert_eq!(picture(haulier.get(&format!("/{id}{query}"))), expected, "{query}");
    }
}

#[test]
fn types_are_presets() {
    let haulier = Images::zimg()
        .more("[site.img.images.presets]\nthumb300 = \"w=300&h=300&q=85\"\ngrey = \"w=50&g=1&f=png\"")
        .start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    assert_eq!(
        picture(haulier.get(&format!("/{id}?t=thumb300"))),
        (Format::Jpeg, 300, 300)
    );
    let both = haulier.get(&format!("/{id}?t=thumb300&w=10&f=png"));
    assert_eq!(picture(both), (Format::Jpeg, 300, 300), "the type wins over everything");
    assert_eq!(picture(haulier.get(&format!("/{id}?t=grey"))), (Format::Png, 50, 38));
}

#[test]
fn a_hundred_who_ask_at_once_wait_for_one_worker() {
    let haulier = Images::zimg().start();
    let id = upload(&haulier, &jpeg(1600, 1200, 0));
    let target = format!("/{id}?w=777");
    let bodies = asked_at_once(&haulier, &target, 100);
    assert!(bodies.iter().all(|body| *body == bodies[0] && seen(body).1 == 777));
    let made = haulier
        .metrics()
        .value("haulier_image_duration_seconds_count{site=\"img\",step=\"encode\"}");
    assert_eq!(made, 1.0, "it was made once");
}

fn asked_at_once(haulier: &Haulier, target: &str, clients: usize) -> Vec<Vec<u8>> {
    let barrier = std::sync::Barrier::new(clients);
    let address = haulier.address();
    std::thread::scope(|scope| {
        let one = || {
            let mut connection = Connection::open(address);
            barrier.wait();
            connection.ask(&Request::get(target)).expect(200).body
        };
        let all: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
        all.into_iter()
            .map(|client| client.join().expect("an answer"))
            .collect()
    })
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let images = Images::zimg();
    let store = images.store_path();
    let haulier = images.start();
    let image = jpeg(640, 480, 0);
    for sent in [0, 1000, image.len() - 1] {
        let mut connection = haulier.connect();
        let head = format!(
            "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: jpeg\r\nContent-Length: {}\r\n\r\n",
            image.len()
        );
        connection.send(head);
        connection.send(&image[..sent]);
        drop(connection);
    }
    wait_until("the uploads to be over", || haulier.access_log().len() >= 3);
    let left: Vec<_> = std::fs::read_dir(&store)
        .expect("the store")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["unfinished"]);
    assert_eq!(
        std::fs::read_dir(store.join("unfinished")).expect("a folder").count(),
        0
    );
    upload(&haulier, &image);
}
