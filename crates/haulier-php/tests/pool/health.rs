//! External servers that fail and recover, with and without health checks.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulier_php::{Address, Balance, Health, Pool, PoolKind, PoolSettings};
use tokio::task::JoinSet;

use crate::support::responder::{Responder, hello};
use crate::support::{Call, Fpm, PATIENCE, Scripts, at_some_pace, external, free_address, wait_until_async};

/// Interval and timeout of the health checks.
fn with_health(mut settings: PoolSettings, path: &str, every: Duration) -> PoolSettings {
    let PoolKind::External(external) = &mut settings.kind else {
        unreachable!("it was made so")
    };
    external.health = Some(Health {
        path: path.into(),
        status: Some("/status".into()),
        every,
        fail: 2,
        recover: 2,
    });
    settings
}

fn up(pool: &Pool) -> Vec<bool> {
    pool.servers().iter().map(|server| server.status.is_up).collect()
}

#[test]
fn php_fpm_answers_the_ping_and_a_wrong_path_is_no_answer() {
    at_some_pace(Duration::from_millis(150), php_fpm_answers_the_ping);
}

async fn php_fpm_answers_the_ping(every: Duration) {
    let scripts = Scripts::new();
    let fpm = Fpm::start(&scripts, 3);
    let right = Pool::start(with_health(
        external(vec![fpm.unix.clone(), fpm.tcp.clone()], 2),
        "/ping",
        every,
    ));
    let wrong = Pool::start(with_health(external(vec![fpm.unix.clone()], 2), "/no-such-ping", every));
    let (right, wrong) = (right.expect("the pool starts"), wrong.expect("the pool starts"));
    wait_until_async("two failures", || up(&wrong) == [false]).await;
    assert_eq!(up(&right), [true, true]);
    assert!(!wrong.status().load.is_live);
    assert_eq!(Call::get(&scripts, "").text(&right).await, "hello");
    assert_eq!(
        Call::get(&scripts, "").text(&wrong).await,
        "hello",
        "where no server is well, all are tried"
    );
}

#[test]
fn a_server_that_does_much_for_others_gets_less_of_ours() {
    at_some_pace(Duration::from_millis(150), busy_for_others);
}

async fn busy_for_others(every: Duration) {
    let (scripts, other_scripts) = (Scripts::new(), Scripts::new());
    let (shared, own) = (Fpm::start(&scripts, 4), Fpm::start(&other_scripts, 4));
    let pool = Pool::start(with_health(
        external(vec![shared.tcp.clone(), own.tcp.clone()], 3),
        "/ping",
        every,
    ));
    let pool = pool.expect("the pool starts");
    let told = |server: usize| pool.servers()[server].told;
    wait_until_async("both tell", || (0..2).all(|server| told(server).is_some())).await;
    let free = told(0).expect("it told");
    assert_eq!((free.total, free.queued), (4, 0));
    // Another pool occupies three of its children.
    let others = Pool::start(external(vec![shared.tcp.clone()], 3)).expect("the pool starts");
    let mut held = JoinSet::new();
    for _ in 0..3 {
        let (others, call) = (Arc::clone(&others), Call::held(&scripts, "never"));
        held.spawn_local(async move { call.text(&others).await });
    }
    wait_until_async("it tells of them", || told(0).is_some_and(|told| told.active >= 3)).await;
    for _ in 0..3 {
        Call::get(&scripts, "").text(&pool).await;
    }
    let connections: Vec<_> = pool.servers().iter().map(|server| server.status.connections).collect();
    assert_eq!(connections[0], 0, "all went to the other one: {connections:?}");
    held.abort_all();
}

#[test]
fn a_server_that_hangs_is_left_out_until_it_answers() {
    at_some_pace(Duration::from_millis(150), one_that_hangs);
}

async fn one_that_hangs(every: Duration) {
    let scripts = Scripts::new();
    let silent = Responder::start(|mut peer| {
        while peer.request()?.is_some() {}
        Ok(())
    });
    let well = Responder::answering(hello());
    let servers = vec![silent.server(), well.server()];
    let mut settings = with_health(external(servers, 2), "/ping", every);
    settings.timeout = 10 * every;
    let pool = Pool::start(settings).expect("the pool starts");
    wait_until_async("the silent one is out", || up(&pool) == [false, true]).await;
    for _ in 0..10 {
        assert_eq!(Call::post(&scripts, "", b"x").text(&pool).await, "hello");
    }
}

/// One request hangs on a server; the requests waiting for that server go to the other one when it is out.
#[tokio::test(flavor = "local")]
async fn who_waits_for_a_server_that_is_left_out_goes_to_another() {
    const KEYS: usize = 20;
    let scripts = Scripts::new();
    let silent = Responder::start(|mut peer| {
        while peer.request()?.is_some() {}
        Ok(())
    });
    let well = Responder::answering(hello());
    let mut settings = with_health(
        external(vec![silent.server(), well.server()], 1),
        "/ping",
        Duration::from_secs(1),
    );
    let PoolKind::External(external) = &mut settings.kind else {
        unreachable!("it was made so")
    };
    external.balance = Balance::Cookie("PHPSESSID".into());
    let pool = Pool::start(settings).expect("the pool starts");
    let mut tasks = JoinSet::new();
    for key in 0..KEYS {
        let call = Call {
            affinity: Some(key.to_string().into_bytes()),
            ..Call::get(&scripts, "")
        };
        let pool = Arc::clone(&pool);
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    for _ in 1..KEYS {
        let answer = tokio::time::timeout(PATIENCE / 3, tasks.join_next()).await;
        let answer = answer.expect("only one of them hangs").expect("one is left");
        assert_eq!(answer.expect("no panic"), "hello");
    }
    assert_eq!(up(&pool), [false, true]);
    tasks.abort_all();
}

#[tokio::test]
async fn a_dead_server_costs_one_refused_connection_until_it_is_back() {
    let scripts = Scripts::new();
    let fpm = Fpm::start(&scripts, 3);
    let Address::Unix(path) = &fpm.unix else {
        unreachable!("it is one")
    };
    let elsewhere = path.with_extension("away");
    std::fs::rename(path, &elsewhere).expect("the socket can be moved");
    let pool = Pool::start(external(vec![fpm.unix.clone(), fpm.tcp.clone()], 1)).expect("the pool starts");
    for _ in 0..5 {
        assert_eq!(Call::post(&scripts, "do=echo", b"x").text(&pool).await, "x");
    }
    assert_eq!(up(&pool), [false, true]);
    std::fs::rename(&elsewhere, path).expect("and back");
    wait_until_async("it is asked again", || up(&pool) == [true, true]).await;
    let held = Call::held(&scripts, "go");
    let both = async {
        wait_until_async("both servers are at work again", || pool.status().load.busy == 2).await;
        scripts.open("go");
    };
    let (first, second, ()) = tokio::join!(held.text(&pool), held.text(&pool), both);
    assert_ne!(first, second);
}

#[tokio::test(flavor = "local")]
async fn a_server_stopped_and_started_under_load_costs_no_request_that_can_be_repeated() {
    let (scripts, other_scripts) = (Scripts::new(), Scripts::new());
    let (mut mortal, steady) = (Fpm::start(&scripts, 3), Fpm::start(&other_scripts, 3));
    let pool = Pool::start(external(vec![mortal.unix.clone(), steady.unix.clone()], 2)).expect("the pool starts");
    let (answers, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, "do=sleep&n=3"));
        let (answers, is_over) = (Rc::clone(&answers), Rc::clone(&is_over));
        tasks.spawn_local(async move {
            while !is_over.get() {
                let answer = call.answer(&pool).await.expect("another server has it");
                assert!(answer.text().starts_with("slept "));
                answers.set(answers.get() + 1);
            }
        });
    }
    let some_more = async || {
        let enough = answers.get() + 20;
        wait_until_async("twenty further answers", || answers.get() >= enough).await;
    };
    for _ in 0..3 {
        some_more().await;
        mortal.stop();
        some_more().await;
        mortal = Fpm::start(&scripts, 3);
    }
    some_more().await;
    is_over.set(true);
    tasks.join_all().await;
    let status = pool.status();
    assert_eq!(
        (status.counts.crashes, status.load.exhausted, status.load.busy),
        (0, 0, 0),
        "{status:?}"
    );
}

#[tokio::test(flavor = "local")]
async fn those_who_wait_get_the_worker_of_a_server_that_comes_back() {
    let scripts = Scripts::new();
    let address = free_address();
    let silent = Responder::start(|mut peer| {
        while peer.request()?.is_some() {}
        Ok(())
    });
    let pool = Pool::start(external(vec![Address::Tcp(address), silent.server()], 1)).expect("the pool starts");
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, ""));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("two wait", || pool.status().load.queued == 2).await;
    assert_eq!(up(&pool), [false, true]);
    let _listener = std::net::TcpListener::bind(address).expect("the address is free");
    wait_until_async("one of those who wait has it", || {
        up(&pool) == [true, true] && pool.status().load.busy == 2
    })
    .await;
    tasks.shutdown().await;
}
