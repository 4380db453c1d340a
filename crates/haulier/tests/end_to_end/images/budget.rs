//! A client that asks for every width: it gets them, and the caches do not fill with them.

use haulier_image::Format;

use crate::support::haulier::Haulier;
use crate::support::images::{Images, jpeg, picture, upload};
use crate::support::readable_directory;
use crate::support::wait_until;

fn counted(haulier: &Haulier, name: &str) -> u64 {
    haulier.metrics().count(&format!("{name}{{site=\"img\"}}"))
}

fn results(haulier: &Haulier, result: &str) -> u64 {
    let series = format!("haulier_image_requests_total{{site=\"img\",result=\"{result}\"}}");
    haulier.metrics().count(&series)
}

#[test]
fn variants_beyond_the_budget_are_made_and_kept_nowhere() {
    let disk = readable_directory();
    let haulier = Images::new()
        .with(&format!(
            "variants = 3\ncache = [\"memory:8MiB\", \"disk:{}:64MiB\"]",
            disk.path().display()
        ))
        .more("[site.img.images.presets]\nthumb = \"w=90\"")
        .start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    for width in 100..108 {
        assert_eq!(picture(haulier.get(&format!("/{id}?w={width}"))).1, width);
    }
    assert_eq!(counted(&haulier, "haulier_image_unkept_total"), 5);
    wait_until("the requests to be counted", || results(&haulier, "made") == 8);
    // The first three are there, the others are made again; a preset is the site's own and always kept.
    for target in ["w=100", "w=101", "w=102", "t=thumb", "w=107", "w=107", "t=thumb"] {
        haulier.get(&format!("/{id}?{target}")).expect(200);
    }
    wait_until("the requests to be counted", || results(&haulier, "memory") == 4);
    assert_eq!(results(&haulier, "made"), 11);
    assert_eq!(counted(&haulier, "haulier_image_unkept_total"), 7);
    // Another image has variants of its own.
    let other = upload(&haulier, &jpeg(640, 480, 1));
    for _ in 0..2 {
        haulier.get(&format!("/{other}?w=107")).expect(200);
    }
    wait_until("the requests to be counted", || results(&haulier, "memory") == 5);
    assert_eq!(counted(&haulier, "haulier_image_unkept_total"), 7);
}

#[test]
fn a_ladder_of_widths_makes_few_variants_of_many_addresses() {
    const KEY: &str = "a key with enough letters";
    let haulier = Images::new().with("widths = [200, 100, 400]").start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    for (query, expected) in [
        ("w=57", (100, 75)),
        ("w=100", (100, 75)),
        ("w=101", (200, 150)),
        ("w=150&h=75", (200, 100)),
        ("h=390", (533, 400)),
        ("w=1000", (400, 300)),
        ("w=50&h=40&mode=crop", (50, 40)),
    ] {
        let (format, width, height) = picture(haulier.get(&format!("/{id}?{query}")));
        assert_eq!((format, (width, height)), (Format::Jpeg, expected), "{query}");
    }
    let tag = |query: &str| haulier.get(&format!("/{id}?{query}")).field("ETag").map(str::to_owned);
    assert_eq!(tag("w=57"), tag("w=99"), "one variant");
    assert_ne!(tag("w=57"), tag("w=157"));
    // Whoever signs an address means it.
    let signing = Images::new().with(&format!("widths = [100]\nsign = {KEY:?}")).start();
    let id = upload(&signing, &jpeg(640, 480, 0));
    let signed = haulier_server::sign(KEY.as_bytes(), &format!("/{id}?w=57"));
    assert_eq!(picture(signing.get(&signed)).1, 57);
}
