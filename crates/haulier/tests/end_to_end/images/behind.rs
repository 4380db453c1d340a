//! What takes long is made behind the answer.
//!
//! A debug build has no AVIF, so WebP stands in for it here: `behind` is for any format but JPEG. With the feature `avif`
//! the last test runs with what the setting is for.

use haulier_image::{Format, Limits, Original};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::client::{Connection, Request, Response};
use crate::support::haulier::{Haulier, children_of};
use crate::support::images::{Images, animation, jpeg, picture, png, seen, upload};
use crate::support::site::Site;
use crate::support::wait_until;

const BEHIND: &str = "formats = [\"webp\", \"jpeg\"]\nbehind = [\"webp\"]";

fn ask(haulier: &Haulier, target: &str) -> Response {
    haulier.ask(&Request::get(target).with("Accept", "image/avif,image/webp,*/*"))
}

fn tag(answer: &Response) -> String {
    answer.field("ETag").expect("a tag").to_owned()
}

fn made_behind(haulier: &Haulier) -> u64 {
    haulier.metrics().count("haulier_image_behind_total{site=\"img\"}")
}

#[test]
fn the_first_answer_is_the_next_best_and_the_best_comes_from_then_on() {
    let haulier = Images::new().with(BEHIND).start();
    let id = upload(&haulier, &png(100, 80));
    let target = format!("/{id}?w=50&f=auto");
    let first = ask(&haulier, &target);
    assert_eq!(first.field("Vary"), Some("Accept"));
    assert_eq!(first.field("Cache-Control"), Some("public, max-age=60"));
    let passing = tag(&first);
    assert_eq!(picture(first), (Format::Jpeg, 50, 40));
    wait_until("the better one", || {
        seen(&ask(&haulier, &target).body).0 == Format::WebP
    });
    for _ in 0..2 {
        let better = ask(&haulier, &target);
        assert_eq!(better.field("Vary"), Some("Accept"));
        assert_ne!(better.field("Cache-Control"), Some("public, max-age=60"));
        assert_ne!(tag(&better), passing);
        assert_eq!(picture(better), (Format::WebP, 50, 40));
    }
    let has = |tag: &str| {
        let request = Request::get(&target).with("Accept", "image/webp");
        haulier.ask(&request.with("If-None-Match", tag))
    };
    assert_eq!(picture(has(&passing)).0, Format::WebP, "there is a better one now");
    has(&tag(&ask(&haulier, &target))).expect(304);
    // Who takes nothing better has the same answer as before, to keep.
    let plain = haulier.get(&target);
    assert_eq!((tag(&plain), plain.field("Vary")), (passing, Some("Accept")));
    assert_ne!(plain.field("Cache-Control"), Some("public, max-age=60"));
    assert_eq!(picture(plain).0, Format::Jpeg);
    assert_eq!(made_behind(&haulier), 1);
}

#[test]
fn many_who_ask_at_once_have_it_made_once() {
    let haulier = Images::new().with(BEHIND).start();
    let id = upload(&haulier, &jpeg(1600, 1200, 0));
    let target = format!("/{id}?w=1500&f=auto");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (address, target) = (haulier.address(), &target);
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                for _ in 0..4 {
                    let request = Request::get(target).with("Accept", "image/webp");
                    assert_eq!(picture(connection.ask(&request)).1, 1500);
                }
            });
        }
    });
    wait_until("the better one", || {
        seen(&ask(&haulier, &target).body).0 == Format::WebP
    });
    assert_eq!(made_behind(&haulier), 1);
}

#[test]
fn beyond_the_variants_that_are_kept_the_next_best_stays() {
    // Nothing fits beyond the first variant, so the better one is never made.
    let haulier = Images::new().with(BEHIND).with("variants = 1").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let target = format!("/{id}?w=32&f=auto");
    let first = ask(&haulier, &target).expect(200);
    assert_eq!(first.field("Cache-Control"), Some("public, max-age=60"));
    for _ in 0..3 {
        let request = Request::get(&target).with("Accept", "image/webp");
        let unchanged = haulier.ask(&request.with("If-None-Match", &tag(&first))).expect(304);
        assert_ne!(
            unchanged.field("Cache-Control"),
            Some("public, max-age=60"),
            "nothing better is to come"
        );
    }
    assert_eq!(picture(ask(&haulier, &target)).0, Format::Jpeg);
    assert_eq!(made_behind(&haulier), 0);
}

#[test]
fn what_was_put_off_is_sent_once_it_is_there() {
    let images = Images::new().with(BEHIND).with("variants = 1");
    let disk = format!("cache = [\"disk:{}:10MiB\"]", images.path("cache").display());
    let haulier = images
        .with(&disk)
        .more("[site.img.images.presets]\nwebp = \"w=32&f=webp\"")
        .start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let auto = || ask(&haulier, &format!("/{id}?w=32&f=auto"));
    for _ in 0..2 {
        assert_eq!(
            picture(auto()).0,
            Format::Jpeg,
            "one variant is kept, and it is not the better one"
        );
    }
    // A preset is kept beyond their number.
    let from_disk = || {
        let series = "haulier_image_requests_total{site=\"img\",result=\"disk\"}";
        haulier.metrics().count(series)
    };
    let before = from_disk();
    wait_until("the preset to be on the disk", || {
        assert_eq!(picture(haulier.get(&format!("/{id}?t=webp"))).0, Format::WebP);
        from_disk() > before
    });
    assert_eq!(picture(auto()).0, Format::WebP);
    assert_eq!(made_behind(&haulier), 0);
}

#[test]
fn without_a_cache_and_by_name_it_is_made_at_once() {
    let haulier = Images::new().with(BEHIND).with("cache = []").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    assert_eq!(picture(ask(&haulier, &format!("/{id}?w=32&f=auto"))).0, Format::WebP);
    let haulier = Images::new().with(BEHIND).start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    assert_eq!(picture(ask(&haulier, &format!("/{id}?w=32&f=webp"))).0, Format::WebP);
    assert_eq!(
        picture(ask(&haulier, &format!("/{id}?w=32&f=auto"))).0,
        Format::WebP,
        "it is there"
    );
}

#[test]
fn a_farther_cache_keeps_it_for_the_next_start_and_nothing_is_made_of_what_is_missing() {
    let images = Images::new();
    let disk = format!("cache = [\"disk:{}:10MiB\"]", images.path("cache").display());
    let haulier = images.with(BEHIND).with(&disk).start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let target = format!("/{id}?w=32&f=auto");
    assert_eq!(picture(ask(&haulier, &target)).0, Format::Jpeg);
    wait_until("the better one", || {
        seen(&ask(&haulier, &target).body).0 == Format::WebP
    });
    assert_eq!(picture(ask(&haulier, &target)).0, Format::WebP);
    ask(&haulier, "/5f189d8ec57f5a5a0d3dcba47fa797e2?w=32&f=auto").expect(404);
    assert_eq!(made_behind(&haulier), 1);
}

/// A PNG holds one picture, as an AVIF does.
const STILL: &str = "formats = [\"png\", \"webp\", \"jpeg\"]";

#[test]
fn an_animation_stays_one_though_a_still_format_is_better() {
    for (behind, made) in [("behind = [\"png\"]", 1), ("behind = []", 0)] {
        let haulier = Images::new().with(STILL).with(behind).start();
        let (moving, still) = (upload(&haulier, &animation()), upload(&haulier, &jpeg(64, 48, 0)));
        let animated = || ask(&haulier, &format!("/{moving}?w=8&f=auto"));
        assert_eq!(picture(animated()), (Format::WebP, 8, 8));
        // Made behind the answers after it.
        let last = || ask(&haulier, &format!("/{still}?w=32&f=auto"));
        wait_until("a still", || seen(&last().body).0 == Format::Png);
        for _ in 0..2 {
            let answer = animated();
            assert_eq!(answer.field("Vary"), Some("Accept"));
            assert_ne!(
                answer.field("Cache-Control"),
                Some("public, max-age=60"),
                "nothing is to come"
            );
            let image = Original::read(&answer.body, &Limits::default()).expect("an image");
            assert_eq!((image.format, image.frames), (Format::WebP, 2), "{behind}");
        }
        wait_until("it to be counted", || made_behind(&haulier) >= made);
        assert_eq!(made_behind(&haulier), made, "{behind}");
        // Who wants one picture, or takes no animation, has the better format.
        let one = || ask(&haulier, &format!("/{moving}?w=8&f=auto&still=1"));
        wait_until("one picture", || seen(&one().body).0 == Format::Png);
        let other = || haulier.ask(&Request::get(&format!("/{moving}?w=8&f=auto")).with("Accept", "image/png"));
        wait_until("the first picture", || seen(&other().body).0 == Format::Png);
    }
}

#[test]
fn what_came_meanwhile_is_not_made_again() {
    let images = Images::new();
    let disk = format!("cache = [\"disk:{}:10MiB\"]", images.path("cache").display());
    let haulier = images.with(BEHIND).with(&disk).start();
    let (large, small) = (
        upload(&haulier, &jpeg(1600, 1200, 0)),
        upload(&haulier, &jpeg(64, 48, 0)),
    );
    // One process works behind answers, and this one waits for those before it.
    for width in [1500, 1501, 1502] {
        ask(&haulier, &format!("/{large}?w={width}&f=auto")).expect(200);
    }
    assert_eq!(picture(ask(&haulier, &format!("/{small}?w=32&f=auto"))).0, Format::Jpeg);
    assert_eq!(picture(haulier.get(&format!("/{small}?w=32&f=webp"))).0, Format::WebP);
    let last = format!("/{small}?w=33&f=auto");
    wait_until("the last one", || seen(&ask(&haulier, &last).body).0 == Format::WebP);
    wait_until("the last one to be counted", || made_behind(&haulier) >= 4);
    assert_eq!(made_behind(&haulier), 4, "three large ones and the last");
}

#[test]
fn what_failed_by_its_name_is_tried_again_behind_an_answer() {
    let haulier = Images::new().with(BEHIND).with("timeout = \"2s\"").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    haulier.get(&format!("/{id}?w=31")).expect(200);
    let [worker] = children_of(haulier.pid())[..] else {
        panic!("one worker that waits for work");
    };
    let worker = Pid::from_raw(worker.cast_signed()).expect("a pid");
    kill_process(worker, Signal::STOP).expect("it is there");
    for attempt in ["late", "remembered"] {
        let answer = haulier.get(&format!("/{id}?w=32&f=webp"));
        assert_eq!(answer.status(), 422, "{attempt}: {}", answer.text());
    }
    let better = || ask(&haulier, &format!("/{id}?w=32&f=auto"));
    wait_until("the better one", || seen(&better().body).0 == Format::WebP);
}

#[test]
fn what_the_site_sets_on_all_answers_does_not_make_a_passing_one_last() {
    let headers = "[site.img.headers]\nCache-Control = \"public, max-age=86400\"\nX-Site = \"s\"";
    let haulier = Images::new().with(BEHIND).more(headers).start();
    let (large, small) = (
        upload(&haulier, &jpeg(1600, 1200, 0)),
        upload(&haulier, &jpeg(64, 48, 0)),
    );
    // One process works behind answers, and the small one waits for those before it.
    for width in [1500, 1501, 1502] {
        ask(&haulier, &format!("/{large}?w={width}&f=auto")).expect(200);
    }
    let target = format!("/{small}?w=32&f=auto");
    let first = ask(&haulier, &target).expect(200);
    let passing = "public, max-age=60";
    assert_eq!(first.field("Cache-Control"), Some(passing));
    let request = || Request::get(&target).with("Accept", "image/webp");
    for (name, value, status) in [
        ("If-None-Match", tag(&first).as_str(), 304),
        ("Range", "bytes=0-9", 206),
    ] {
        let answer = haulier.ask(&request().with(name, value)).expect(status);
        assert_eq!(
            (answer.field("Cache-Control"), answer.field("X-Site")),
            (Some(passing), Some("s"))
        );
    }
}

#[test]
fn a_file_of_the_site_has_its_better_one_too() {
    let images = format!("[site.test.images]\nroot = \".\"\n{BEHIND}");
    let site = Site::new().file("photo.jpg", jpeg(64, 48, 0)).config(&images);
    let haulier = site.config("[site.test.cache]\n\"/*\" = \"1y immutable\"").start();
    let first = ask(&haulier, "/photo.jpg?w=32&f=auto").expect(200);
    assert_eq!(first.field("Cache-Control"), Some("public, max-age=60"));
    assert_eq!(seen(&first.body).0, Format::Jpeg);
    let better = || ask(&haulier, "/photo.jpg?w=32&f=auto");
    wait_until("the better one", || seen(&better().body).0 == Format::WebP);
    assert_eq!(
        better().field("Cache-Control"),
        Some("public, max-age=31536000, immutable")
    );
}

#[test]
fn avif_comes_behind_a_webp() {
    if !Format::Avif.is_written() {
        eprintln!("SKIPPED: avif_comes_behind_a_webp, in a build without the feature `avif`");
        return;
    }
    let haulier = Images::new().with("formats = [\"avif\", \"webp\", \"jpeg\"]").start();
    let id = upload(&haulier, &jpeg(64, 48, 0));
    let target = format!("/{id}?w=32&f=auto");
    assert_eq!(picture(ask(&haulier, &target)), (Format::WebP, 32, 24));
    wait_until("the AVIF", || seen(&ask(&haulier, &target).body).0 == Format::Avif);
    assert_eq!(picture(ask(&haulier, &target)), (Format::Avif, 32, 24));
    let webp = haulier.ask(&Request::get(&target).with("Accept", "image/webp,*/*"));
    assert_eq!(picture(webp), (Format::WebP, 32, 24));
}
