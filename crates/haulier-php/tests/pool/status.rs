//! The status of a pool, compared with its actions.

use std::time::{Duration, Instant};

use haulier_php::{Address, Pool};
use tokio::task::JoinSet;

use crate::support::responder::{Responder, hello};
use crate::support::{Call, Scripts, external, free_address, own_pool, wait_until_async};

#[tokio::test(flavor = "local")]
async fn waits_and_busy_time_are_those_of_the_requests() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    Call::get(&scripts, "").text(&pool).await; // PHP takes its time to load
    let before = pool.status();
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for gate in ["one", "two"] {
        let (pool, call) = (pool.clone(), Call::held(&scripts, gate));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("one waits", || pool.status().load.queued == 1).await;
    let seen = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let least = seen.elapsed();
    scripts.open("one");
    scripts.open("two");
    tasks.join_all().await;
    let (after, elapsed) = (pool.status(), begun.elapsed());
    let waits = after.load.waits.classes.iter().sum::<u64>() - before.load.waits.classes.iter().sum::<u64>();
    assert_eq!(waits, 2);
    let waited = after.load.waits.sum - before.load.waits.sum;
    assert!(waited >= least && waited <= elapsed, "{waited:?} of {elapsed:?}");
    let busy = after.load.busy_time - before.load.busy_time;
    assert!(busy >= least && busy <= elapsed, "{busy:?} of {elapsed:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        pool.status().load.busy_time,
        after.load.busy_time,
        "an idle worker spends no time"
    );
    assert!(pool.memory().is_some_and(|bytes| bytes > 1_000_000));
    assert!(after.load.is_live && pool.servers().is_empty());
    pool.stop(Duration::ZERO).await;
    assert!(!pool.status().load.is_live);
}

#[tokio::test(flavor = "local")]
async fn a_request_that_takes_long_is_listed_while_it_runs() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, _| {});
    Call::get(&scripts, "").text(&pool).await;
    assert!(pool.running().is_empty());
    let long = tokio::task::spawn_local({
        let (pool, call) = (pool.clone(), Call::held(&scripts, "go"));
        async move { call.text(&pool).await }
    });
    wait_until_async("the request is listed", || pool.running().len() == 1).await;
    let listed = pool.running().remove(0);
    assert!(listed.running >= Duration::from_millis(90), "{listed:?}");
    assert!(
        pool.status().load.busy_time >= Duration::from_millis(90),
        "what still runs counts"
    );
    scripts.open("go");
    long.await.expect("no panic");
    assert!(pool.running().is_empty());
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_server_is_up_until_it_refuses_and_again_when_it_does_not() {
    let scripts = Scripts::new();
    let responder = Responder::answering(hello());
    let dead = free_address();
    let pool = Pool::start(external(vec![Address::Tcp(dead), responder.server()], 1)).expect("the pool starts");
    assert!(
        pool.servers()
            .iter()
            .all(|server| server.status.is_up && server.status.connections == 0)
    );
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    let servers = pool.servers();
    assert_eq!(
        (servers[0].status.name.clone(), servers[0].status.is_up),
        (dead.to_string(), false)
    );
    assert_eq!((servers[1].status.is_up, servers[1].status.connections), (true, 1));
    assert!(pool.status().load.is_live, "one of two is enough");
    assert_eq!(pool.memory(), None);
}
