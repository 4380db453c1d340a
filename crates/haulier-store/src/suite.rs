//! The contract of stores and caches, as a test that runs against each of them with its real server.
//!
//! It is part of the library, so that other implementations can run the same test. A violation is a panic that names
//! the rule.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::StoreRuntime;
use crate::cache::{Cache, CacheKey};
use crate::store::{Key, ObjectContent, ObjectPart, Put, Store};

/// Longer than any cache accepts.
const TOO_LONG: usize = 20 << 20;

/// Tests an empty store, which is empty again afterwards.
///
/// # Panics
/// The contract is violated.
pub fn store(runtime: &StoreRuntime, store: Arc<dyn Store>) {
    let test = async move {
        what_was_put_is_found_and_never_replaced(&*store).await;
        a_damaged_object_is_replaced(&*store).await;
        objects_of_any_length_come_back_whole(&*store).await;
        every_part_of_an_object_is_found(&*store).await;
        one_of_several_writers_is_told_that_it_created(&store).await;
        keys_are_listed_in_their_order(&*store).await;
    };
    if let Err(error) = runtime.block_on(runtime.spawn(test)) {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Tests a cache of at least 8 MiB.
///
/// # Panics
/// The contract is violated.
pub fn cache(runtime: &StoreRuntime, cache: Arc<dyn Cache>) {
    let test = async move {
        what_was_put_is_found_until_it_is_replaced_or_deleted(&*cache).await;
        values_of_any_content_come_back_whole(&*cache).await;
        a_value_that_is_too_long_is_left_out_and_hides_no_older_one(&*cache).await;
        callers_do_not_get_each_others_values(&cache).await;
    };
    if let Err(error) = runtime.block_on(runtime.spawn(test)) {
        std::panic::resume_unwind(error.into_panic());
    }
}

fn key(text: &str) -> Key {
    text.parse().expect("the suite's own key")
}

/// Bytes in which a shifted piece is noticed, including line ends and zeros.
fn content(length: usize, seed: u8) -> Bytes {
    (0..length)
        .map(|place| (place % 251) as u8 ^ seed)
        .collect::<Vec<u8>>()
        .into()
}

async fn read(store: &dyn Store, key: &Key) -> Option<Bytes> {
    let content = store.get(key).await.expect("the store answers")?;
    let length = content.length();
    let bytes = content.into_bytes().await.expect("a whole object");
    assert_eq!(
        bytes.len() as u64,
        length,
        "an object has the length it was said to have"
    );
    Some(bytes)
}

async fn what_was_put_is_found_and_never_replaced(store: &dyn Store) {
    let key = key("5f189d8ec57f5a5a0d3dcba47fa797e2");
    assert_eq!(read(store, &key).await, None);
    assert_eq!(store.head(&key).await.expect("an answer"), None);
    assert!(
        !store.delete(&key).await.expect("an answer"),
        "there is nothing to delete"
    );
    let (first, second) = (content(1000, 1), content(2000, 2));
    assert_eq!(store.put(&key, first.clone()).await.expect("stored"), Put::Created);
    assert_eq!(store.put(&key, second.clone()).await.expect("kept"), Put::Exists);
    assert_eq!(read(store, &key).await, Some(first));
    assert_eq!(store.head(&key).await.expect("an answer"), Some(1000));
    assert!(store.delete(&key).await.expect("deleted"));
    assert_eq!(read(store, &key).await, None);
    assert_eq!(store.head(&key).await.expect("an answer"), None);
    assert!(!store.delete(&key).await.expect("an answer"), "it is deleted once");
    assert_eq!(store.put(&key, second.clone()).await.expect("stored"), Put::Created);
    assert_eq!(read(store, &key).await, Some(second));
    assert!(store.delete(&key).await.expect("deleted"));
}

async fn a_damaged_object_is_replaced(store: &dyn Store) {
    let key = key("0123456789abcdef");
    assert_eq!(store.put(&key, content(10, 1)).await.expect("stored"), Put::Created);
    for length in [2000, 500] {
        let right = content(length, 2);
        store.replace(&key, right.clone()).await.expect("replaced");
        assert_eq!(read(store, &key).await, Some(right));
    }
    assert!(store.delete(&key).await.expect("deleted"));
    assert_eq!(read(store, &key).await, None);
}

async fn objects_of_any_length_come_back_whole(store: &dyn Store) {
    for (number, length) in [0, 1, 65_535, 1 << 20, 5_000_001].into_iter().enumerate() {
        let key = key(&format!("len{number}-a_b.c"));
        let bytes = content(length, number as u8);
        assert_eq!(store.put(&key, bytes.clone()).await.expect("stored"), Put::Created);
        assert!(
            read(store, &key).await == Some(bytes),
            "{length} bytes come back as they were"
        );
        assert!(store.delete(&key).await.expect("deleted"));
    }
}

async fn every_part_of_an_object_is_found(store: &dyn Store) {
    let key = key("part0000");
    assert!(store.get_part(&key, 0..1).await.expect("an answer").is_none());
    let whole = content(3_000_000, 5);
    assert_eq!(store.put(&key, whole.clone()).await.expect("stored"), Put::Created);
    for (from, to) in [
        (0, 16),
        (1_000_000, 2_999_999),
        (2_999_999, 3_000_000),
        (2_000_000, 9_000_000),
    ] {
        let part = store
            .get_part(&key, from..to)
            .await
            .expect("an answer")
            .expect("it is there");
        let end = to.min(3_000_000);
        let (total, bytes) = match part {
            ObjectPart::File(file, state) => {
                let bytes = ObjectContent::File(file, state).into_bytes().await.expect("a file");
                (state.length(), bytes.slice(from as usize..end as usize))
            }
            ObjectPart::Stream { total, content } => {
                assert_eq!(
                    content.length(),
                    end - from,
                    "a part has the length it was said to have"
                );
                (total, content.into_bytes().await.expect("a whole part"))
            }
        };
        assert_eq!(total, 3_000_000);
        assert!(
            bytes == whole.slice(from as usize..end as usize),
            "bytes {from} to {to}"
        );
    }
    assert!(store.delete(&key).await.expect("deleted"));
}

async fn one_of_several_writers_is_told_that_it_created(store: &Arc<dyn Store>) {
    let key = key("race0000");
    let writers = (0..8).map(|number| {
        let (store, key) = (Arc::clone(store), key.clone());
        tokio::spawn(async move { store.put(&key, content(300_000, number)).await.expect("stored or kept") })
    });
    let outcomes = join_all(writers).await;
    let created: Vec<usize> = outcomes
        .into_iter()
        .enumerate()
        .filter(|(_, outcome)| matches!(outcome, Ok(Put::Created)))
        .map(|(number, _)| number)
        .collect();
    let [winner] = created[..] else {
        panic!("one writer creates, not {created:?}");
    };
    assert!(
        read(&**store, &key).await == Some(content(300_000, winner as u8)),
        "the object is that of the writer who was told so"
    );
    assert!(store.delete(&key).await.expect("deleted"));
}

async fn keys_are_listed_in_their_order(store: &dyn Store) {
    assert_eq!(store.list(None, 10).await.expect("a list"), []);
    let mut keys: Vec<Key> = ["bbbb1", "aaaa2", "aaab1", "aaaa1", "ab001", "aaaa1-x"]
        .iter()
        .map(|text| key(text))
        .collect();
    for key in &keys {
        assert_eq!(store.put(key, content(10, 0)).await.expect("stored"), Put::Created);
    }
    keys.sort();
    assert_eq!(store.list(None, 100).await.expect("a list"), keys);
    let mut found: Vec<Key> = Vec::new();
    loop {
        let page = store.list(found.last(), 2).await.expect("a page");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2, "no more than was asked for");
        found.extend(page);
    }
    assert_eq!(found, keys, "page by page it is the same list");
    for key in &keys {
        assert!(store.delete(key).await.expect("deleted"));
    }
    assert_eq!(store.list(None, 10).await.expect("a list"), []);
}

async fn find(cache: &dyn Cache, key: CacheKey) -> Option<Bytes> {
    let found = cache.get(key).await.expect("the cache answers")?;
    let length = found.length();
    let bytes = found.into_bytes().expect("a whole value");
    assert_eq!(bytes.len() as u64, length, "a value has the length it was said to have");
    Some(bytes)
}

async fn what_was_put_is_found_until_it_is_replaced_or_deleted(cache: &dyn Cache) {
    let key = CacheKey::of(&[b"suite", b"one"]);
    cache.delete(key).await.expect("deleting nothing is no failure");
    assert_eq!(find(cache, key).await, None);
    for seed in 0..3 {
        cache.put(key, content(1000, seed)).await.expect("kept");
        assert_eq!(find(cache, key).await, Some(content(1000, seed)));
    }
    cache.delete(key).await.expect("deleted");
    assert_eq!(find(cache, key).await, None);
}

async fn values_of_any_content_come_back_whole(cache: &dyn Cache) {
    let texts: [&'static [u8]; 4] = [b"", b"\r\nEND\r\n", b"\0\0\0", b"STORED"];
    let long = [65_536, 900_000].map(|length| content(length, 9));
    for (number, value) in texts.map(Bytes::from_static).into_iter().chain(long).enumerate() {
        let key = CacheKey::of(&[b"suite", &[number as u8]]);
        cache.put(key, value.clone()).await.expect("kept");
        assert!(
            find(cache, key).await == Some(value),
            "value {number} comes back as it was"
        );
        cache.delete(key).await.expect("deleted");
    }
}

async fn a_value_that_is_too_long_is_left_out_and_hides_no_older_one(cache: &dyn Cache) {
    let key = CacheKey::of(&[b"suite", b"long"]);
    cache.put(key, content(100, 1)).await.expect("kept");
    cache
        .put(key, content(TOO_LONG, 2))
        .await
        .expect("left out without a failure");
    assert_eq!(find(cache, key).await, None, "the older value is out of date");
}

async fn callers_do_not_get_each_others_values(cache: &Arc<dyn Cache>) {
    let callers = (0..100_u8).map(|number| {
        let cache = Arc::clone(cache);
        tokio::spawn(async move {
            let key = CacheKey::of(&[b"suite caller", &[number]]);
            let value = content(2000 + usize::from(number), number);
            cache.put(key, value.clone()).await.expect("kept");
            assert!(find(&*cache, key).await == Some(value), "caller {number} gets its own");
            cache.delete(key).await.expect("deleted");
        })
    });
    for outcome in join_all(callers).await {
        if let Err(error) = outcome {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
