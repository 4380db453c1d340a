//! Visitors that never rest, and what is done to PHP meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Connection, Request};

/// Ends a process at once.
pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not zero");
    // It may have ended by itself since we looked.
    let _ = kill_process(pid, Signal::KILL);
}

/// Visitors that ask for one page again and again until told to stop.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    visitors: Vec<JoinHandle<Vec<u16>>>,
}

impl Load {
    /// Each visitor makes a connection for every request.
    pub(crate) fn start(address: SocketAddr, visitors: usize, request: &Request) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let visit = |_| {
            let (stop, request) = (Arc::clone(&stop), request.clone());
            thread::spawn(move || {
                let mut statuses = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    statuses.push(Connection::open(address).ask(&request).status());
                }
                statuses
            })
        };
        Self {
            visitors: (0..visitors).map(visit).collect(),
            stop: Arc::clone(&stop),
        }
    }

    /// Ends the load; gives the status of every answer.
    pub(crate) fn statuses(self) -> Vec<u16> {
        self.stop.store(true, Ordering::Relaxed);
        self.visitors
            .into_iter()
            .flat_map(|visitor| visitor.join().expect("every request is answered"))
            .collect()
    }
}

/// Every answer is one of those promised.
#[track_caller]
pub(crate) fn assert_only(statuses: &[u16], allowed: &[u16]) {
    let others: Vec<_> = statuses.iter().filter(|status| !allowed.contains(status)).collect();
    assert!(
        others.is_empty(),
        "{} of {} answers are {others:?}",
        others.len(),
        statuses.len()
    );
    assert!(statuses.contains(&200), "no answer of {} was 200", statuses.len());
}
