//! Entity tags of files: what they say on several servers, and what they are made of (RFC 9110 §8.8.3).

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::support::client::{Request, Response};
use super::support::coded::{decode, text};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::{run, wait_until};

/// 2026-01-02 03:04:05.123456789
const MODIFIED: Duration = Duration::new(1_767_323_045, 123_456_789);

fn set_modified(path: impl AsRef<Path>, since_epoch: Duration) {
    let file = File::options().write(true).open(path).expect("a file of ours");
    file.set_modified(UNIX_EPOCH + since_epoch).expect("a time");
}

/// A site with a stylesheet, its sidecar and a long file, modified at this time.
fn site(modified: Duration) -> Site {
    let site = Site::new()
        .file("a.css", text(20_000))
        .file("small.txt", "small")
        .file("long.bin", vec![7; 200_000]);
    run(Command::new("/bin/gzip").arg("-nk").arg(site.root().join("a.css")));
    for name in ["a.css", "a.css.gz", "small.txt", "long.bin"] {
        set_modified(site.root().join(name), modified);
    }
    site
}

fn asked(server: &Haulier, target: &str, accept: &str) -> Response {
    server
        .ask(&Request::get(target).with("Accept-Encoding", accept))
        .expect(200)
}

/// The tag of a file in a coding, once it is strong: before, the file is coded on its way or its content unread.
fn tag(server: &Haulier, target: &str, coding: &str) -> String {
    let mut found = None;
    wait_until("a strong tag", || {
        let response = asked(server, target, coding);
        let is_coded = coding == "identity" || response.field("Content-Encoding") == Some(coding);
        found = response
            .field("ETag")
            .filter(|tag| is_coded && tag.starts_with('"'))
            .map(str::to_owned);
        found.is_some()
    });
    found.expect("just seen")
}

/// Every tag of the site: of files, of a sidecar and of a copy that was made.
fn tags(server: &Haulier) -> Vec<String> {
    [
        ("/a.css", "identity"),
        ("/a.css", "gzip"),
        ("/a.css", "zstd"),
        ("/small.txt", "identity"),
        ("/long.bin", "identity"),
    ]
    .map(|(target, coding)| tag(server, target, coding))
    .into()
}

#[test]
fn servers_with_the_same_files_and_times_agree_on_every_tag() {
    let (one, other) = (site(MODIFIED).start(), site(MODIFIED).start());
    let tags_of_one = tags(&one);
    assert_eq!(tags_of_one, tags(&other));
    // A client that began on one of them goes on at the other.
    let request = Request::get("/long.bin")
        .with("Range", "bytes=10-19")
        .with("If-Range", tags_of_one.last().expect("five of them"));
    other.ask(&request).expect(206);
    let later = site(MODIFIED + Duration::from_nanos(1)).start();
    for (tag, of_later) in tags_of_one.iter().zip(tags(&later)) {
        assert_ne!(*tag, of_later, "a nanosecond is another time");
    }
}

#[test]
fn the_tag_of_the_content_follows_the_content_whatever_its_time_is() {
    let with_content = |modified| site(modified).setting("etag = \"content\"");
    let first = with_content(MODIFIED);
    let long = first.root().join("long.bin");
    let (one, other) = (
        first.start(),
        with_content(MODIFIED + Duration::from_secs(86_400)).start(),
    );
    let before = tags(&one);
    assert_eq!(before, tags(&other));
    // Each thread learns of it by itself.
    wait_until("a 304", || {
        one.ask(&Request::get("/long.bin").with("If-None-Match", &before[4]))
            .status()
            == 304
    });
    // As long, and of the same time.
    fs::write(long.with_extension("next"), vec![8; 200_000]).expect("the directory is ours");
    set_modified(long.with_extension("next"), MODIFIED);
    fs::rename(long.with_extension("next"), &long).expect("a rename");
    wait_until("the tag of the new content", || {
        let response = one.get("/long.bin").expect(200);
        let tag = response.field("ETag");
        let is_new = response.body[0] == 8;
        // A thread that has not learned of a tag answers without one.
        assert!(
            tag.is_none_or(|tag| is_new == (tag != before[4])),
            "the tag goes with the content"
        );
        is_new && tag.is_some()
    });
}

#[test]
fn until_the_content_is_read_an_answer_has_its_date_alone() {
    let site = Site::new()
        .file("long.bin", vec![7; 200_000])
        .setting("etag = \"content\"");
    let server = site.start();
    // Written a moment ago: it may be written again.
    let first = server.get("/long.bin").expect(200);
    let is_young = |first: &Response| first.field("ETag").is_none() && first.field("Last-Modified").is_some();
    assert!(is_young(&first) || first.field("ETag").is_some_and(|tag| tag.len() == 34));
    assert_eq!(tag(&server, "/long.bin", "identity").len(), 34);
}

#[test]
fn a_site_may_do_without_entity_tags() {
    let site = site(MODIFIED).setting("etag = \"off\"");
    let root = site.root().to_owned();
    let server = site.start();
    let plain = server.get("/a.css").expect(200);
    assert_eq!(plain.field("ETag"), None);
    let sidecar = fs::read(root.join("a.css.gz")).expect("a sidecar");
    let date = plain.field("Last-Modified").expect("a date").to_owned();
    server
        .ask(&Request::get("/a.css").with("If-Modified-Since", &date))
        .expect(304);
    wait_until("the sidecar", || {
        let coded = asked(&server, "/a.css", "gzip");
        assert_eq!(coded.field("ETag"), None);
        // No client could say which variant it has a part of.
        assert_eq!(coded.field("Accept-Ranges"), None);
        coded.body == sidecar
    });
}

#[test]
fn a_time_that_no_file_has_is_not_taken_for_one() {
    for seconds in [0, 1, 315_532_800] {
        let old = site(Duration::from_secs(seconds));
        let new = site(Duration::from_secs(seconds)).file("a.css", &text(20_001)[1..]);
        set_modified(new.root().join("a.css"), Duration::from_secs(seconds));
        let (old, new) = (old.start(), new.start());
        assert_ne!(
            tag(&old, "/a.css", "identity"),
            tag(&new, "/a.css", "identity"),
            "{seconds}"
        );
        assert_eq!(tag(&old, "/long.bin", "identity"), tag(&new, "/long.bin", "identity"));
    }
}

#[test]
fn a_copy_is_never_sent_for_another_file_of_the_same_size_and_time() {
    let (old, new) = (text(20_001), text(20_002));
    let (old, new) = (&old[..20_000], &new[2..]);
    assert_ne!(old, new);
    let site = Site::new().file("a.js", old);
    let path = site.root().join("a.js");
    set_modified(&path, MODIFIED);
    let server = site.start();
    tag(&server, "/a.js", "br");
    fs::write(path.with_extension("next"), new).expect("the directory is ours");
    set_modified(path.with_extension("next"), MODIFIED);
    fs::rename(path.with_extension("next"), &path).expect("a rename");
    let end = SystemTime::now() + Duration::from_secs(3);
    wait_until("the new content", || asked(&server, "/a.js", "identity").body == new);
    while SystemTime::now() < end {
        wait_until("the new content, coded", || {
            decode("br", &asked(&server, "/a.js", "br").body) == new
        });
    }
}
