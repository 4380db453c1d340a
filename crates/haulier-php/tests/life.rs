//! Tests that need their own process: no descriptor leaks, and PHP ends with us in any case.
//!
//! Without the usual harness: descriptors are counted, so no other test may run here, and the program starts itself.

#[path = "support/mod.rs"]
mod support;

const EMBEDDED: bool = false;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use haulier_php::Pool;
use support::responder::{Responder, hello, stdout};
use support::{Call, Scripts, external, kill, mark, own_pool, php_processes, wait_until};

/// Set for the process that will be killed; its value is the directory of the scripts.
const VICTIM: &str = "HAULIER_TEST_VICTIM";

fn main() {
    if std::env::var_os(VICTIM).is_some() {
        return be_a_victim();
    }
    php_ends_when_we_are_killed();
    no_descriptor_is_left_behind();
    println!("life: 2 tests passed");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Serves a request, reports that in the middle of another one, and waits to be killed.
fn be_a_victim() {
    let scripts = Scripts::new();
    let pool = own_pool(&scripts, 3, |_, own| mark(&scripts, own));
    runtime().block_on(async {
        Call::get(&scripts, "").text(&pool).await;
        let call = Call::get(&scripts, "do=sleep&n=60000");
        let running = call.answer(&pool);
        let report = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            println!("{}", scripts.dir.path().display());
        };
        let _ = tokio::join!(running, report);
    });
}

fn php_ends_when_we_are_killed() {
    let mut command = Command::new(std::env::current_exe().expect("our own program"));
    let mut victim = command
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut directory = Vec::new();
    let mut output = victim.stdout.take().expect("it is piped");
    while directory.last() != Some(&b'\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("it says where it works");
        directory.extend(byte);
    }
    let directory = std::path::PathBuf::from(String::from_utf8_lossy(&directory).trim_end());
    wait_until("a master and three children", || php_processes(&directory).len() == 4);
    kill(victim.id());
    victim.wait().expect("it is killed");
    wait_until("PHP ends", || php_processes(&directory).is_empty());
    let _ = std::fs::remove_dir_all(directory); // what the killed process could not tidy up
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

fn no_descriptor_is_left_behind() {
    let scripts = Scripts::new();
    drop(runtime()); // the first one opens what the process keeps for its signals
    let before = descriptors();
    let half = Responder::start(|mut peer| {
        peer.request()?;
        peer.write(&stdout(b"A: b\n\nhalf"))
    });
    let responders = [Responder::answering(hello()), Responder::answering(b"garbage!"), half];
    let with_responders = descriptors();
    for _ in 0..3 {
        let own = own_pool(&scripts, 2, |settings, _| settings.timeout = Duration::from_millis(300));
        runtime().block_on(use_every_way(&scripts, &own));
        for responder in &responders {
            let mut settings = external(vec![responder.server()], 2);
            settings.timeout = Duration::from_millis(300);
            let pool = Pool::start(settings).expect("the pool starts");
            runtime().block_on(use_every_way(&scripts, &pool));
        }
    }
    wait_until("the threads of the pools and responders close theirs", || {
        descriptors() <= with_responders
    });
    assert!(before <= with_responders);
}

/// Requests that are answered, fail, time out or are dropped.
async fn use_every_way(scripts: &Scripts, pool: &Arc<Pool>) {
    for _ in 0..20 {
        let _ = Call::get(scripts, "").answer(pool).await;
        let call = Call {
            spooled: true,
            ..Call::post(scripts, "do=unread", &vec![b'x'; 1_000_000])
        };
        let _ = call.answer(pool).await;
        let _ = tokio::time::timeout(
            Duration::from_millis(1),
            Call::get(scripts, "do=sleep&n=50").answer(pool),
        )
        .await;
        drop(Call::get(scripts, "do=big&n=1000").send(pool).await);
    }
    let _ = Call::get(scripts, "do=die").answer(pool).await;
    let _ = Call::get(scripts, "do=spin").answer(pool).await;
    pool.stop(Duration::ZERO).await;
}
