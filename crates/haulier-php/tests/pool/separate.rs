//! Separate workers, for systems that cannot tell the children of a master apart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use haulier_php::{Pool, PoolError, PoolSettings, Supervised};
use tokio::task::JoinSet;

use crate::support::visitors::Visitors;
use crate::support::{Call, Scripts, at_some_pace, kill, mark, own_pool, parent, php_processes, wait_until_async};

fn separate(scripts: &Scripts, workers: usize, change: impl FnOnce(&mut PoolSettings, &mut Supervised)) -> Arc<Pool> {
    own_pool(scripts, workers, |settings, own| {
        own.separate = true;
        mark(scripts, own);
        change(settings, own);
    })
}

#[tokio::test(flavor = "local")]
async fn each_worker_is_a_process_of_ours_and_known_by_its_id() {
    let scripts = Scripts::new();
    let pool = separate(&scripts, 3, |_, _| {});
    let mut tasks = JoinSet::new();
    for _ in 0..12 {
        let (pool, call) = (Arc::clone(&pool), Call::held(&scripts, "go"));
        tasks.spawn_local(async move {
            let answer = call.answer(&pool).await.expect("an answer");
            assert_eq!(answer.text(), format!("slept {}", answer.pid.expect("it is known")));
            answer.pid
        });
    }
    wait_until_async("all workers are busy", || pool.status().load.busy == 3).await;
    scripts.open("go");
    let pids: BTreeSet<_> = tasks.join_all().await.into_iter().collect();
    assert_eq!(pids.len(), 3);
    let processes = php_processes(scripts.dir.path());
    assert_eq!(processes.len(), 3);
    assert!(processes.iter().all(|&pid| parent(pid) == Some(std::process::id())));
    let cache = Call::get(&scripts, "do=ini&name=opcache.file_cache").text(&pool).await;
    assert!(cache.starts_with("/proc/self/fd/"), "{cache}");
    pool.stop(Duration::ZERO).await;
    assert!(php_processes(scripts.dir.path()).is_empty());
    let left = std::fs::read_dir(scripts.path("run")).expect("the directory").count();
    assert_eq!(left, 0, "neither sockets nor compiled scripts stay behind");
}

#[test]
fn a_time_out_ends_that_worker_and_no_other() {
    at_some_pace(Duration::from_millis(1500), a_time_out);
}

async fn a_time_out(limit: Duration) {
    let scripts = Scripts::new();
    let pool = separate(&scripts, 2, |settings, _| {
        settings.timeout = limit;
    });
    Call::get(&scripts, "").text(&pool).await;
    let neighbour = {
        let (pool, call) = (Arc::clone(&pool), Call::held_in_body(&scripts, "go"));
        tokio::task::spawn_local(async move { call.answer(&pool).await })
    };
    wait_until_async("the neighbour runs", || pool.status().load.busy == 1).await;
    for _ in 0..2 {
        let error = Call::get(&scripts, "do=spin")
            .answer(&pool)
            .await
            .expect_err("it never answers");
        let PoolError::Timeout { pid: Some(pid), .. } = error else {
            panic!("{error:?}")
        };
        wait_until_async("the worker ends", || parent(pid).is_none()).await;
    }
    scripts.open("go");
    let answer = neighbour
        .await
        .expect("no panic")
        .expect("the neighbour is not touched");
    assert_eq!(answer.text(), "firstsecond");
    for _ in 0..6 {
        assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    }
    assert_eq!((pool.status().counts.timeouts, pool.status().counts.exits), (2, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn workers_are_replaced_without_a_failure() {
    let scripts = Scripts::new();
    let pool = separate(&scripts, 2, |_, own| own.recycle.requests = 5);
    let mut pids: Vec<String> = Vec::new();
    for _ in 0..60 {
        pids.push(Call::post(&scripts, "do=pid", b"x").text(&pool).await);
    }
    let workers: BTreeSet<&String> = pids.iter().collect();
    assert!(workers.len() >= 12, "{} workers for 60 requests", workers.len());
    let status = pool.status();
    assert_eq!(
        (status.counts.crashes, status.counts.retries, status.counts.exits),
        (0, 0, 0)
    );
    assert!(status.counts.recycled() >= 11, "{status:?}");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn workers_killed_under_load_cost_no_request_that_can_be_repeated() {
    let scripts = Scripts::new();
    let pool = separate(&scripts, 3, |_, _| {});
    let visitors = Visitors::start(&pool, 6, || Call::get(&scripts, "do=sleep&n=1"));
    for _ in 0..6 {
        // No request is killed in its second attempt as well.
        visitors.all_get_answers().await;
        wait_until_async("a worker to kill", || {
            let worker = php_processes(scripts.dir.path()).first().copied();
            worker.map(kill).is_some()
        })
        .await;
    }
    for outcome in visitors.end().await {
        outcome.expect("sent again");
    }
    pool.stop(Duration::ZERO).await;
}
