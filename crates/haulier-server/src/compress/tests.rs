//! Decisions on whole responses, without a socket.

use haulier_http::Handler;
use haulier_proto::field::Fields;

use super::*;
use crate::files::fixture::{Root, head};

const PAGE: &str = "a page with words, and words again. ";

fn page(length: usize) -> Response {
    let body: String = PAGE.chars().cycle().take(length).collect();
    Response::new(200, Handler::Php)
        .with("Content-Type", "text/html")
        .with("ETag", "\"x\"")
        .body(body)
}

fn answered(site: &SiteCoding, lines: &str, mut response: Response) -> Response {
    on_response(site, &head("GET", "/", lines), &mut response);
    response
}

fn fields(response: &Response) -> &Fields {
    response.head.fields()
}

#[test]
fn a_coded_body_names_its_coding_and_loses_its_strong_tag() {
    let site = Root::new().site().coding;
    let response = answered(&site, "Accept-Encoding: gzip\r\n", page(2000));
    assert_eq!(fields(&response).get("Content-Encoding"), Some(&b"gzip"[..]));
    assert_eq!(fields(&response).get("ETag"), Some(&b"W/\"x-gzip\""[..]));
    let Body::Bytes(coded) = &response.body else {
        panic!("a whole body stays whole");
    };
    assert_eq!(codec::decode(Coding::Gzip, coded).len(), 2000);
    let compressed = response.trace.compressed.expect("it is noted");
    assert_eq!(compressed.taken.load(Ordering::Relaxed), 2000);
    assert_eq!(compressed.made.load(Ordering::Relaxed), coded.len() as u64);
}

#[test]
fn development_says_why_nothing_was_coded() {
    let site = Root::new().with(|settings| settings.development = true).site().coding;
    let gzip = "Accept-Encoding: gzip\r\n";
    let image = Response::new(200, Handler::Php)
        .with("Content-Type", "image/png")
        .body("x".repeat(999));
    let kept = page(2000).with("Cache-Control", "private, No-Transform");
    // The upper bits of a linear congruential generator are incompressible.
    let next = |n: &u32| Some(n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let noise: Vec<u8> = std::iter::successors(Some(7_u32), next)
        .map(|n| (n >> 24) as u8)
        .take(999)
        .collect();
    let grown = Response::new(200, Handler::Php)
        .with("Content-Type", "text/plain")
        .body(noise);
    let part = Response {
        status: 206,
        ..page(2000)
    };
    for (lines, response, expected) in [
        ("", page(2000), "skip=no-ae"),
        (gzip, page(255), "skip=small"),
        (gzip, image, "skip=mime"),
        (gzip, kept, "skip=no-transform"),
        (gzip, grown, "skip=grew"),
        (gzip, part, "skip=range"),
        (gzip, page(2000).with("Content-Encoding", "br"), "skip=already"),
    ] {
        let response = answered(&site, lines, response);
        let said = fields(&response).get("X-Haulier-Encoding").expect("a reason");
        assert_eq!(String::from_utf8_lossy(said), expected);
    }
    let coded = answered(&site, gzip, page(2000));
    let said = fields(&coded).get("X-Haulier-Encoding").expect("what was done");
    assert!(said.starts_with(b"gzip:"), "{}", String::from_utf8_lossy(said));
    let off = Root::new().with(|settings| {
        settings.development = true;
        settings.compress = settings::CompressSettings::off();
    });
    let response = answered(&off.site().coding, gzip, page(2000));
    assert_eq!(fields(&response).get("X-Haulier-Encoding"), Some(&b"skip=off"[..]));
    assert!(!fields(&response).contains("Vary"));
}

#[test]
fn vary_is_added_once_and_beside_others() {
    let site = Root::new().site().coding;
    for (given, expected) in [
        (None, vec![&b"Accept-Encoding"[..]]),
        (Some("Cookie"), vec![b"Cookie", b"Accept-Encoding"]),
        (Some("Cookie, accept-encoding"), vec![b"Cookie, accept-encoding"]),
        (Some("*"), vec![b"*"]),
    ] {
        let mut response = page(2000);
        if let Some(given) = given {
            response = response.with("Vary", given);
        }
        let response = answered(&site, "", response);
        assert_eq!(
            fields(&response).get_all("Vary").collect::<Vec<_>>(),
            expected,
            "{given:?}"
        );
    }
}

#[test]
fn a_304_of_php_has_the_tag_of_the_client() {
    let site = Root::new().site().coding;
    let unchanged = Response::new(304, Handler::Php).with("ETag", "\"x\"");
    let response = answered(&site, "If-None-Match: W/\"x-zstd\"\r\n", unchanged);
    assert_eq!(fields(&response).get("ETag"), Some(&b"W/\"x-zstd\""[..]));
    assert_eq!(fields(&response).get("Vary"), Some(&b"Accept-Encoding"[..]));
}
