//! When another script could do no more than share a processor.
//!
//! Scripts that compute take as long together as one after the other, but each of them takes longer: eight that share a
//! processor hold eight processes for eight times as long, and the unlucky ones answer last. So while as many compute as
//! there are processors, the next one begins when one ends. Scripts that wait, for a database or for a reader, leave the
//! processors free, and the next one begins at once. Measured by docs/experiments.md, "Twenty at once".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer;
use crate::state::Shared;

/// Scripts that cost less than this of a processor are not paced: they are cheaper in batches.
const SHORT: Duration = Duration::from_micros(300);
/// A script that began within this time is taken to compute: it may not even have its request.
const YOUNG: Duration = Duration::from_millis(1);
/// One that takes so many times what is usual does not count any more, nor one that has run for so long: they are not to
/// keep everybody else waiting.
const UNUSUAL: u32 = 4;
const LONG: Duration = Duration::from_millis(100);
/// What the system said of the scripts holds for this long, if there was no processor left.
const VALID: Duration = Duration::from_millis(1);
/// Beside twice as many as may compute: most processes the system is asked about at a time.
const MORE_LOOKS: usize = 8;
/// Time between two looks while requests wait.
const PAUSE: Duration = Duration::from_millis(2);

/// The scripts at work.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many may compute at once.
    most: usize,
    next_ticket: u64,
    scripts: Vec<Entry>,
    /// About how much of a processor one takes.
    cost: Duration,
    /// Since when no processor was left, as the system said last.
    full: Option<Instant>,
    /// /proc/loadavg; `None` where there is none.
    load: Option<File>,
}

#[derive(Debug)]
struct Entry {
    script: Script,
    since: Instant,
    /// How many were at work then, with this one.
    among: usize,
    pid: Option<u32>,
}

impl Entry {
    fn computes(&self, now: Instant, long: Duration) -> bool {
        let age = now.saturating_duration_since(self.since);
        age < YOUNG || age < long && self.pid.is_some_and(peer::is_computing)
    }
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Script(u64);

impl Pace {
    /// `None` if there are not more workers than may compute at once.
    pub(crate) fn of(most: usize, workers: usize) -> Option<Self> {
        (most < workers).then(|| Self {
            most,
            next_ticket: 0,
            scripts: Vec::new(),
            cost: Duration::ZERO,
            full: None,
            load: File::open("/proc/loadavg").ok(),
        })
    }

    /// Notes a script that begins, in this process if it is known. To be given to [`end`](Self::end).
    pub(crate) fn begin(&mut self, pid: Option<u32>, now: Instant) -> Script {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.scripts.push(Entry {
            script: Script(ticket),
            since: now,
            among: self.scripts.len() + 1,
            pid,
        });
        Script(ticket)
    }

    pub(crate) fn end(&mut self, script: &Script, now: Instant) {
        let Some(place) = self.scripts.iter().position(|entry| entry.script == *script) else {
            return;
        };
        let at_work = self.scripts.len();
        let ended = self.scripts.swap_remove(place);
        // While more are at work than there are processors for, each takes as much longer.
        let share = at_work.max(ended.among).div_ceil(self.most);
        let cost = now.saturating_duration_since(ended.since) / u32::try_from(share).unwrap_or(u32::MAX);
        self.cost = self.cost - self.cost / 8 + cost / 8;
    }

    /// Whether another script could do no more than share a processor, as far as the system tells.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        if self.cost < SHORT || self.scripts.len() < self.most {
            return false;
        }
        if self
            .full
            .is_some_and(|since| now.saturating_duration_since(since) < VALID)
        {
            return true;
        }
        // The load is read in 2 µs and tells where nothing is to be asked; a process takes 8 µs (Linux 6.18).
        let is_full = self.load_exceeds_most() && {
            let long = LONG.min(UNUSUAL * self.cost);
            let looked_at = self.scripts.iter().take(2 * self.most + MORE_LOOKS);
            let computing = looked_at.filter(|entry| entry.computes(now, long));
            computing.take(self.most).count() == self.most
        };
        self.full = is_full.then_some(now);
        is_full
    }

    /// Whether more threads than `most` have a processor or could use one; this one is among them. True if the system
    /// does not tell.
    fn load_exceeds_most(&self) -> bool {
        let Some(load) = &self.load else { return true };
        runnable(load).is_none_or(|runnable| runnable > self.most)
    }
}

/// The fourth word of /proc/loadavg begins with it (proc_loadavg(5)).
fn runnable(load: &File) -> Option<usize> {
    let mut text = [0; 64];
    let length = load.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// Starts the thread that lets waiting requests begin when scripts leave the processors free. It ends with the pool.
///
/// # Errors
/// The system has none to give.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let begin = move || {
        while shared.wait_for_pacing() {
            thread::sleep(PAUSE);
            shared.begin_waiting();
        }
    };
    thread::Builder::new().name("php-pace".into()).spawn(begin).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that does nothing but compute; ended with the value.
    struct Computing(Child);

    impl Computing {
        fn start() -> Self {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            Self(child.expect("a shell"))
        }
    }

    impl Drop for Computing {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Two may compute, and every script so far took a while.
    fn pace() -> Pace {
        let mut pace = Pace::of(2, 8).expect("more workers than processors");
        let now = Instant::now();
        for _ in 0..20 {
            let script = pace.begin(None, now);
            pace.end(&script, now + 10 * SHORT);
        }
        pace
    }

    /// Scripts of these processes that have run for this long.
    fn old(pace: &mut Pace, pids: &[u32], age: Duration) -> Vec<Script> {
        let since = Instant::now().checked_sub(age).expect("the system runs for longer");
        pids.iter().map(|&pid| pace.begin(Some(pid), since)).collect()
    }

    #[test]
    fn there_is_nothing_to_pace_among_fewer_workers() {
        assert!(Pace::of(4, 4).is_none() && Pace::of(4, 3).is_none());
        assert!(Pace::of(4, 5).is_some());
    }

    #[test]
    fn it_is_full_while_as_many_compute_as_may() {
        let (one, other) = (Computing::start(), Computing::start());
        let mut pace = pace();
        let mut scripts = old(&mut pace, &[one.0.id()], 2 * YOUNG);
        assert!(!pace.is_full(Instant::now()), "one may compute beside it");
        scripts.extend(old(&mut pace, &[other.0.id()], 2 * YOUNG));
        assert!(pace.is_full(Instant::now()));
        pace.end(&scripts.remove(0), Instant::now());
        assert!(!pace.is_full(Instant::now()));
    }

    #[test]
    fn scripts_that_wait_leave_it_open() {
        let mut sleeps: Vec<_> = (0..4)
            .map(|_| Command::new("sleep").arg("60").spawn().expect("sleep"))
            .collect();
        let _others = [(); 3].map(|()| Computing::start());
        thread::sleep(Duration::from_millis(200)); // they have begun to sleep
        let mut pace = pace();
        let pids: Vec<_> = sleeps.iter().map(Child::id).collect();
        let _scripts = old(&mut pace, &pids, 2 * YOUNG);
        assert!(!pace.is_full(Instant::now()), "whatever others compute");
        for sleep in &mut sleeps {
            sleep.kill().and_then(|()| sleep.wait()).expect("ours");
        }
    }

    #[test]
    fn a_script_counts_from_its_begin_until_it_has_run_for_long() {
        let _others = [(); 3].map(|()| Computing::start());
        let mut pace = pace();
        let now = Instant::now();
        // Processes that nobody knows are taken to compute only at first.
        let _scripts = [pace.begin(None, now), pace.begin(None, now)];
        assert!(pace.is_full(now));
        assert!(!pace.is_full(now + 2 * YOUNG));
        let processes = [Computing::start(), Computing::start()];
        let mut pace = self::pace();
        let _scripts = processes
            .each_ref()
            .map(|process| pace.begin(Some(process.0.id()), now));
        let unusual = UNUSUAL * pace.cost;
        assert!(unusual < LONG);
        assert!(pace.is_full(now + unusual - VALID));
        assert!(!pace.is_full(now + unusual), "it is not to keep everybody waiting");
        pace.cost = LONG;
        assert!(pace.is_full(now + LONG - VALID));
        assert!(!pace.is_full(now + LONG), "usual or not");
    }

    #[test]
    fn short_scripts_are_not_paced_however_many_share_a_processor() {
        let _others = [(); 3].map(|()| Computing::start());
        let (mut pace, now) = (Pace::of(1, 8).expect("more workers than processors"), Instant::now());
        for _ in 0..20 {
            // Eight at once take eight times as long.
            let scripts = [(); 8].map(|()| pace.begin(None, now));
            for script in &scripts {
                pace.end(script, now + 4 * SHORT);
            }
        }
        let _scripts = pace.begin(None, now);
        assert!(!pace.is_full(now), "{:?}", pace.cost);
        for _ in 0..20 {
            let script = pace.begin(None, now);
            pace.end(&script, now + 4 * SHORT);
        }
        assert!(pace.is_full(now), "{:?}", pace.cost);
    }

    #[test]
    fn the_load_of_the_system_is_read_again_each_time() {
        let load = File::open("/proc/loadavg").expect("Linux has it");
        for _ in 0..3 {
            assert!(
                runnable(&load).is_some_and(|runnable| runnable >= 1),
                "this thread runs"
            );
        }
    }
}
