//! Scripts that want a processor, more of them than may compute at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_php::{Pool, PoolError};
use tokio::task::JoinSet;

use crate::support::{Call, Scripts, own_pool, wait_until_async};

const CLIENTS: usize = 6;
const REQUESTS: usize = 40;
/// Milliseconds of a processor that each request takes.
const COST: usize = 3;

/// All workers have answered, so that their processes are known. The gate is one of its own.
async fn warm(scripts: &Scripts, pool: &Arc<Pool>, gate: &str) {
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (pool, call) = (Arc::clone(pool), Call::held(scripts, gate));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("all workers are busy", || pool.status().busy == CLIENTS).await;
    scripts.open(gate);
    tasks.join_all().await;
}

/// Each client asks again as soon as it has its answer. How many requests were at work on average.
async fn at_work(scripts: &Scripts, pool: &Arc<Pool>) -> f64 {
    let (before, begun) = (pool.status(), Instant::now());
    let mut tasks: JoinSet<Result<(), PoolError>> = JoinSet::new();
    for _ in 0..CLIENTS {
        let (pool, call) = (Arc::clone(pool), Call::get(scripts, &format!("do=compute&n={COST}")));
        tasks.spawn_local(async move {
            for _ in 0..REQUESTS {
                assert_eq!(call.answer(&pool).await?.text(), "computed");
            }
            Ok(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("every request is answered");
    }
    let after = pool.status();
    assert_eq!(after.served - before.served, (CLIENTS * REQUESTS) as u64);
    assert_eq!(after.queued, 0);
    (after.busy_time - before.busy_time).as_secs_f64() / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "local")]
async fn scripts_that_compute_begin_one_after_the_other() {
    let scripts = Scripts::new();
    let mut at_work_by_limit = Vec::new();
    for (gate, computing) in [("first", None), ("second", Some(1))] {
        let pool = own_pool(&scripts, CLIENTS, |_, own| own.computing = computing);
        warm(&scripts, &pool, gate).await;
        at_work_by_limit.push(at_work(&scripts, &pool).await);
        pool.stop(Duration::ZERO).await;
    }
    let [all, paced] = at_work_by_limit[..] else {
        unreachable!("two pools")
    };
    assert!(paced < 0.75 * all, "{paced:.2} at work instead of {all:.2}");
}

#[tokio::test(flavor = "local")]
async fn nobody_is_turned_away_while_a_worker_is_free() {
    let scripts = Scripts::new();
    for (gate, queue_length) in [("first", 0), ("second", 1)] {
        let pool = own_pool(&scripts, CLIENTS, |settings, own| {
            own.computing = Some(1);
            settings.queue_length = queue_length;
        });
        while Call::get(&scripts, "").answer(&pool).await.is_err() {} // PHP takes a while to load
        warm(&scripts, &pool, gate).await;
        let turned_away = pool.status().exhausted;
        at_work(&scripts, &pool).await;
        assert_eq!(pool.status().exhausted, turned_away);
        pool.stop(Duration::ZERO).await;
    }
}

#[tokio::test(flavor = "local")]
async fn scripts_that_wait_leave_the_processor_to_others() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, CLIENTS, |_, own| own.computing = Some(1));
    warm(&scripts, &pool, "warm").await;
    let mut tasks = JoinSet::new();
    for number in 0..CLIENTS {
        let (holding, call) = (Arc::clone(&pool), Call::held(&scripts, "go"));
        tasks.spawn_local(async move { call.text(&holding).await });
        let busy = number + 1;
        wait_until_async("it begins beside the others", || pool.status().busy == busy).await;
        tokio::time::sleep(Duration::from_millis(3)).await; // they are old enough to count
    }
    scripts.open("go");
    tasks.join_all().await;
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn a_script_that_computes_for_ever_holds_nobody_back() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, CLIENTS, |_, own| own.computing = Some(1));
    warm(&scripts, &pool, "warm").await;
    let mut endless = JoinSet::new();
    let (spinning, call) = (Arc::clone(&pool), Call::get(&scripts, "do=spin"));
    endless.spawn_local(async move { call.answer(&spinning).await.map(drop) });
    wait_until_async("it computes", || pool.status().busy == 1).await;
    at_work(&scripts, &pool).await;
    assert_eq!(pool.status().busy, 1);
    pool.stop(Duration::ZERO).await;
}
