//! Sites whose root is a symbolic link: a deployment makes it point to the next release.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::support::client::Request;
use super::support::load::Crowd;
use super::support::site::Site;
use super::support::wait_until;

/// Releases 1 and 2 with the same files, and a link to the first.
fn releases(site: &Site) -> PathBuf {
    let place = site.writable("deploy");
    for release in ["1", "2"] {
        let public = place.join("releases").join(release);
        fs::create_dir_all(&public).expect("the directory is ours");
        fs::write(public.join("a.txt"), format!("release {release}")).expect("the directory is ours");
        fs::write(public.join("a.php"), "<?php echo include 'version.php', ' ', __DIR__;").expect("ours");
        fs::write(public.join("version.php"), format!("<?php return 'release {release}';")).expect("ours");
        let wait = "<?php touch($_GET['dir'] . '/began'); for ($i = 0; $i < 6000 && !file_exists($_GET['dir'] . '/open'); $i++) { usleep(10000); clearstatcache(); } echo include 'version.php', ' ', $_SERVER['DOCUMENT_ROOT'];";
        fs::write(public.join("wait.php"), wait).expect("ours");
        fs::write(
            public.join("send.php"),
            "<?php header('X-Sendfile: ' . __DIR__ . '/a.txt');",
        )
        .expect("ours");
    }
    point(&place, "1");
    place
}

/// As deployment tools do it: another link, renamed over the first.
fn point(place: &Path, release: &str) {
    let next = place.join("next");
    symlink(Path::new("releases").join(release), &next).expect("the directory is ours");
    fs::rename(next, place.join("current")).expect("the directory is ours");
}

/// PHP that never looks whether a file has changed, as production runs it.
fn site() -> (Site, PathBuf) {
    let site = Site::new().php("unused.php", "");
    let place = releases(&site);
    let site = site
        .at(place.join("current"))
        .ini("opcache.enable", "1")
        .ini("opcache.validate_timestamps", "0");
    (site, place)
}

#[test]
fn the_next_release_is_served_without_a_word_and_nothing_is_lost() {
    let (site, place) = site();
    let server = site.config("[log]\naccess = \"errors\"").start();
    let pages = ["/a.txt", "/a.php"].map(Request::get);
    let crowd = Crowd::start(server.address(), 4, &pages);
    crowd.wait_for(100);
    for (release, before) in [("2", "1"), ("1", "2"), ("2", "1")] {
        let php = server.get("/a.php").expect(200).text();
        assert!(php.contains(&format!("release {before}")), "{php}");
        point(&place, release);
        // Every thread exchanges files and scripts together, and a connection stays with its thread.
        let mut visitor = server.connect();
        wait_until("the next release", || {
            visitor = server.connect();
            visitor.ask(&Request::get("/a.txt")).expect(200).text() == format!("release {release}")
        });
        let php = visitor.ask(&Request::get("/a.php")).expect(200).text();
        let directory = place.join("releases").join(release);
        assert_eq!(php, format!("release {release} {}", directory.display()));
        let sent = visitor.ask(&Request::get("/send.php")).expect(200).text();
        assert_eq!(sent, format!("release {release}"));
        drop(visitor);
        server.wait_for_line("the document root is another directory now");
        wait_until("the next release in every thread", || {
            (0..20).all(|_| {
                server
                    .get("/a.php")
                    .expect(200)
                    .text()
                    .contains(&format!("release {release}"))
            })
        });
        crowd.wait_for(100);
    }
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
}

#[test]
fn a_request_ends_in_the_release_it_began_in() {
    let (site, place) = site();
    let gate = site.writable("gate");
    let server = site.start();
    let mut held = server.connect();
    held.send(Request::get(&format!("/wait.php?dir={}", gate.display())).to_bytes());
    wait_until("the script to run", || gate.join("began").exists());
    point(&place, "2");
    wait_until("the next release", || {
        server.get("/a.txt").expect(200).text() == "release 2"
    });
    fs::write(gate.join("open"), "").expect("the directory is ours");
    let answer = held.read_response("GET").expect("its end").expect(200).text();
    assert_eq!(answer, format!("release 1 {}", place.join("releases/1").display()));
}

#[test]
fn a_link_that_is_gone_for_a_moment_changes_nothing() {
    let (site, place) = site();
    let server = site.start();
    server.get("/a.txt").expect(200);
    fs::remove_file(place.join("current")).expect("the directory is ours");
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        assert_eq!(server.get("/a.txt").expect(200).text(), "release 1");
    }
    point(&place, "2");
    wait_until("the next release", || {
        server.get("/a.txt").expect(200).text() == "release 2"
    });
}
