//! `haulier bench`: how fast servers are, and whether one is faster.

mod files;
mod options;
mod status_line;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use haulier_bench::campaign::{self, CampaignError, Measured, Options, Progress};
use haulier_bench::job::StopRule;
use haulier_bench::report::ab::{self, AbForm};
use haulier_bench::report::run_text;
use haulier_bench::runner::LoadControl;
use haulier_bench::sample::Tally;
use haulier_bench::spread;
use tokio::signal::unix::{SignalKind, signal};

use self::status_line::StatusLine;
use crate::cli::Console;
use crate::cli::bench::BenchArgs;
use crate::error_chain::with_sources;
use crate::machine;
use crate::outcome::CommandOutcome;

/// The exit code if `--max-p95` was missed.
const MISSED: u8 = 3;

pub(super) fn run(arguments: &BenchArgs, console: &Console) -> CommandOutcome {
    machine::raise_descriptor_limit();
    if arguments.worker {
        return work();
    }
    let ab = arguments.ab_form();
    if arguments.version_only {
        return print(&match ab {
            Some(_) => ab::BANNER.to_owned(),
            None => format!("haulier {}\n", env!("CARGO_PKG_VERSION")),
        });
    }
    let options = match arguments.options() {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{}{wrong}", if wrong.starts_with("ab: ") { "" } else { "error: " });
            return CommandOutcome::Misused;
        }
    };
    if arguments.framing_check {
        return check_framing(&options, arguments);
    }
    let control = Arc::new(LoadControl::default());
    let is_interrupted = stop_on_signal(&control);
    let measured = match measure(&options, arguments, ab.as_ref(), console, &control) {
        Ok(measured) => measured,
        Err(CampaignError::Interrupted) => return CommandOutcome::Interrupted,
        Err(error) => {
            eprintln!("error: {}", with_sources(&error));
            return CommandOutcome::Failed;
        }
    };
    let printed = match &ab {
        Some(form) => print_as_ab(&measured, &options, form),
        None => print_run(&measured, arguments, console),
    };
    let written = printed.and_then(|()| write_files(&measured, arguments));
    if let Err(end) = written {
        return end;
    }
    outcome(&measured, &options, arguments, is_interrupted.load(Ordering::Relaxed))
}

/// Runs a part of another process's job.
fn work() -> CommandOutcome {
    match spread::work(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => CommandOutcome::Done,
        Err(error) => {
            eprintln!("error: {error}");
            CommandOutcome::Failed
        }
    }
}

/// Ends the run at the first signal, so that its result so far is printed. The flag tells that a signal came.
fn stop_on_signal(control: &Arc<LoadControl>) -> Arc<AtomicBool> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let (control, flag) = (Arc::clone(control), Arc::clone(&is_interrupted));
    // The thread ends with the process. Without a runtime, the signal ends the process.
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
            control.stop.store(true, Ordering::Relaxed);
        });
    });
    is_interrupted
}

fn measure(
    options: &Options,
    arguments: &BenchArgs,
    ab: Option<&AbForm>,
    console: &Console,
    control: &LoadControl,
) -> Result<Measured, CampaignError> {
    if let Some(form) = ab {
        let _ = write!(io::stdout(), "{}", ab::opening(options, form));
        let _ = io::stdout().flush();
    }
    let mut line = StatusLine::new(options, arguments, ab, console);
    let measured = campaign::run(options, control, &mut |progress: &Progress<'_>| line.show(progress));
    let tally = measured.as_ref().ok().and_then(|measured| measured.tallies.first());
    line.finish(tally.map(Tally::answers));
    measured
}

/// Prints ab's text.
///
/// # Errors
/// The end of the command, if ab ends early or the text cannot be written.
fn print_as_ab(measured: &Measured, options: &Options, form: &AbForm) -> Result<(), CommandOutcome> {
    let _ = io::stdout().write_all(&ab::exchanges(measured, options, form.verbosity));
    if let Some(abort) = ab::abort(measured, options) {
        if abort.done > 0 {
            println!("Total of {} requests completed", abort.done);
        }
        eprintln!("{}", abort.message);
        return Err(CommandOutcome::FailedWith(abort.code));
    }
    eprint!("{}", ab::socket_errors(measured, form.verbosity));
    succeeded(print(&ab::render(measured, options, form)))?;
    let warnings = measured.run.warnings.iter();
    for warning in warnings.filter(|warning| ab::is_worth_saying(warning)) {
        eprintln!("ab: {}", warning.text);
    }
    Ok(())
}

/// Prints the text of the run.
///
/// # Errors
/// The end of the command, if the text cannot be written.
fn print_run(measured: &Measured, arguments: &BenchArgs, console: &Console) -> Result<(), CommandOutcome> {
    if arguments.verbosity >= 2 {
        eprint!("{}", run_text::first_exchange(measured, arguments.verbosity));
    }
    let text = run_text::render(&measured.run, !arguments.no_percentiles, console.colors_stdout());
    succeeded(print(&text))
}

/// Writes the files of the run, and prints their names.
///
/// # Errors
/// The end of the command, if one cannot be written.
fn write_files(measured: &Measured, arguments: &BenchArgs) -> Result<(), CommandOutcome> {
    match files::write(measured, arguments) {
        Ok(written) => {
            for (what, path) in written.iter().filter(|_| !arguments.ab) {
                eprintln!("{what}: {}", path.display());
            }
            Ok(())
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            Err(CommandOutcome::Failed)
        }
    }
}

fn succeeded(outcome: CommandOutcome) -> Result<(), CommandOutcome> {
    match outcome {
        CommandOutcome::Done => Ok(()),
        other => Err(other),
    }
}

fn outcome(measured: &Measured, options: &Options, arguments: &BenchArgs, is_interrupted: bool) -> CommandOutcome {
    let points = &measured.run.points;
    let is_missed = arguments.max_p95.is_some_and(|most| {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        let p95 = |point: &haulier_bench::result::Point| point.total.latency.percentile(95.0);
        points
            .iter()
            .any(|point| p95(point).is_none_or(|found| found > most) || point.total.requests == 0)
    });
    // Unanswered requests are counted after the end, so they cannot have caused it.
    let failed = |tally: &Tally| tally.failures.all() - tally.failures.unanswered;
    let is_cut_off =
        options.stop == StopRule::Any && measured.tallies.iter().any(|tally| failed(tally) > tally.answers());
    if is_interrupted {
        CommandOutcome::Interrupted
    } else if is_missed {
        eprintln!("--max-p95 was missed");
        CommandOutcome::FailedWith(MISSED)
    } else if arguments.ab {
        // ab succeeds even if every request failed.
        CommandOutcome::Done
    } else if is_cut_off || points.iter().all(|point| point.total.requests == 0) {
        CommandOutcome::Failed
    } else {
        CommandOutcome::Done
    }
}

fn check_framing(options: &Options, arguments: &BenchArgs) -> CommandOutcome {
    /// Longer than most servers keep a connection.
    const TIMEOUT: Duration = Duration::from_secs(90);
    let timeout = arguments.timeout.or(arguments.patience).unwrap_or(TIMEOUT);
    let found = match campaign::check_framing(options, timeout) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("error: {}", with_sources(&error));
            return CommandOutcome::Failed;
        }
    };
    let lines = options.targets.iter().zip(found);
    let lines = lines.map(|(target, after)| format!("{}: {}\n", target.name, after.words(timeout)));
    print(&lines.collect::<String>())
}

/// Prints a text. A reader that has closed its end is no failure.
fn print(text: &str) -> CommandOutcome {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write the result: {error}");
            CommandOutcome::Failed
        }
        _ => CommandOutcome::Done,
    }
}
