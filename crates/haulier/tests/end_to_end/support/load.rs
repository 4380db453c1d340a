//! Visitors that never rest, and what is done to PHP meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// How many answers each visitor has had.
    answers: Arc<Vec<AtomicUsize>>,
    visitors: Vec<JoinHandle<Vec<u16>>>,
}

impl Load {
    /// Each visitor makes a connection for every request.
    pub(crate) fn start(address: SocketAddr, visitors: usize, request: &Request) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answers: Arc<Vec<_>> = Arc::new((0..visitors).map(|_| AtomicUsize::new(0)).collect());
        let visit = |number: usize| {
            let (stop, answers, request) = (Arc::clone(&stop), Arc::clone(&answers), request.clone());
            thread::spawn(move || {
                let mut statuses = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    statuses.push(Connection::open(address).ask(&request).status());
                    answers[number].fetch_add(1, Ordering::Relaxed);
                }
                statuses
            })
        };
        Self {
            visitors: (0..visitors).map(visit).collect(),
            stop: Arc::clone(&stop),
            answers: Arc::clone(&answers),
        }
    }

    /// Waits until every visitor has had so many further answers: the first of them may have been on its way already.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let now = || self.answers.iter().map(|answers| answers.load(Ordering::Relaxed));
        let before: Vec<usize> = now().collect();
        super::wait_until("answers for every visitor", || {
            now().zip(&before).all(|(now, before)| now >= before + more)
        });
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

/// Visitors of whom every second one keeps its connection, and who ask for one page after the other. Nothing but 200 is
/// good enough for them, and no connection may break.
#[derive(Debug)]
pub(crate) struct Crowd {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    visitors: Vec<JoinHandle<Vec<String>>>,
}

impl Crowd {
    pub(crate) fn start(address: SocketAddr, visitors: usize, requests: &[Request]) -> Self {
        Self::over(move || Connection::try_open(address), visitors, requests)
    }

    /// The same over connections of another kind.
    pub(crate) fn over(
        open: impl Fn() -> io::Result<Connection> + Send + Sync + 'static,
        visitors: usize,
        requests: &[Request],
    ) -> Self {
        let open: Open = Arc::new(open);
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let visit = |number| {
            let (stop, answers, requests) = (Arc::clone(&stop), Arc::clone(&answers), requests.to_vec());
            let open = Arc::clone(&open);
            thread::spawn(move || {
                let mut visitor = Visitor {
                    open,
                    keeps: number % 2 == 0,
                    connection: None,
                };
                let mut failures = Vec::new();
                for request in requests.iter().cycle().skip(number) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match visitor.ask(request) {
                        Ok(()) => _ = answers.fetch_add(1, Ordering::Relaxed),
                        Err(failure) => failures.push(failure),
                    }
                }
                failures
            })
        };
        Self {
            visitors: (0..visitors).map(visit).collect(),
            stop: Arc::clone(&stop),
            answers: Arc::clone(&answers),
        }
    }

    /// How many were answered so far.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Waits for so many further answers.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let goal = self.answers() + more;
        super::wait_until(&format!("{more} further answers"), || self.answers() >= goal);
    }

    /// Ends the load; gives how many were answered, and what became of the others.
    pub(crate) fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self
            .visitors
            .into_iter()
            .flat_map(|visitor| visitor.join().expect("a visitor counts its failures"))
            .collect();
        (self.answers.load(Ordering::Relaxed), failures)
    }
}

type Open = Arc<dyn Fn() -> io::Result<Connection> + Send + Sync>;

struct Visitor {
    open: Open,
    keeps: bool,
    connection: Option<Connection>,
}

impl Visitor {
    fn ask(&mut self, request: &Request) -> Result<(), String> {
        let failed = |error: io::Error| format!("{request:?}: {error}");
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => (self.open)().map_err(failed)?,
        };
        let response = connection.try_ask(request).map_err(failed)?;
        if self.keeps && response.field("Connection") != Some("close") {
            self.connection = Some(connection);
        }
        match response.status() {
            200 => Ok(()),
            status => Err(format!("{request:?}: {status} {}", response.text())),
        }
    }
}
