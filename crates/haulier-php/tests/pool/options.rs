//! The settings of supervised pools: replacement of workers, limits, slow requests.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use haulier_php::{Pool, PoolError, Resource, Rlimit, Shrink, Slow, User};
use tokio::task::JoinSet;

use crate::support::{
    Answer, Call, Scripts, at_some_pace, mark, own_pool, parent, php, php_processes, wait_until_async,
};

async fn pid(scripts: &Scripts, pool: &Arc<Pool>) -> u32 {
    let text = Call::get(scripts, "do=pid").text(pool).await;
    text.parse().expect("a process id")
}

/// The workers, without their master.
fn children(scripts: &Scripts) -> BTreeSet<u32> {
    let processes = php_processes(scripts.dir.path());
    let has_master = |pid: &u32| parent(*pid).is_some_and(|parent| processes.contains(&parent));
    processes.iter().copied().filter(has_master).collect()
}

#[tokio::test]
async fn the_replacement_runs_before_the_worker_goes() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 2, |_, own| {
        own.recycle.requests = 1;
        mark(&scripts, own);
    });
    let mut worker = pid(&scripts, &pool).await;
    for _ in 0..10 {
        wait_until_async("two workers and one in reserve", || {
            let now = children(&scripts);
            now.len() == 3 && !now.contains(&worker)
        })
        .await;
        let before = children(&scripts);
        worker = pid(&scripts, &pool).await;
        assert!(before.contains(&worker), "{worker} was not there before: {before:?}");
    }
    let status = pool.status();
    assert_eq!((status.counts.recycled(), status.counts.recycled_requests), (11, 11));
    assert_eq!((status.counts.crashes, status.counts.retries), (0, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_worker_that_has_grown_is_replaced_after_its_request() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, own| {
        own.recycle.memory = 40 << 20;
        own.ini.push(("memory_limit".into(), "512M".into()));
    });
    let first = pid(&scripts, &pool).await;
    for _ in 0..5 {
        assert_eq!(pid(&scripts, &pool).await, first, "a small page is no reason");
    }
    assert_eq!(
        Call::get(&scripts, "do=grow&n=200").text(&pool).await,
        first.to_string()
    );
    assert_ne!(pid(&scripts, &pool).await, first);
    let status = pool.status();
    assert_eq!((status.counts.recycled(), status.counts.recycled_memory), (1, 1));
    assert_eq!((status.counts.crashes, status.counts.retries), (0, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_worker_is_replaced_at_its_age_even_without_a_request() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, own| own.recycle.age = Duration::from_millis(300));
    let first = pid(&scripts, &pool).await;
    wait_until_async("it is replaced", || pool.status().counts.recycled_age >= 1).await;
    assert_ne!(pid(&scripts, &pool).await, first);
    assert_eq!((pool.status().counts.crashes, pool.status().counts.retries), (0, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn idle_workers_give_their_memory_back_but_for_the_least() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |_, own| {
        own.shrink = Some(Shrink {
            least: 1,
            idle: Duration::from_millis(300),
        });
        mark(&scripts, own);
    });
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (pool, call) = (Arc::clone(&pool), Call::held(&scripts, "go"));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("all of them to be busy", || pool.status().load.busy == 3).await;
    scripts.open("go");
    let used: BTreeSet<u32> = tasks
        .join_all()
        .await
        .iter()
        .map(|text| text.trim_start_matches("slept ").parse().expect("a process id"))
        .collect();
    assert_eq!(used.len(), 3);
    wait_until_async("two are given back", || pool.status().counts.shrunk == 2).await;
    wait_until_async("fresh ones stand in their place", || {
        let now = children(&scripts);
        now.len() == 3 && now.intersection(&used).count() == 1
    })
    .await;
    assert!(used.contains(&pid(&scripts, &pool).await), "the warm one comes first");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let status = pool.status();
    assert_eq!(
        (status.counts.shrunk, status.load.idle, status.counts.recycled()),
        (2, 1, 0),
        "one stays"
    );
    assert_eq!((status.counts.crashes, status.counts.retries), (0, 0));
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn what_the_administrator_sets_no_script_changes() {
    let scripts = Scripts::new();
    scripts.add(".user.ini", "default_charset = \"user\"\n");
    let pool = own_pool(&scripts, 1, |_, own| {
        own.ini.push(("precision".into(), "5".into()));
        own.ini_admin.push(("memory_limit".into(), "77M".into()));
        own.ini_admin.push(("default_charset".into(), "a\"b$c".into()));
    });
    let set = |name: &str, value: &str| Call::get(&scripts, &format!("do=ini-set&name={name}&value={value}"));
    assert_eq!(set("precision", "7").text(&pool).await, r#"["5","7"]"#);
    assert_eq!(set("memory_limit", "1G").text(&pool).await, r#"[false,"77M"]"#);
    assert_eq!(set("default_charset", "x").text(&pool).await, r#"[false,"a\"b$c"]"#);
    pool.stop(Duration::ZERO).await;
    let left = std::fs::read_dir(scripts.path("run")).expect("the directory").count();
    assert_eq!(left, 0, "neither socket nor settings stay behind");
}

#[tokio::test]
async fn limits_and_niceness_hold_for_every_worker() {
    let scripts = Scripts::new();
    let ours = rustix::process::nice(0).expect("it is known");
    let pool = own_pool(&scripts, 2, |_, own| {
        own.nice = 3;
        own.rlimits.push(Rlimit {
            resource: Resource::Nofile,
            limit: Some(77),
        });
    });
    let expected = format!("77 {}", (ours + 3).min(19));
    assert_eq!(Call::get(&scripts, "do=limits").text(&pool).await, expected);
    pool.stop(Duration::ZERO).await;
}

/// sched(7): 3 is SCHED_BATCH.
#[tokio::test]
async fn workers_wait_for_a_free_processor() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, _| {});
    assert_eq!(Call::get(&scripts, "do=policy").text(&pool).await, "3");
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn php_runs_as_the_group_that_the_pool_names() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can change the group");
        return;
    }
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |_, own| {
        own.user = Some(User {
            name: "www-data".into(),
            uid: 33,
            gid: 1,
        });
        own.ini_admin.push(("precision".into(), "9".into()));
    });
    let text = Call::get(&scripts, "do=user").text(&pool).await;
    assert!(text.starts_with("33 1 "), "{text}");
    assert_eq!(
        Call::get(&scripts, "do=ini-set&name=precision&value=3")
            .text(&pool)
            .await,
        r#"[false,"9"]"#,
        "another user reads the settings too"
    );
    pool.stop(Duration::ZERO).await;
}

#[test]
fn a_slow_request_gets_one_line_that_says_what_it_waits_for() {
    at_some_pace(Duration::from_millis(300), one_line_of_a_slow_request);
}

async fn one_line_of_a_slow_request(after: Duration) {
    let scripts = Scripts::new();
    let log = scripts.path("slow.log");
    let pool = own_pool(&scripts, 2, |settings, _| {
        settings.timeout = 13 * after;
        settings.slow = Some(Slow {
            after,
            log: Some(scripts.path("slow.log")),
        });
    });
    Call::get(&scripts, "").text(&pool).await;
    let asleep = format!("do=sleep&n={}", (6 * after).as_millis());
    let (asleep, spinning) = (Call::get(&scripts, &asleep), Call::get(&scripts, "do=spin"));
    let (slept, timed_out) = tokio::join!(asleep.answer(&pool), spinning.answer(&pool));
    assert!(timed_out.is_err());
    let slept = slept.expect("an answer");
    let lines = std::fs::read_to_string(log).expect("the log");
    let find = |text: &str| lines.lines().filter(|line| line.contains(text)).collect::<Vec<_>>();
    let (asleep, spinning) = (find("GET /app.php?do=sleep&n="), find("GET /app.php?do=spin"));
    assert_eq!(
        (asleep.len(), spinning.len(), lines.lines().count()),
        (1, 1, 2),
        "{lines}"
    );
    let pid = slept.pid.expect("it is known");
    assert!(asleep[0].contains(&format!("\"pid\":{pid},")), "{lines}");
    assert!(asleep[0].contains("sleep\""), "{lines}");
    assert!(spinning[0].contains("\"waits_for\":\"computing\""), "{lines}");
    assert_eq!(pool.status().counts.slow, 2);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn a_php_that_fails_to_start_for_a_while_loses_no_request() {
    let scripts = Scripts::new();
    let program = scripts.path("php-wrapper");
    let ready = scripts.path("ready");
    let text = format!(
        "#!/bin/sh\n[ -e '{}' ] || exit 1\nexec {} \"$@\"\n",
        ready.display(),
        php().display()
    );
    std::fs::write(&program, text).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let pool = own_pool(&scripts, 1, |_, own| own.php = program.clone());
    let call = Call::get(&scripts, "");
    let repair = async {
        wait_until_async("it failed some times", || pool.status().counts.exits >= 3).await;
        std::fs::write(&ready, "").expect("a file");
    };
    let (text, ()) = tokio::join!(call.text(&pool), repair);
    assert_eq!(text, "hello");
    assert_eq!((pool.status().counts.crashes, pool.status().load.exhausted), (0, 0));
    pool.stop(Duration::ZERO).await;
}

#[test]
fn a_long_silence_in_the_body_ends_the_worker_but_not_an_event_stream() {
    at_some_pace(Duration::from_millis(700), silence_in_a_body);
}

async fn silence_in_a_body(limit: Duration) {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 1, |settings, _| {
        settings.body_timeout = limit;
    });
    let response = Call::get(&scripts, "do=slow-body&n=60000")
        .send(&pool)
        .await
        .expect("a head");
    let error = Answer::of(response).await.expect_err("it says no more");
    let PoolError::Timeout {
        pid: Some(pid), after, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(after, limit);
    wait_until_async("the worker ends", || parent(pid).is_none()).await;
    let longer = format!("do=stream&n={}", (2 * limit).as_millis());
    for query in [&*longer, "do=slow-body&n=200"] {
        let response = Call::get(&scripts, query).send(&pool).await.expect("a head");
        assert_eq!(
            Answer::of(response).await.expect("the rest").text(),
            "firstsecond",
            "{query}"
        );
    }
    assert_eq!(pool.status().counts.timeouts, 1);
    pool.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "local")]
async fn php_without_requests_ends_and_the_next_request_starts_it() {
    let scripts = Scripts::new();
    for separate in [false, true] {
        let pool = own_pool(&scripts, 2, |settings, own| {
            own.shrink = Some(Shrink {
                least: 0,
                idle: Duration::from_millis(300),
            });
            own.separate = separate;
            settings.queue_length = 8;
            mark(&scripts, own);
        });
        let first = pid(&scripts, &pool).await;
        // A request that takes longer than that does not count as idle.
        let long = Call::get(&scripts, "do=sleep&n=900").text(&pool).await;
        assert!(long.starts_with("slept "), "{long}");
        wait_until_async("no process to be left", || php_processes(scripts.dir.path()).is_empty()).await;
        let status = pool.status();
        assert!(status.load.is_live, "the next request starts it");
        assert_eq!(
            (status.load.idle, status.counts.exits, status.counts.crashes),
            (0, 0, 0)
        );
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (pool, call) = (Arc::clone(&pool), Call::get(&scripts, "do=pid"));
            tasks.spawn_local(async move { call.text(&pool).await });
        }
        for pid in tasks.join_all().await {
            assert_ne!(pid, first.to_string());
        }
        wait_until_async("the second rest", || php_processes(scripts.dir.path()).is_empty()).await;
        pool.stop(Duration::ZERO).await;
        assert_eq!(pool.status().counts.exits, 0);
    }
}

#[tokio::test(flavor = "local")]
async fn no_more_workers_than_agreed_are_put_to_work_within_a_second() {
    let scripts = Scripts::new();
    let begun = std::time::Instant::now();
    let pool = own_pool(&scripts, 6, |_, own| own.spawn_rate = Some(2));
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (pool, call) = (Arc::clone(&pool), Call::held(&scripts, "go"));
        tasks.spawn_local(async move { call.text(&pool).await });
    }
    wait_until_async("all of them to be busy", || pool.status().load.busy == 6).await;
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    scripts.open("go");
    let pids: BTreeSet<String> = tasks.join_all().await.into_iter().collect();
    assert_eq!(pids.len(), 6);
    // Workers that have worked before may be used at once.
    let begun = pool.status().counts.served;
    for _ in 0..20 {
        pid(&scripts, &pool).await;
    }
    assert_eq!(pool.status().counts.served, begun + 20);
    pool.stop(Duration::ZERO).await;
}
