//! Supervised workers: settings, crashes, timeouts, replacement.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_http::Reason;
use haulier_php::{Pool, PoolError, PoolKind, StartError, User, WorkerActivity, WorkerStatus};
use tokio::task::JoinSet;

use crate::support::visitors::Visitors;
use crate::support::{
    Answer, Call, PATIENCE, Scripts, at_some_pace, kill, mark, own_pool, parent, php_processes, settings, supervised,
    wait_until_async,
};

#[tokio::test(flavor = "local")]
async fn every_worker_says_what_it_does() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |_, _| {});
    assert_eq!(pool.workers(), [], "none was needed yet");
    let mut tasks = JoinSet::new();
    // The long request first: otherwise it could get the worker of the other one on a slow machine, and one worker
    // would suffice.
    for query in ["do=sleep&n=50000", "do=pid"] {
        let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, query));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    let both_seen = || match pool.workers().as_slice() {
        [one, other] => matches!(one.work, WorkerActivity::Long(..)) && other.work == WorkerActivity::Idle,
        _ => false,
    };
    wait_until_async("one is idle and the other at work for long", both_seen).await;
    let workers = pool.workers();
    let WorkerActivity::Long(request, running) = &workers[0].work else {
        panic!("{workers:?}")
    };
    assert!(
        request.contains("do=sleep") && *running >= Duration::from_millis(100),
        "{workers:?}"
    );
    assert_eq!(workers[1].work, WorkerActivity::Idle);
    assert_eq!((workers[0].served, workers[1].served), (Some(0), Some(1)));
    let known = |worker: &WorkerStatus| worker.pid.is_some() && worker.memory.is_some_and(|memory| memory > 100_000);
    assert!(workers.iter().all(known), "{workers:?}");
    assert_ne!(workers[0].pid, workers[1].pid);
    tasks.abort_all();
    pool.stop(Duration::ZERO).await;
}

fn pid_of(text: &str) -> u32 {
    text.rsplit(' ')
        .next()
        .and_then(|pid| pid.parse().ok())
        .expect("a process id")
}

#[tokio::test]
async fn ini_and_environment_come_from_the_settings_alone() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, own| {
        own.ini.push(("memory_limit".into(), "77M".into()));
        own.env.push(("SITE".into(), "shop".into()));
    });
    assert_eq!(Call::get(&scripts, "do=ini&name=memory_limit").text(&pool).await, "77M");
    let env = Call::get(&scripts, "do=env").text(&pool).await;
    assert!(env.contains(r#""SITE":"shop""#), "{env}");
    assert!(env.contains(r#""PATH":"#), "{env}");
    assert!(!env.contains("CARGO"), "only what is named is copied: {env}");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn php_runs_as_the_pools_user_with_its_groups_and_no_others() {
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let line = passwd
        .lines()
        .find(|line| line.starts_with("www-data:"))
        .expect("www-data");
    let ids: Vec<u32> = line
        .split(':')
        .skip(2)
        .take(2)
        .map(|id| id.parse().expect("a number"))
        .collect();
    let scripts = Scripts::new();
    let is_root = rustix::process::geteuid().is_root();
    let mut own = supervised(&scripts, 2);
    own.user = Some(User {
        name: "www-data".into(),
        uid: ids[0],
        gid: ids[1],
    });
    let started = Pool::start(settings(PoolKind::Supervised(own)));
    if is_root {
        let pool = started.expect("the pool starts");
        let answer = Call::get(&scripts, "do=user").answer(&pool).await.expect("an answer");
        let groups = answer.text().rsplit(' ').next().map(str::to_owned);
        assert_eq!(
            answer.text(),
            format!("{} {} {}", ids[0], ids[1], groups.expect("groups"))
        );
        assert!(
            !answer.text().ends_with(" 0") && !answer.text().contains(",0"),
            "{}",
            answer.text()
        );
        assert!(answer.pid.is_some(), "the worker is told from its siblings also then");
        pool.stop(Duration::ZERO).await;
    } else {
        assert!(matches!(started, Err(StartError::Spawn { .. })), "{started:?}");
    }
}

#[tokio::test]
async fn the_socket_is_private_and_goes_with_the_pool() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let directory = scripts.path("run");
    let mode = std::fs::metadata(&directory)
        .expect("the directory")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&directory).expect("the directory").count(), 1);
    pool.stop(Duration::ZERO).await;
    assert_eq!(std::fs::read_dir(&directory).expect("the directory").count(), 0);
}

#[test]
fn a_pool_that_cannot_start_says_why() {
    let scripts = Scripts::new();
    let mut own = supervised(&scripts, 1);
    own.php = "/nowhere/php-cgi".into();
    let error = Pool::start(settings(PoolKind::Supervised(own))).expect_err("no such program");
    assert_eq!(error.to_string(), "cannot start /nowhere/php-cgi");
    let own = supervised(&scripts, 0);
    assert!(matches!(
        Pool::start(settings(PoolKind::Supervised(own))),
        Err(StartError::Empty)
    ));
    let mut own = supervised(&scripts, 1);
    own.socket_dir = scripts.path("app.php");
    assert!(matches!(
        Pool::start(settings(PoolKind::Supervised(own))),
        Err(StartError::SocketDir { .. })
    ));
    let mut own = supervised(&scripts, 1);
    own.socket_dir = scripts.path(&"long".repeat(40));
    assert!(matches!(
        Pool::start(settings(PoolKind::Supervised(own))),
        Err(StartError::Listen { .. })
    ));
}

#[tokio::test]
async fn the_worker_is_known_by_its_process_id() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 4, |_, _| {});
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(
            Call::get(&scripts, "do=slow-body&n=200")
                .send(&pool)
                .await
                .expect("a head"),
        );
    }
    let known: BTreeSet<u32> = slow
        .iter()
        .map(|response| response.pid().expect("the system tells"))
        .collect();
    assert_eq!(known.len(), 4, "four requests at a time have four workers");
    for response in slow {
        Answer::of(response).await.expect("the rest");
    }
    for _ in 0..8 {
        let answer = Call::get(&scripts, "do=pid").answer(&pool).await.expect("an answer");
        assert_eq!(answer.pid, Some(pid_of(&answer.text())));
    }
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_crash_is_an_error_with_the_process_and_the_next_request_works() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    let pid = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    let crash = Call {
        idempotent: false,
        ..Call::get(&scripts, "do=die")
    };
    match crash.answer(&pool).await.expect_err("the worker dies") {
        PoolError::Crashed { pid: found, .. } => assert_eq!(found, Some(pid)),
        other => panic!("{other:?}"),
    }
    scripts.add(
        "last.php",
        "<?php file_put_contents('php://stderr', \"this far\\n\"); usleep(300000); posix_kill(getmypid(), 9); sleep(9);",
    );
    let talkative = Call {
        script: scripts.path("last.php"),
        ..crash
    };
    let error = talkative.answer(&pool).await.expect_err("the worker dies");
    assert!(error.stderr_tail().contains("this far"), "{error:?}");
    let new = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    assert_ne!(new, pid);
    assert_eq!((pool.status().counts.crashes, pool.status().counts.retries), (2, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn an_idempotent_request_is_sent_again_once_only() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, _| {});
    Call::get(&scripts, "").text(&pool).await;
    let error = Call::get(&scripts, "do=die")
        .answer(&pool)
        .await
        .expect_err("it kills every worker it gets");
    assert_eq!(error.reason(), Reason::PhpCrashed);
    assert_eq!((pool.status().counts.crashes, pool.status().counts.retries), (1, 1));
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_worker_killed_while_idle_is_noticed_before_a_request_is_lost() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    for _ in 0..5 {
        let pid = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
        kill(pid);
        wait_until_async("the worker ends", || parent(pid).is_none()).await;
        // It must not be repeated, so it must not be sent to an ended worker.
        assert_eq!(Call::post(&scripts, "do=echo", b"once").text(&pool).await, "once");
    }
    assert_eq!(pool.status().counts.crashes, 0);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn workers_killed_under_load_cost_their_own_request_at_most() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 4, |_, own| mark(&scripts, own));
    let visitors = Visitors::start(&pool, 8, || Call::get(&scripts, "do=sleep&n=1"));
    let mut kills = 0;
    while kills < 20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let processes = php_processes(scripts.dir.path());
        let children: Vec<&u32> = processes
            .iter()
            .filter(|&&pid| parent(pid).is_some_and(|parent| processes.contains(&parent)))
            .collect();
        if let Some(&&child) = children.get(kills % children.len().max(1)) {
            kill(child);
            kills += 1;
        }
        if kills % 5 == 0 {
            visitors.all_get_answers().await;
        }
    }
    let outcomes = visitors.end().await;
    let (answered, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    for outcome in &failed {
        assert!(matches!(outcome, Err(PoolError::Crashed { .. })), "{outcome:?}");
    }
    assert!(!answered.is_empty());
    assert!(failed.len() <= kills, "{} failures by {kills} kills", failed.len());
    assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_killed_master_is_replaced_and_its_children_do_not_stay() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, own| mark(&scripts, own));
    let child = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    let master = parent(child).expect("its master");
    let old = php_processes(scripts.dir.path());
    kill(master);
    wait_until_async("a new master", || pool.status().counts.exits == 1).await;
    let new = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    assert_ne!(new, child);
    wait_until_async("the orphans end", || {
        php_processes(scripts.dir.path()).iter().all(|pid| !old.contains(pid))
    })
    .await;
    assert_eq!(pool.status().counts.crashes, 0);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_php_that_ends_at_once_is_started_ever_more_slowly_while_requests_wait() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |settings, own| {
        own.php = "/bin/false".into();
        settings.queue_timeout = Duration::from_secs(1);
    });
    let begun = Instant::now();
    while pool.status().counts.exits < 2 {
        let error = Call::get(&scripts, "")
            .answer(&pool)
            .await
            .expect_err("no worker answers");
        assert_eq!(error.reason(), Reason::PoolFull, "{error:?}");
        assert!(begun.elapsed() < PATIENCE, "it is not started again");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (exits, tenths) = (pool.status().counts.exits, begun.elapsed().as_millis() as u64 / 100);
    // The pauses double from 0.1 s, so there are fewer starts than with pauses of 0.1 s.
    assert!(exits < 4 + tenths / 2, "{exits} starts in {tenths} tenths of a second");
    pool.stop(Duration::ZERO).await;
}

#[test]
fn a_time_out_ends_that_worker_and_no_other() {
    at_some_pace(Duration::from_millis(1500), a_time_out);
}

async fn a_time_out(limit: Duration) {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |settings, _| settings.timeout = limit);
    let neighbour = {
        let (pool, call) = (Arc::clone(&pool), Call::held_in_body(&scripts, "go"));
        tokio::task::spawn_local(async move { call.answer(&pool).await })
    };
    wait_until_async("the neighbour runs", || pool.status().load.busy == 1).await;
    for attempt in 0..2 {
        // The worker of the connection is not known in the first attempt, and known in the second.
        let error = Call::get(&scripts, "do=spin")
            .answer(&pool)
            .await
            .expect_err("it never answers");
        let PoolError::Timeout {
            pid: Some(pid), after, ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(after, limit);
        wait_until_async("the worker ends", || parent(pid).is_none()).await;
        if attempt == 0 {
            Call::get(&scripts, "").text(&pool).await;
        }
    }
    scripts.open("go");
    let answer = neighbour
        .await
        .expect("no panic")
        .expect("the neighbour is not touched");
    assert_eq!(answer.text(), "firstsecond");
    assert_eq!(pool.status().counts.timeouts, 2);
    for _ in 0..6 {
        assert_eq!(Call::get(&scripts, "").text(&pool).await, "hello");
    }
    pool.stop(Duration::ZERO).await;
}

#[test]
fn the_time_limit_ends_with_the_head() {
    at_some_pace(Duration::from_millis(700), async |limit| {
        let scripts = Scripts::new();
        let pool = own_pool(&scripts, 1, |settings, _| settings.timeout = limit);
        let longer = format!("do=slow-body&n={}", (2 * limit).as_millis());
        assert_eq!(Call::get(&scripts, &longer).text(&pool).await, "firstsecond");
        pool.stop(Duration::ZERO).await;
    });
}

#[tokio::test(flavor = "local")]
async fn workers_are_replaced_after_max_requests_without_a_failure() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, own| own.recycle.requests = 5);
    let mut answers: Vec<u32> = Vec::new();
    for number in 0..60 {
        // Every fourth request closes its connection by not reading its input; the count continues.
        let call = match number % 4 {
            3 => Call {
                spooled: true,
                ..Call::post(&scripts, "do=pid", &vec![b'x'; 1_000_000])
            },
            _ => Call::post(&scripts, "do=pid", b"x"),
        };
        answers.push(pid_of(&call.text(&pool).await));
    }
    let workers: BTreeSet<u32> = answers.iter().copied().collect();
    for worker in &workers {
        let count = answers.iter().filter(|pid| *pid == worker).count();
        assert!(count <= 5, "worker {worker} answered {count} requests");
    }
    let status = pool.status();
    assert_eq!((status.counts.crashes, status.counts.retries), (0, 0));
    assert!(status.counts.recycled() >= 10, "{status:?}");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn no_php_is_left_after_a_stop() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |_, own| mark(&scripts, own));
    Call::get(&scripts, "").text(&pool).await;
    wait_until_async("a master and three children", || {
        php_processes(scripts.dir.path()).len() == 4
    })
    .await;
    pool.stop(Duration::from_secs(5)).await;
    assert!(php_processes(scripts.dir.path()).is_empty());
}

#[tokio::test]
async fn no_php_is_left_after_the_pool_is_dropped() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |_, own| mark(&scripts, own));
    Call::get(&scripts, "").text(&pool).await;
    drop(pool);
    wait_until_async("PHP ends", || php_processes(scripts.dir.path()).is_empty()).await;
}

#[tokio::test]
async fn a_master_that_hangs_is_replaced_when_its_children_are_missed() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, _| {});
    let child = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    let master = parent(child).expect("it lives");
    let stop = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("ours");
    };
    let children = || -> Vec<u32> {
        let text = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).expect("it lives");
        text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
    };
    wait_until_async("both children", || children().len() == 2).await;
    stop(master);
    children().into_iter().for_each(kill);
    let new = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    assert_ne!(parent(new).expect("it lives"), master);
    wait_until_async("the old one is gone", || parent(master).is_none()).await;
    assert_eq!(pool.status().counts.timeouts, 0, "long before its time was over");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn the_other_children_of_a_master_that_hangs_finish_what_they_are_at() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, _| {});
    let child = pid_of(&Call::get(&scripts, "do=pid").text(&pool).await);
    let master = parent(child).expect("it lives");
    let mut tasks = JoinSet::new();
    for gate in ["one", "other"] {
        let (pool, call) = (Arc::clone(&pool), Call::held(&scripts, gate));
        tasks.spawn_local(async move { call.answer(&pool).await.is_ok() });
    }
    wait_until_async("both work", || pool.status().load.busy == 2).await;
    let id = rustix::process::Pid::from_raw(master as i32).expect("a pid");
    rustix::process::kill_process(id, rustix::process::Signal::STOP).expect("ours");
    kill(child);
    wait_until_async("the master is replaced", || parent(master).is_none()).await;
    scripts.open("one");
    scripts.open("other");
    let answered = tasks.join_all().await;
    assert!(answered.contains(&true), "one child lived: {answered:?}");
    pool.stop(Duration::ZERO).await;
}
