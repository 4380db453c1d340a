//! External servers: several, ended, restarted, idle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haulier_http::Reason;
use haulier_php::{Address, Balance, Pool, PoolKind};
use tokio::task::JoinSet;

use crate::support::responder::{Responder, hello};
use crate::support::{Call, Fpm, Scripts, external, free_address, parent, wait_until, wait_until_async};

#[tokio::test]
async fn a_server_that_refuses_is_passed_over() {
    let scripts = Scripts::new();
    let responder = Responder::answering(hello());
    let dead = [
        Address::Unix(scripts.path("no-server.sock")),
        Address::Tcp(free_address()),
    ];
    let pool = Pool::start(external([&dead[..], &[responder.server()]].concat(), 2)).expect("the pool starts");
    for _ in 0..10 {
        assert_eq!(Call::post(&scripts, "", b"x").text(&pool).await, "hello");
    }
    assert_eq!(pool.status().load.busy, 0);
}

#[tokio::test]
async fn no_server_at_all_is_connect_refused() {
    let scripts = Scripts::new();
    let address = free_address();
    let pool = Pool::start(external(
        vec![Address::Unix(scripts.path("no-server.sock")), Address::Tcp(address)],
        2,
    ));
    let pool = pool.expect("the pool starts");
    for _ in 0..5 {
        let error = Call::get(&scripts, "")
            .answer(&pool)
            .await
            .expect_err("no server listens");
        assert_eq!(error.reason(), Reason::ConnectRefused);
        assert_eq!(error.to_string(), format!("cannot connect to {address}"));
    }
    assert_eq!((pool.status().load.busy, pool.status().load.idle), (0, 0));
}

#[tokio::test(flavor = "local")]
async fn the_least_busy_server_is_used() {
    let scripts = Scripts::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let servers: Vec<Responder> = (0..3)
        .map(|_| {
            let asked = Arc::clone(&asked);
            Responder::start(move |mut peer| {
                while peer.request()?.is_some() {
                    asked.fetch_add(1, Ordering::SeqCst);
                    wait_until("all of them are there", || asked.load(Ordering::SeqCst) == 6);
                    peer.write(&hello())?;
                }
                Ok(())
            })
        })
        .collect();
    let pool = Pool::start(external(servers.iter().map(Responder::server).collect(), 4)).expect("the pool starts");
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, ""));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    tasks.join_all().await;
    assert_eq!(servers.iter().map(Responder::accepted).collect::<Vec<_>>(), [2, 2, 2]);
}

#[tokio::test(flavor = "local")]
async fn requests_that_belong_together_go_to_the_same_server_as_long_as_it_is_well() {
    let scripts = Scripts::new();
    let mut first = Fpm::start(&scripts, 3);
    let other = Scripts::new();
    let second = Fpm::start(&other, 3);
    let mut settings = external(vec![first.unix.clone(), second.unix.clone()], 2);
    let PoolKind::External(external) = &mut settings.kind else {
        unreachable!("it was made so")
    };
    external.balance = Balance::Cookie("PHPSESSID".into());
    let pool = Pool::start(settings).expect("the pool starts");
    assert_eq!(pool.affinity_cookie(), Some("PHPSESSID"));
    // A php-fpm is identified by the parent of its children.
    let call = |key: &str| Call {
        affinity: Some(key.as_bytes().to_vec()),
        ..Call::get(&scripts, "do=pid")
    };
    let server_of = async |key: &str| {
        let pid = call(key).text(&pool).await.parse().expect("a process id");
        parent(pid).expect("it runs")
    };
    let keys: Vec<String> = (0..20).map(|number| format!("session{number}")).collect();
    let mut homes = Vec::new();
    for key in &keys {
        homes.push(server_of(key).await);
    }
    let distinct: BTreeSet<&u32> = homes.iter().collect();
    assert_eq!(distinct.len(), 2, "both have some");
    for (key, home) in keys.iter().zip(&homes) {
        assert_eq!(server_of(key).await, *home);
    }
    // More concurrent requests than the server accepts: they wait for it, although the other one is idle.
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (pool, call) = (Arc::clone(&pool), call(&keys[0]));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    for pid in tasks.join_all().await {
        assert_eq!(parent(pid.parse().expect("a process id")), Some(homes[0]));
    }
    // If their server is down, another one is used.
    first.stop();
    let left = server_of("session0").await;
    for key in &keys {
        assert_eq!(server_of(key).await, left);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_to_give_its_child_back() {
    let scripts = Scripts::new();
    let responder = Responder::answering(hello());
    let mut settings = external(vec![responder.server()], 2);
    let PoolKind::External(external) = &mut settings.kind else {
        unreachable!("it was made so")
    };
    external.idle_timeout = Duration::from_millis(200);
    let pool = Pool::start(settings).expect("the pool starts");
    for round in 1..=3 {
        assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
        assert_eq!(responder.accepted(), round);
        wait_until_async("the connection is closed", || pool.status().load.idle == 0).await;
    }
}

#[tokio::test]
async fn php_fpm_may_go_and_come_back() {
    let scripts = Scripts::new();
    let mut fpm = Fpm::start(&scripts, 2);
    let pool = Pool::start(external(vec![fpm.unix.clone()], 2)).expect("the pool starts");
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    fpm.stop();
    let error = Call::post(&scripts, "", b"x")
        .answer(&pool)
        .await
        .expect_err("it is gone");
    assert_eq!(error.reason(), Reason::ConnectRefused);
    let again = Fpm::start(&scripts, 2);
    assert_eq!(again.unix, fpm.unix);
    assert_eq!(Call::post(&scripts, "do=echo", b"back").text(&pool).await, "back");
}

#[tokio::test]
async fn an_empty_pool_does_not_start() {
    let scripts = Scripts::new();
    assert!(Pool::start(external(Vec::new(), 2)).is_err());
    assert!(Pool::start(external(vec![Address::Unix(scripts.path("x.sock"))], 0)).is_err());
}
