//! Servers of others that fall ill and recover, with and without health checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_php::{Health, Pool, PoolKind, PoolSettings, Server};
use tokio::task::JoinSet;

use crate::support::responder::{Responder, hello};
use crate::support::{Call, Fpm, Scripts, external, free_address, wait_until_async};

fn with_health(mut settings: PoolSettings, path: &str) -> PoolSettings {
    let PoolKind::External(external) = &mut settings.kind else {
        unreachable!("it was made so")
    };
    external.health = Some(Health {
        path: path.into(),
        status: Some("/status".into()),
        every: Duration::from_millis(150),
        fail: 2,
        recover: 2,
    });
    settings
}

fn up(pool: &Pool) -> Vec<bool> {
    pool.servers().iter().map(|server| server.is_up).collect()
}

#[tokio::test]
async fn php_fpm_answers_the_ping_and_a_wrong_path_is_no_answer() {
    let scripts = Scripts::new();
    let fpm = Fpm::start(&scripts, 3);
    let right = Pool::start(with_health(
        external(vec![fpm.unix.clone(), fpm.tcp.clone()], 2),
        "/ping",
    ));
    let wrong = Pool::start(with_health(external(vec![fpm.unix.clone()], 2), "/no-such-ping"));
    let (right, wrong) = (right.expect("the pool starts"), wrong.expect("the pool starts"));
    wait_until_async("two failures", || up(&wrong) == [false]).await;
    assert_eq!(up(&right), [true, true]);
    assert!(!wrong.status().is_live);
    assert_eq!(Call::get(&scripts, "").text(&right).await, "hello");
    assert_eq!(
        Call::get(&scripts, "").text(&wrong).await,
        "hello",
        "where no server is well, all are tried"
    );
}

#[tokio::test(flavor = "local")]
async fn a_server_that_does_much_for_others_gets_less_of_ours() {
    let (scripts, other_scripts) = (Scripts::new(), Scripts::new());
    let (shared, own) = (Fpm::start(&scripts, 4), Fpm::start(&other_scripts, 4));
    let pool = Pool::start(with_health(
        external(vec![shared.tcp.clone(), own.tcp.clone()], 3),
        "/ping",
    ));
    let pool = pool.expect("the pool starts");
    let told = |server: usize| pool.servers()[server].told;
    wait_until_async("both tell", || (0..2).all(|server| told(server).is_some())).await;
    let free = told(0).expect("it told");
    assert_eq!((free.total, free.queued), (4, 0));
    // Another pool keeps three of its children.
    let others = Pool::start(external(vec![shared.tcp.clone()], 3)).expect("the pool starts");
    let mut held = JoinSet::new();
    for _ in 0..3 {
        let (others, call) = (Arc::clone(&others), Call::get(&scripts, "do=sleep&n=20000"));
        held.spawn_local(async move { call.text(&others).await });
    }
    wait_until_async("it tells of them", || told(0).is_some_and(|told| told.active >= 3)).await;
    for _ in 0..3 {
        Call::get(&scripts, "").text(&pool).await;
    }
    let connections: Vec<_> = pool.servers().iter().map(|server| server.connections).collect();
    assert_eq!(connections[0], 0, "all went to the other one: {connections:?}");
    held.abort_all();
}

#[tokio::test]
async fn a_server_that_hangs_is_left_out_until_it_answers() {
    let scripts = Scripts::new();
    let silent = Responder::start(|mut peer| {
        while peer.request()?.is_some() {}
        Ok(())
    });
    let well = Responder::answering(hello());
    let servers = vec![silent.server(), well.server()];
    let pool = Pool::start(with_health(external(servers, 2), "/ping")).expect("the pool starts");
    wait_until_async("the silent one is out", || up(&pool) == [false, true]).await;
    for _ in 0..10 {
        assert_eq!(Call::post(&scripts, "", b"x").text(&pool).await, "hello");
    }
}

#[tokio::test]
async fn a_dead_server_costs_one_refused_connection_until_it_is_back() {
    let scripts = Scripts::new();
    let fpm = Fpm::start(&scripts, 3);
    let Server::Unix(path) = &fpm.unix else {
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
    let slow = || Call::get(&scripts, "do=sleep&n=300");
    let (first, second) = (slow(), slow());
    let (first, second) = tokio::join!(first.text(&pool), second.text(&pool));
    assert_ne!(first, second, "both servers are at work again");
}

#[tokio::test(flavor = "local")]
async fn a_server_stopped_and_started_under_load_costs_no_request_that_can_be_repeated() {
    let (scripts, other_scripts) = (Scripts::new(), Scripts::new());
    let (mut mortal, steady) = (Fpm::start(&scripts, 3), Fpm::start(&other_scripts, 3));
    let pool = Pool::start(external(vec![mortal.unix.clone(), steady.unix.clone()], 2)).expect("the pool starts");
    let until = Instant::now() + Duration::from_secs(3);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, "do=sleep&n=3"));
        tasks.spawn_local(async move {
            let mut answers = 0;
            while Instant::now() < until {
                let answer = call.answer(&pool).await.expect("another server has it");
                assert!(answer.text().starts_with("slept "));
                answers += 1;
            }
            answers
        });
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        mortal.stop();
        tokio::time::sleep(Duration::from_millis(300)).await;
        mortal = Fpm::start(&scripts, 3);
    }
    let answers: usize = tasks.join_all().await.iter().sum();
    assert!(answers > 100, "{answers} answers");
    let status = pool.status();
    assert_eq!((status.crashes, status.exhausted, status.busy), (0, 0, 0), "{status:?}");
}

#[tokio::test(flavor = "local")]
async fn those_who_wait_get_the_worker_of_a_server_that_comes_back() {
    let scripts = Scripts::new();
    let address = free_address();
    let slow = Responder::start(|mut peer| {
        while peer.request()?.is_some() {
            std::thread::sleep(Duration::from_millis(1500));
            peer.write(&hello())?;
        }
        Ok(())
    });
    let pool = Pool::start(external(vec![Server::Tcp(address), slow.server()], 1)).expect("the pool starts");
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, ""));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("two wait", || pool.status().queued == 2).await;
    assert_eq!(up(&pool), [false, true]);
    let _listener = std::net::TcpListener::bind(address).expect("nobody took it");
    wait_until_async("one of those who wait has it", || {
        up(&pool) == [true, true] && pool.status().busy == 2
    })
    .await;
    tasks.shutdown().await;
}
