//! The scripts at work in a supervised pool, and which of them keep no processor busy.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::children;

/// A script that sleeps so soon after its start may not have been given the processor yet.
const YOUNG: Duration = Duration::from_micros(500);
/// A script that has worked for longer no longer keeps others from beginning.
const LONG: Duration = Duration::from_millis(100);

/// The scripts at work.
#[derive(Debug, Default)]
pub(crate) struct ScriptsAtWork(Mutex<Vec<Script>>);

#[derive(Debug, Clone, Copy)]
struct Script {
    begun: Instant,
    /// The process that runs it; `None` if it was not found.
    pid: Option<u32>,
}

/// Lists a script until dropped.
#[derive(Debug)]
pub(crate) struct AtWork {
    scripts: Arc<ScriptsAtWork>,
    begun: Instant,
}

impl ScriptsAtWork {
    fn lock(&self) -> MutexGuard<'_, Vec<Script>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a script that has begun in this process.
    pub(crate) fn add(self: &Arc<Self>, begun: Instant, pid: Option<u32>) -> AtWork {
        self.lock().push(Script { begun, pid });
        AtWork {
            scripts: Arc::clone(self),
            begun,
        }
    }

    /// Number of scripts that leave the processors to others: they wait for something, or have worked for long.
    pub(crate) fn leaving_room(&self) -> usize {
        let scripts = self.lock().clone();
        scripts.iter().filter(|script| script.leaves_room()).count()
    }
}

impl Script {
    fn leaves_room(&self) -> bool {
        let age = self.begun.elapsed();
        age >= LONG || (age >= YOUNG && !self.pid.is_some_and(children::is_computing))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut scripts = self.scripts.lock();
        // Two that began at the same instant are alike, but for their processes: the next look sets that right.
        if let Some(own) = scripts.iter().position(|script| script.begun == self.begun) {
            scripts.swap_remove(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_sleeps_or_has_worked_for_long_leaves_room() {
        let scripts = Arc::new(ScriptsAtWork::default());
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let long_ago = Instant::now()
            .checked_sub(2 * LONG)
            .expect("the machine runs for longer");
        // This thread computes as long as it looks at itself.
        let (own, other) = (std::process::id(), sleeper.id());
        let young = scripts.add(Instant::now() + LONG, Some(other));
        assert_eq!(scripts.leaving_room(), 0);
        let at_work = [
            (long_ago, Some(own)),
            (Instant::now() - YOUNG, Some(other)),
            (long_ago, None),
        ];
        let guards = at_work.map(|(begun, pid)| scripts.add(begun, pid));
        while children::is_computing(other) {}
        assert_eq!(scripts.leaving_room(), 3);
        drop(guards);
        drop(young);
        assert!(scripts.lock().is_empty());
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it ends");
    }

    #[test]
    fn a_process_that_is_gone_computes_nothing() {
        assert!(!children::is_computing(u32::MAX));
        let scripts = Arc::new(ScriptsAtWork::default());
        let _gone = scripts.add(Instant::now() - 2 * YOUNG, Some(u32::MAX));
        assert_eq!(scripts.leaving_room(), 1);
    }
}
