//! Scripts that compute take turns; what waits, or computes for long, keeps no other from beginning.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::{Call, Scripts, own_pool, wait_until_async};

/// Computes until its gate is opened.
fn spinning(scripts: &Scripts, gate: &str) -> Call {
    Call::get(scripts, &format!("do=compute&gate={}", scripts.path(gate).display()))
}

#[tokio::test(flavor = "local")]
async fn a_script_does_not_begin_beside_one_that_computes() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 4, |_, own| own.computing = Some(1));
    pool.warm().await.expect("PHP answers");
    let mut tasks = JoinSet::new();
    let first = spinning(&scripts, "go");
    let (handle, call) = (pool.clone(), first);
    tasks.spawn_local(async move { call.text(&handle).await });
    wait_until_async("the first computes", || pool.status().load.busy == 1).await;
    let second = Call::get(&scripts, "").send(&pool).await.expect("an answer");
    assert!(
        second.queued() > Duration::ZERO,
        "three of four workers are free, and it waits"
    );
    scripts.open("go");
    assert_eq!(tasks.join_all().await, ["computed"]);
    drop(second);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn scripts_that_wait_let_others_begin() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 4, |_, own| own.computing = Some(1));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (pool, call) = (pool.clone(), Call::held(&scripts, "go"));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("all four workers are at work", || pool.status().load.busy == 4).await;
    assert_eq!(pool.status().load.queued, 2);
    scripts.open("go");
    assert!(tasks.join_all().await.iter().all(|text| text.starts_with("slept ")));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn scripts_that_compute_for_long_let_others_begin() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 4, |settings, own| {
        own.computing = Some(1);
        settings.queue_length = 0; // a request that could have a worker is not turned away
    });
    while Call::get(&scripts, "").answer(&pool).await.is_err() {} // PHP loads
    let mut tasks = JoinSet::new();
    for number in 1..=3 {
        let (handle, call) = (pool.clone(), spinning(&scripts, "go"));
        tasks.spawn_local(async move { call.text(&handle).await });
        wait_until_async("it computes", || pool.status().load.busy == number).await;
    }
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    scripts.open("go");
    assert_eq!(tasks.join_all().await, ["computed"; 3]);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn a_crowd_is_answered_whole() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 8, |_, own| own.computing = Some(1));
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let (pool, call) = (pool.clone(), Call::get(&scripts, "do=pid"));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(|pid| pid.parse::<u32>().is_ok()), "{answers:?}");
    let load = pool.status().load;
    assert_eq!((load.busy, load.queued), (0, 0));
    pool.stop(Duration::ZERO).await;
}
