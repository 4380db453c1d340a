//! `haulier bench`: how fast servers are, and whether one is faster.

mod ab_text;
mod files;
mod options;
mod status_line;
mod table;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use haulier_bench::campaign::{self, CampaignError, Measured, Options, Progress};
use haulier_bench::job::StopRule;
use haulier_bench::runner::Shared;
use haulier_bench::sample::Tally;
use haulier_bench::spread;
use tokio::signal::unix::{SignalKind, signal};

use self::status_line::StatusLine;
use crate::cli::Console;
use crate::cli::bench::BenchArgs;
use crate::machine;
use crate::outcome::Outcome;
use haulier_bench::report::figures;

/// Of `--max-p95`.
const MISSED: u8 = 3;

pub(super) fn run(arguments: &BenchArgs, console: &Console) -> Outcome {
    machine::raise_descriptor_limit();
    if arguments.worker {
        return work();
    }
    if arguments.version_only {
        return print(&ab_text::version(arguments.ab));
    }
    let options = match arguments.options() {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{}{wrong}", if wrong.starts_with("ab: ") { "" } else { "error: " });
            return Outcome::Misused;
        }
    };
    if arguments.framing_check {
        return check_framing(&options, arguments);
    }
    let shared = Arc::new(Shared::default());
    let interrupted = stop_on_signal(&shared);
    if arguments.ab {
        let _ = write!(io::stdout(), "{}", ab_text::opening(&options, arguments));
        let _ = io::stdout().flush();
    }
    let mut line = StatusLine::new(&options, arguments, console);
    let measured = campaign::run(&options, &shared, &mut |progress: &Progress<'_>| line.show(progress));
    let answers = measured
        .as_ref()
        .ok()
        .and_then(|measured| measured.tallies.first())
        .map(Tally::answers);
    line.finish(answers);
    match measured {
        Ok(measured) => tell(
            &measured,
            &options,
            arguments,
            console,
            interrupted.load(Ordering::Relaxed),
        ),
        Err(CampaignError::Interrupted) => Outcome::Interrupted,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            Outcome::Failed
        }
    }
}

/// A process of a larger run.
fn work() -> Outcome {
    match spread::work(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => Outcome::Done,
        Err(error) => {
            eprintln!("error: {error}");
            Outcome::Failed
        }
    }
}

/// The first signal ends the measuring, and what was measured is told; the flag says that it came.
fn stop_on_signal(shared: &Arc<Shared>) -> Arc<std::sync::atomic::AtomicBool> {
    let interrupted = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (shared, flag) = (Arc::clone(shared), Arc::clone(&interrupted));
    // The thread ends with the process; without a runtime the signal simply ends it.
    thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
            let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
                return;
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            flag.store(true, Ordering::Relaxed);
            shared.stop.store(true, Ordering::Relaxed);
        });
    });
    interrupted
}

fn tell(
    measured: &Measured,
    options: &Options,
    arguments: &BenchArgs,
    console: &Console,
    interrupted: bool,
) -> Outcome {
    let run = &measured.run;
    if arguments.ab {
        let _ = io::stdout().write_all(&ab_text::exchanges(measured, options, arguments.verbosity));
        if let Some(end) = ab_text::abort(measured, options) {
            return end;
        }
        eprint!("{}", ab_text::socket_errors(measured, arguments.verbosity));
    } else if arguments.verbosity >= 2 {
        eprint!("{}", first_exchange(measured, arguments.verbosity));
    }
    if arguments.ab {
        if print(&ab_text::render(measured, options, arguments)) == Outcome::Failed {
            return Outcome::Failed;
        }
        for warning in run.warnings.iter().filter(|warning| ab_text::is_worth_saying(warning)) {
            eprintln!("ab: {}", warning.text);
        }
    } else if print(&table::render(run, arguments, console.colors_stdout())) == Outcome::Failed {
        return Outcome::Failed;
    }
    match files::write(measured, arguments) {
        Ok(written) if arguments.ab => drop(written),
        Ok(written) => {
            for (what, path) in written {
                eprintln!("{what}: {}", path.display());
            }
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            return Outcome::Failed;
        }
    }
    outcome(measured, options, arguments, interrupted)
}

/// The first request and its answer, as they travelled.
fn first_exchange(measured: &Measured, verbosity: u8) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut said = format!("INFO: the request\n---\n{}\n---\n", text(&measured.request).trim_end());
    if let Some(first) = &measured.first {
        said.push_str(&format!("LOG: header received:\n{}\n", text(&first.head)));
        if verbosity >= 4 {
            said.push_str(&text(&first.body));
            said.push('\n');
        }
        said.push_str(&format!("LOG: Response code = {}\n", first.status));
    }
    said
}

fn outcome(measured: &Measured, options: &Options, arguments: &BenchArgs, interrupted: bool) -> Outcome {
    let points = &measured.run.points;
    let is_missed = arguments.max_p95.is_some_and(|most| {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        let p95 = |point: &haulier_bench::result::Point| point.total.latency.percentile(95.0);
        points
            .iter()
            .any(|point| p95(point).is_none_or(|found| found > most) || point.total.requests == 0)
    });
    // What is unanswered ends no run: it is counted when that is over.
    let failed = |tally: &Tally| tally.failures.all() - tally.failures.unanswered;
    let is_cut_off =
        options.stop == StopRule::Any && measured.tallies.iter().any(|tally| failed(tally) > tally.answers());
    if interrupted {
        Outcome::Interrupted
    } else if is_missed {
        eprintln!("--max-p95 was missed");
        Outcome::FailedWith(MISSED)
    } else if arguments.ab {
        // ab is content with whatever it has measured.
        Outcome::Done
    } else if is_cut_off || points.iter().all(|point| point.total.requests == 0) {
        Outcome::Failed
    } else {
        Outcome::Done
    }
}

fn check_framing(options: &Options, arguments: &BenchArgs) -> Outcome {
    /// Longer than most servers keep a connection.
    const PATIENCE: Duration = Duration::from_secs(90);
    let patience = arguments.timeout.or(arguments.patience).unwrap_or(PATIENCE);
    let found = match campaign::check_framing(options, patience) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            return Outcome::Failed;
        }
    };
    let mut text = String::new();
    for (target, after) in options.targets.iter().zip(found) {
        let took = figures::time(after.answer.as_micros() as f64);
        let idle = match after.idle {
            None => format!(
                "the server keeps the connection for more than {} s after the body",
                patience.as_secs()
            ),
            Some(idle) if idle < Duration::from_millis(50) => "the server closes with the body".to_owned(),
            Some(idle) => format!(
                "the server idles {:.1} s after the body: a client that reads to the end of the stream waits that long",
                idle.as_secs_f64()
            ),
        };
        text.push_str(&format!("{}: answer in {took}; {idle}\n", target.name));
    }
    print(&text)
}

/// A reader that has gone away is no failure.
fn print(text: &str) -> Outcome {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write the result: {error}");
            Outcome::Failed
        }
        _ => Outcome::Done,
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// The name of a file nobody named: one a run.
fn default_json(started: &str) -> PathBuf {
    let name: String = started.replace('T', "-").replace([':', 'Z'], "");
    PathBuf::from(format!("bench-{name}.json"))
}

fn is_terminal() -> bool {
    io::stderr().is_terminal()
}
