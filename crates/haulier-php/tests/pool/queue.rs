//! The queue: more requests than workers, timeouts, clients that disconnect.

use std::sync::Arc;
use std::time::Duration;

use haulier_http::Presence;
use haulier_http::Reason;
use haulier_php::{Pool, PoolError};
use tokio::task::JoinSet;

use crate::support::responder::{Responder, end, hello, stdout};
use crate::support::{Call, PATIENCE, Scripts, at_some_pace, external, own_pool, wait_until_async};

fn spawn(tasks: &mut JoinSet<(usize, Result<String, PoolError>)>, number: usize, pool: &Arc<Pool>, call: Call) {
    let pool = Arc::clone(pool);
    tasks.spawn_local(async move { (number, call.answer(&pool).await.map(|answer| answer.text())) });
}

#[tokio::test(flavor = "local")]
async fn requests_beyond_the_workers_wait_and_are_all_answered() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, _| {});
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        spawn(&mut tasks, number, &pool, Call::get(&scripts, "do=sleep&n=10"));
    }
    let answers = tasks.join_all().await;
    let mut workers: Vec<String> = answers
        .into_iter()
        .map(|(_, answer)| answer.expect("an answer"))
        .collect();
    workers.sort();
    workers.dedup();
    assert_eq!(workers.len(), 2, "never more connections than workers: {workers:?}");
    assert_eq!(pool.status().load.idle, 2);
    pool.stop(Duration::ZERO).await;
}

#[test]
fn a_full_queue_turns_away_at_once_and_a_long_wait_ends() {
    at_some_pace(Duration::from_secs(2), a_full_queue);
}

async fn a_full_queue(wait: Duration) {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |settings, _| {
        settings.queue_length = 2;
        settings.queue_timeout = wait;
    });
    while Call::get(&scripts, "").answer(&pool).await.is_err() {} // PHP may take longer to load than one may wait
    let turned_away = pool.status().load.exhausted;
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, 0, &pool, Call::held(&scripts, "go"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    for number in 1..=2 {
        spawn(&mut tasks, number, &pool, Call::get(&scripts, ""));
    }
    wait_until_async("two wait", || pool.status().load.queued == 2).await;
    let full = Call::get(&scripts, "")
        .answer(&pool)
        .await
        .expect_err("the queue is full");
    assert!(
        matches!(full, PoolError::Exhausted { waited: Duration::ZERO }),
        "{full:?}"
    );
    assert_eq!(full.reason(), Reason::PoolFull);
    wait_until_async("no request waits any longer", || pool.status().load.queued == 0).await;
    scripts.open("go");
    let (mut answered, mut exhausted) = (0, 0);
    for (_, answer) in tasks.join_all().await {
        match answer {
            Ok(_) => answered += 1,
            Err(PoolError::Exhausted { waited }) if waited >= wait => exhausted += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!((answered, exhausted), (1, 2));
    assert_eq!(pool.status().load.exhausted, turned_away + 3);
    assert_eq!(pool.status().load.queued, 0);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn waiters_are_served_in_the_order_they_came() {
    let scripts = Scripts::new();
    let responder = Responder::start(|mut peer| {
        while let Some(request) = peer.request()? {
            let query = request
                .params
                .into_iter()
                .find(|(name, _)| name == "QUERY_STRING")
                .expect("a query")
                .1;
            std::thread::sleep(Duration::from_millis(5));
            peer.write(&[stdout(format!("A: b\n\n{query}").as_bytes()), end()].concat())?;
        }
        Ok(())
    });
    let pool = Pool::start(external(vec![responder.server()], 1)).expect("the pool starts");
    let mut tasks = JoinSet::new();
    for number in 0..30 {
        spawn(&mut tasks, number, &pool, Call::get(&scripts, &number.to_string()));
    }
    let mut order = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (number, answer) = done.expect("no panic");
        assert_eq!(answer.expect("an answer"), number.to_string());
        order.push(number);
    }
    assert_eq!(order, (0..30).collect::<Vec<_>>());
}

#[tokio::test(flavor = "local")]
async fn ten_thousand_waits_given_up_cost_no_worker() {
    let scripts = Scripts::new();
    let responder = Responder::answering(hello());
    let mut settings = external(vec![responder.server()], 3);
    settings.queue_length = 20_000;
    let pool = Pool::start(settings).expect("the pool starts");
    let call = Call::get(&scripts, "");
    for round in 0..100 {
        let mut waits = JoinSet::new();
        for number in 0..100 {
            spawn(&mut waits, number, &pool, Call::get(&scripts, ""));
        }
        // Some requests are granted a worker that they never take, some are running, most wait.
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        waits.shutdown().await;
        assert_eq!(pool.status().load.queued, 0);
        assert_eq!(pool.status().load.busy, 0);
    }
    let mut tasks = JoinSet::new();
    for number in 0..30 {
        spawn(&mut tasks, number, &pool, Call::get(&scripts, ""));
    }
    for (_, answer) in tasks.join_all().await {
        assert_eq!(answer.expect("an answer"), "hello");
    }
    assert_eq!(call.text(&pool).await, "hello");
    assert_eq!(pool.status().load.idle, 3);
}

#[tokio::test(flavor = "local")]
async fn a_client_that_left_while_it_waited_costs_no_worker() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, 0, &pool, Call::held(&scripts, "go"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    spawn(
        &mut tasks,
        1,
        &pool,
        Call {
            client: Presence::Gone,
            ..Call::get(&scripts, "")
        },
    );
    spawn(&mut tasks, 2, &pool, Call::get(&scripts, ""));
    wait_until_async("two wait", || pool.status().load.queued == 2).await;
    scripts.open("go");
    for (number, answer) in tasks.join_all().await {
        match number {
            1 => assert_eq!(answer.expect_err("its client is gone").reason(), Reason::ClientGone),
            _ => assert!(answer.is_ok(), "{answer:?}"),
        }
    }
    assert_eq!((pool.status().counts.served, pool.status().load.busy), (2, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn a_client_that_may_have_left_comes_after_all_that_wait_for_certain() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let (mut tasks, mut order) = (JoinSet::new(), Vec::new());
    spawn(&mut tasks, 0, &pool, Call::held(&scripts, "go"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    for number in 1..=6 {
        let client = if number <= 3 { Presence::Silent } else { Presence::Here };
        let call = Call {
            client,
            ..Call::get(&scripts, "do=sleep&n=20")
        };
        spawn(&mut tasks, number, &pool, call);
        wait_until_async("it waits", || pool.status().load.queued == number).await;
    }
    scripts.open("go");
    while let Some(done) = tasks.join_next().await {
        let (number, answer) = done.expect("no panic");
        assert!(answer.is_ok(), "{number}: {answer:?}");
        order.push(number);
    }
    assert_eq!(order[..4], [0, 4, 5, 6], "{order:?}");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn a_client_that_left_gives_up_its_place_in_the_queue() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |settings, _| settings.queue_length = 1);
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, 0, &pool, Call::held(&scripts, "go"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    let call = Call {
        client: Presence::Gone,
        ..Call::get(&scripts, "")
    };
    assert_eq!(
        call.answer(&pool).await.expect_err("its client is gone").reason(),
        Reason::ClientGone
    );
    assert_eq!(
        (pool.status().load.queued, pool.status().load.busy),
        (0, 1),
        "long before a worker was free"
    );
    scripts.open("go");
    assert!(tasks.join_next().await.expect("one").expect("no panic").1.is_ok());
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn waiting_requests_are_refused_when_the_pool_stops_and_running_ones_may_finish() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, 0, &pool, Call::held(&scripts, "go"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    spawn(&mut tasks, 1, &pool, Call::get(&scripts, ""));
    wait_until_async("one waits", || pool.status().load.queued == 1).await;
    tokio::join!(pool.stop(PATIENCE), async { scripts.open("go") });
    for (number, answer) in tasks.join_all().await {
        match number {
            0 => assert!(answer.expect("it was running").starts_with("slept")),
            _ => assert_eq!(answer.expect_err("it waited").reason(), Reason::PoolStopped),
        }
    }
    assert_eq!(
        Call::get(&scripts, "")
            .answer(&pool)
            .await
            .expect_err("stopped")
            .reason(),
        Reason::PoolStopped
    );
}

#[tokio::test(flavor = "local")]
async fn a_stop_without_grace_ends_what_runs() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |settings, _| settings.timeout = Duration::from_secs(3600));
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, 0, &pool, Call::get(&scripts, "do=spin"));
    wait_until_async("the worker is busy", || pool.status().load.busy == 1).await;
    tokio::time::timeout(PATIENCE, pool.stop(Duration::from_millis(50)))
        .await
        .expect("a script that never ends does not hold the stop up");
    let (_, answer) = tasks.join_next().await.expect("one task").expect("no panic");
    assert_eq!(answer.expect_err("it was ended").reason(), Reason::PoolStopped);
    assert_eq!(pool.status().counts.crashes, 0);
}

#[test]
fn one_worker_serves_the_threads_in_turn() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let first_pid = {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(Call::get(&scripts, "do=pid").text(&pool))
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    for number in 0..200 {
                        let body = number.to_string();
                        assert_eq!(Call::post(&scripts, "do=echo", body.as_bytes()).text(&pool).await, body);
                    }
                    assert_eq!(Call::get(&scripts, "do=pid").text(&pool).await, first_pid);
                });
            });
        }
    });
    let status = pool.status();
    assert_eq!(
        (
            status.counts.served,
            status.counts.retries,
            status.load.busy,
            status.load.idle
        ),
        (805, 0, 0, 1)
    );
}
