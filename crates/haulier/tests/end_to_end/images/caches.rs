//! Cache tiers and stores with their real servers: found there, gone, and two haulier on the same ones.

use std::time::Duration;

use haulier_image::Format;

use crate::support::client::Request;
use crate::support::haulier::Haulier;
use crate::support::images::{Images, Service, jpeg, picture, upload};
use crate::support::load::{Load, assert_only, kill};
use crate::support::wait_until;

fn results(haulier: &Haulier, result: &str) -> u64 {
    let series = format!("haulier_image_requests_total{{site=\"img\",result=\"{result}\"}}");
    haulier.metrics().count(&series)
}

/// Makes a variant in one server and asks a second one, which shares only the cache and the store, for it.
#[track_caller]
fn is_shared(cache: &str, tier: &str) {
    let first = Images::new().with(&format!("cache = [{cache:?}]"));
    let store = first.store_path();
    let second = Images::new().store(&store.display().to_string());
    let first = first.start();
    let id = upload(&first, &jpeg(640, 480, 0));
    let second = second.with(&format!("cache = [{cache:?}]")).start();
    // A cache has 50 ms for its answer; one that had no processor meanwhile has nothing, and another width is tried.
    let mut width = 99;
    let (mut target, mut made) = (String::new(), Vec::new());
    wait_until("a hit in the second server", || {
        width += 1;
        target = format!("/{id}?w={width}");
        made = first.get(&target).expect(200).body;
        wait_until("the cache to have it", || {
            let before = results(&first, tier);
            first.get(&target).expect(200);
            std::thread::sleep(Duration::from_millis(20));
            results(&first, tier) > before
        });
        let (hits, makings) = (results(&second, tier), results(&second, "made"));
        let found = second.get(&target).expect(200).body;
        assert!(found == made, "the same bytes");
        wait_until("the request to be counted", || {
            results(&second, tier) + results(&second, "made") == hits + makings + 1
        });
        results(&second, tier) == hits + 1
    });
    let head = second.ask(&Request::head(&target)).expect(200);
    assert_eq!(head.field("Content-Length"), Some(made.len().to_string().as_str()));
    let part = second
        .ask(&Request::get(&target).with("Range", "bytes=7-30"))
        .expect(206);
    assert_eq!(part.body, made[7..31]);
}

#[test]
fn variants_on_disk_are_found_by_the_next_server() {
    let directory = crate::support::readable_directory();
    is_shared(&format!("disk:{}:64MiB", directory.path().display()), "disk");
}

#[test]
fn variants_in_memcached_are_shared() {
    let (one, two) = (Service::memcached(), Service::memcached());
    is_shared(
        &format!("memcached://127.0.0.1:{},127.0.0.1:{}", one.port, two.port),
        "memcached",
    );
}

#[test]
fn variants_in_redis_are_shared() {
    let redis = Service::redis();
    is_shared(&format!("redis://127.0.0.1:{}", redis.port), "redis");
}

#[test]
fn a_cache_that_goes_away_under_load_is_nobodys_trouble() {
    let (memcached, redis) = (Service::memcached(), Service::redis());
    let caches = format!(
        "cache = [\"memory:1MiB\", \"memcached://127.0.0.1:{}\", \"redis://127.0.0.1:{}\"]",
        memcached.port, redis.port
    );
    let haulier = Images::new().with(&caches).start();
    let id = upload(&haulier, &jpeg(640, 480, 0));
    let loads: Vec<Load> = (0..4)
        .map(|number| {
            Load::start(
                haulier.address(),
                2,
                &Request::get(&format!("/{id}?w={}", 100 + number)),
            )
        })
        .collect();
    let all_go_on = || loads.iter().for_each(|load| load.wait_for(5));
    all_go_on();
    drop(memcached);
    all_go_on();
    drop(redis);
    all_go_on();
    for load in loads {
        let statuses = load.statuses();
        assert_only(&statuses, &[200]);
    }
    for width in 200..206 {
        assert_eq!(picture(haulier.get(&format!("/{id}?w={width}"))).1, width);
    }
    wait_until("the failures to be counted", || {
        haulier.metrics().sum("haulier_image_cache_failures_total") > 0.0
    });
}

#[test]
fn two_haulier_on_one_bucket_and_one_memcached_serve_the_same_and_one_may_die() {
    let Some(s3) = Service::s3() else {
        println!("SKIPPED: no versitygw; `make test` installs it where Go is there");
        return;
    };
    let memcached = Service::memcached();
    let start = || {
        Images::new()
            .store("s3://bucket/originals")
            .with(&format!(
                "cache = [\"memory:8MiB\", \"memcached://127.0.0.1:{}\"]\ntoken = \"the token\"",
                memcached.port
            ))
            .more(&s3.s3_table())
            .start()
    };
    let (first, second) = (start(), start());
    let image = jpeg(1600, 1200, 3);
    let id = upload(&first, &image);
    assert!(
        second.get(&format!("/{id}")).expect(200).body == image,
        "the original, from the other one"
    );
    let target = format!("/{id}?w=300");
    let made = first.get(&target).expect(200).body;
    wait_until("the variant to be shared", || {
        let found = second.get(&target).expect(200).body;
        assert!(found == made);
        results(&second, "memcached") + results(&second, "memory") > 0
    });
    kill(first.pid());
    std::mem::forget(first);
    assert_eq!(picture(second.get(&format!("/{id}?w=301"))), (Format::Jpeg, 301, 226));
    let other = upload(&second, &jpeg(64, 48, 4));
    let deleted = Request::new("DELETE", &format!("/{other}")).with("Authorization", "Bearer the token");
    second.ask(&deleted).expect(204);
    second.get(&format!("/{other}")).expect(404);
    // What is cached outlives the store; what is not is said to be the store's failure.
    drop(s3);
    second.get(&target).expect(200);
    let answer = second.get(&format!("/{id}?w=555")).expect(502);
    assert!(answer.field("Retry-After").is_none());
}

#[test]
fn parts_of_a_long_original_come_from_the_bucket_alone() {
    let Some(s3) = Service::s3() else {
        println!("SKIPPED: no versitygw; `make test` installs it where Go is there");
        return;
    };
    let haulier = Images::new()
        .store("s3://bucket/originals")
        .more(&s3.s3_table())
        .start();
    let image = jpeg(4000, 3000, 3);
    let length = image.len();
    assert!(length > 2 << 20, "longer than what is cached of an original: {length}");
    let id = upload(&haulier, &image);
    let target = format!("/{id}");
    let whole = haulier.get(&target).expect(200);
    assert!(whole.body == image);
    assert_eq!(whole.field("Accept-Ranges"), Some("bytes"));
    let etag = whole.field("ETag").expect("a tag").to_owned();
    let ask = |range: &str| haulier.ask(&Request::get(&target).with("Range", range));
    for (range, from, to) in [
        ("bytes=0-99", 0, 99),
        ("bytes=1500000-1500009", 1_500_000, 1_500_009),
        ("bytes=-7", length - 7, length - 1),
        (&*format!("bytes={}-", length - 100), length - 100, length - 1),
    ] {
        let part = ask(range).expect(206);
        assert!(part.body == image[from..=to], "{range}");
        assert_eq!(part.field("Content-Type"), Some("image/jpeg"));
        assert_eq!(part.field("ETag"), Some(etag.as_str()));
        let place = format!("bytes {from}-{to}/{length}");
        assert_eq!(part.field("Content-Range"), Some(place.as_str()));
    }
    let beyond = ask(&format!("bytes={length}-")).expect(416);
    assert_eq!(
        beyond.field("Content-Range"),
        Some(format!("bytes */{length}").as_str())
    );
    assert!(ask("bytes=0-1,5-6").expect(200).body == image, "several are the whole");
    let other = Request::get(&target)
        .with("Range", "bytes=0-9")
        .with("If-Range", "\"other\"");
    assert!(haulier.ask(&other).expect(200).body == image);
    let same = Request::get(&target).with("Range", "bytes=0-9").with("If-Range", &etag);
    assert_eq!(haulier.ask(&same).expect(206).body, image[..10]);
    haulier
        .ask(&Request::get("/5f189d8ec57f5a5a0d3dcba47fa797e2").with("Range", "bytes=0-9"))
        .expect(404);
    // A short one is cached whole, and its parts come from there.
    let short = jpeg(300, 200, 4);
    let target = format!("/{}", upload(&haulier, &short));
    for _ in 0..2 {
        let part = haulier
            .ask(&Request::get(&target).with("Range", "bytes=5-8"))
            .expect(206);
        assert_eq!(part.body, short[5..9]);
    }
    wait_until("the second one to be counted", || results(&haulier, "memory") == 1);
}

#[test]
fn a_store_that_cannot_be_written_to_says_so_and_keeps_nothing() {
    let images = Images::new();
    let store = images.store_path();
    let haulier = images.start();
    let image = jpeg(64, 48, 0);
    std::fs::remove_dir_all(store.join("unfinished")).expect("the store is ours");
    std::fs::write(store.join("unfinished"), "").expect("a file in its place");
    let answer = haulier.ask(&Request::post("/upload", image.clone()).with("Content-Type", "image/jpeg"));
    assert_eq!(answer.status(), 500, "{}", answer.text());
    std::fs::remove_file(store.join("unfinished")).expect("the store is ours");
    std::fs::create_dir(store.join("unfinished")).expect("the store is ours");
    upload(&haulier, &image);
}
