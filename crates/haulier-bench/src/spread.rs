//! One slice over threads, and over several processes if one may not open enough descriptors.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::answer::Captured;
use super::job::{Destination, SliceJob};
use super::runner::{self, LoadControl};
use super::sample::{GeneratorCpu, Tally};

/// Descriptors that a process needs besides its connections.
const OTHERS: u64 = 64;
/// Connections from one address. Each takes a port of 28,232 that the kernel gives out by default.
const MOST_FROM_ONE: u32 = 20_000;
/// The argument that makes this program a worker process.
pub const WORKER: &str = "--worker";

/// Processes that this number of connections needs here.
#[must_use]
pub fn processes(connections: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = limit.saturating_sub(OTHERS).max(1);
    u32::try_from(u64::from(connections).div_ceil(most))
        .unwrap_or(u32::MAX)
        .max(1)
}

/// Source addresses with enough ports: 127.0.0.1, 127.0.0.2 … for a server on 127.0.0.1.
#[must_use]
pub fn sources(destination: &Destination, connections: u32) -> Vec<IpAddr> {
    let Destination::Tcp(address) = destination else {
        return Vec::new();
    };
    if connections <= MOST_FROM_ONE || address.ip() != Ipv4Addr::LOCALHOST {
        return Vec::new();
    }
    let count = connections.div_ceil(MOST_FROM_ONE);
    (0..count)
        .map(|number| {
            let [high, low] = (number as u16 + 1).to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(127, 0, high, low))
        })
        .collect()
}

/// Runs a job on threads of this process, and waits for them.
///
/// # Errors
/// Wrong TLS options, no descriptors, no threads.
pub fn on_threads(job: &SliceJob, control: &LoadControl) -> io::Result<(Tally, Option<Captured>)> {
    let barrier = Barrier::new(job.threads as usize);
    let one = |thread: u32| {
        barrier.wait();
        measured(|| runner::run(job, thread, control))
    };
    let results: Vec<io::Result<(Tally, Option<Captured>)>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..job.threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let first = one(0);
        let others = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
        });
        std::iter::once(first).chain(others).collect()
    });
    let (mut all, mut captured) = (Tally::default(), None);
    for result in results {
        let (tally, seen) = result?;
        all.merge(&tally);
        captured = captured.or(seen.filter(|seen| seen.status > 0));
    }
    Ok((all, captured))
}

/// Adds the CPU time of this thread to the tally.
fn measured<T>(run: impl FnOnce() -> io::Result<(Tally, T)>) -> io::Result<(Tally, T)> {
    let (cpu, user, began) = (thread_cpu(), thread_user(), Instant::now());
    let (mut tally, more) = run()?;
    let total = thread_cpu().saturating_sub(cpu);
    let elapsed = began.elapsed().as_secs_f64();
    tally.cpu = GeneratorCpu {
        total: u64::try_from(total.as_nanos()).unwrap_or(u64::MAX),
        user: u64::try_from(thread_user().saturating_sub(user).as_nanos()).unwrap_or(u64::MAX),
        busiest: if elapsed > 0.0 {
            total.as_secs_f64() / elapsed
        } else {
            0.0
        },
    };
    Ok((tally, more))
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// User time of this thread, in the kernel's ticks of 10 ms.
fn thread_user() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u32 = fields
        .split_whitespace()
        .nth(11)
        .and_then(|ticks| ticks.parse().ok())
        .unwrap_or(0);
    Duration::from_millis(10) * ticks
}

/// Runs a job on as many processes as it needs, each with descriptors of its own.
///
/// # Errors
/// A process cannot be started or does not answer; and those of [`on_threads`].
pub fn run(job: &SliceJob, control: &LoadControl) -> io::Result<(Tally, Option<Captured>)> {
    control.begin();
    let count = processes(job.connections);
    if count == 1 {
        return on_threads(job, control);
    }
    let mut workers = Vec::new();
    for index in 0..count {
        workers.push(Worker::start(&job.part(index, count))?);
    }
    let mut all = Tally::default();
    for worker in workers {
        let tally = worker.wait(control)?;
        all.merge(&tally);
    }
    Ok((all, None))
}

/// A process that runs a part of the job.
struct Worker {
    child: Child,
}

impl Worker {
    fn start(job: &SliceJob) -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", WORKER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let text = serde_json::to_string(job).map_err(io::Error::other)?;
        if let Some(input) = &mut child.stdin {
            input.write_all(text.as_bytes())?;
            input.write_all(b"\n")?;
        }
        Ok(Self { child })
    }

    fn wait(mut self, control: &LoadControl) -> io::Result<Tally> {
        let output = self.child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut answer = String::new();
        BufReader::new(output).read_line(&mut answer)?;
        let status = self.child.wait()?;
        if !status.success() || answer.is_empty() {
            return Err(io::Error::other(format!("a worker process failed ({status})")));
        }
        let tally: Tally = serde_json::from_str(&answer).map_err(io::Error::other)?;
        control.done.fetch_add(tally.answers(), Ordering::Relaxed);
        Ok(tally)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nobody else reads its answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a worker process: reads one job from `input` and writes its tally to `output`.
///
/// # Errors
/// `input` is no job; and those of [`on_threads`].
pub fn work(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut text = String::new();
    input.read_line(&mut text)?;
    let job: SliceJob = serde_json::from_str(&text).map_err(io::Error::other)?;
    let (tally, _) = on_threads(&job, &LoadControl::default())?;
    serde_json::to_writer(&mut output, &tally).map_err(io::Error::other)?;
    output.write_all(b"\n")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_connections_need_one_process_and_no_special_address() {
        assert_eq!(processes(1), 1);
        let local = Destination::Tcp("127.0.0.1:80".parse().expect("an address"));
        assert_eq!(sources(&local, 100), Vec::<IpAddr>::new());
        assert!(processes(u32::MAX) > 1);
    }

    #[test]
    fn many_connections_come_from_several_addresses_of_this_machine_only() {
        let local = Destination::Tcp("127.0.0.1:80".parse().expect("an address"));
        let expected: Vec<IpAddr> = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
            .map(|text| text.parse().expect("an address"))
            .to_vec();
        assert_eq!(sources(&local, 50_000), expected);
        let far = Destination::Tcp("192.0.2.1:80".parse().expect("an address"));
        assert_eq!(sources(&far, 50_000), Vec::<IpAddr>::new());
    }
}
