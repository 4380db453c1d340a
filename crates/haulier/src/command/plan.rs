//! `haulier bench run`: plans.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use haulier_bench::surroundings;
use tokio::signal::unix::{SignalKind, signal};

use super::configuration::{self, print_one};
use super::report::{unreadable, write_all};
use crate::cli::report::PlanArgs;
use crate::cli::{Cli, Console};
use crate::outcome::CommandOutcome;
use crate::php_discovery;
use crate::quantity;
use haulier_bench::plan::{self, Plan, PlanEvent, RunError, RunOptions};
use haulier_bench::report::Report;
use haulier_bench::report::data::{self, DataError};
use haulier_bench::report::document::{self, Page};
use haulier_bench::report::terminal;
use haulier_settings::Diagnostic;

pub(super) fn run(arguments: &PlanArgs, console: &Console) -> CommandOutcome {
    let plans = match load(arguments, console) {
        Ok(plans) => plans,
        Err(outcome) => return outcome,
    };
    if arguments.check {
        let mut output = io::stdout().lock();
        for plan in &plans {
            let parts = quantity::plural(plan.parts.len(), "part");
            let servers = quantity::plural(plan.servers.len(), "server");
            let _ = writeln!(output, "{}: ok — {parts}, {servers}", plan.path.display());
        }
        return CommandOutcome::Done;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_one(
                Diagnostic::error("plan::start", format!("cannot start: {error}")),
                console,
            );
            return CommandOutcome::Failed;
        }
    };
    runtime.block_on(until_interrupted(&plans, arguments, console))
}

/// All plans, if all of them are valid.
fn load(arguments: &PlanArgs, console: &Console) -> Result<Vec<Plan>, CommandOutcome> {
    let mut plans = Vec::new();
    let mut wrong = false;
    for path in &arguments.plans {
        let mut report = haulier_settings::Report::default();
        match Plan::load(path, check_flags, &mut report) {
            Ok(plan) => plans.push(plan),
            Err(error) => report.push(Diagnostic::error(
                "plan::unreadable",
                format!("{error}: {}", error.source),
            )),
        }
        if report.errors() > 0 {
            configuration::print(&report, console);
            let counts = quantity::findings(&report);
            let _ = writeln!(io::stderr(), "{}: {counts}", path.display());
            wrong = true;
        }
    }
    if wrong { Err(CommandOutcome::Misused) } else { Ok(plans) }
}

/// Checks the flags of a target as `haulier bench` would.
fn check_flags(flags: &[String]) -> Result<(), String> {
    let before = ["haulier", "bench"].map(str::to_owned);
    let target = "http://127.0.0.1/".to_owned();
    match Cli::try_parse_from(before.into_iter().chain(flags.iter().cloned()).chain([target])) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let said = text.lines().next().unwrap_or_default();
            Err(said.strip_prefix("error: ").unwrap_or(said).to_owned())
        }
    }
}

/// The php-cgi of this machine and its version, such as 8.2, as plans call them.
fn php() -> Vec<(String, String)> {
    let php = php_discovery::find(None, &[], &[]).ok();
    let version = php.as_ref().map_or("", |php| php.version.as_str());
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    let program = php.as_ref().map_or("php-cgi".into(), |php| php.path.to_string_lossy());
    let values = [("PHP_CGI", program.as_ref()), ("PHP_VERSION", minor)];
    values.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// Runs until a signal. Dropping the run ends every program that it started.
async fn until_interrupted(plans: &[Plan], arguments: &PlanArgs, console: &Console) -> CommandOutcome {
    let mut signals = match [SignalKind::interrupt(), SignalKind::terminate()].map(signal) {
        [Ok(interrupt), Ok(terminate)] => (interrupt, terminate),
        [Err(error), _] | [_, Err(error)] => {
            print_one(
                Diagnostic::error("plan::start", format!("cannot wait for signals: {error}")),
                console,
            );
            return CommandOutcome::Failed;
        }
    };
    tokio::select! {
        outcome = all(plans, arguments, console) => outcome,
        _ = signals.0.recv() => CommandOutcome::Interrupted,
        _ = signals.1.recv() => CommandOutcome::Interrupted,
    }
}

async fn all(plans: &[Plan], arguments: &PlanArgs, console: &Console) -> CommandOutcome {
    let (started, begun) = (surroundings::now(), Instant::now());
    let options = RunOptions {
        only: arguments.only.clone(),
        quick: arguments.quick,
        rounds: arguments.rounds,
        values: php(),
    };
    let mut pages = Vec::new();
    for plan in plans {
        let mut watcher = Watcher::new(plan, console);
        match plan::run(plan, &options, &mut |event| watcher.show(&event)).await {
            Ok(page) => pages.push(page),
            // Another plan may have the part that was named.
            Err(RunError::NoPart(_)) if plans.len() > 1 => {}
            Err(error) => {
                print_one(failure(plan, &error), console);
                return CommandOutcome::Failed;
            }
        }
    }
    let is_measured = pages
        .iter()
        .any(|page: &Page| page.parts.iter().any(|part| !part.has_failed()));
    if let Some(path) = &arguments.keep
        && let Err(error) = keep(path, plans, &mut pages)
    {
        print_one(unreadable(&error), console);
        return CommandOutcome::Failed;
    }
    let report = Report {
        schema: document::SCHEMA,
        title: arguments.title.clone().unwrap_or_else(|| title(&pages)),
        tool: format!("haulier {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args().collect(),
        started,
        duration_s: begun.elapsed().as_secs_f64(),
        machine: surroundings::machine(),
        pages,
    };
    let files: Vec<PathBuf> = arguments.keep.iter().chain(&arguments.output).cloned().collect();
    match write_all(&report, &files, console) {
        CommandOutcome::Done if !is_measured => CommandOutcome::Failed,
        outcome => outcome,
    }
}

/// Adds the parts of these plans that an earlier report has and this run did not measure.
fn keep(path: &Path, plans: &[Plan], pages: &mut Vec<Page>) -> Result<(), DataError> {
    let earlier = match data::read(path) {
        Err(DataError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        earlier => earlier?.pages,
    };
    let mut kept = Vec::new();
    for plan in plans {
        let is_of_plan = |page: &Page| page.title == plan.title;
        let own = pages.iter().position(is_of_plan).map(|place| pages.remove(place));
        let old = earlier.iter().find(|page| is_of_plan(page)).cloned();
        kept.extend(match (own, old) {
            (Some(mut own), Some(old)) => {
                let order: Vec<&str> = plan.parts.iter().map(plan::PlanPart::title).collect();
                own.keep(old, &order);
                Some(own)
            }
            (own, old) => own.or(old),
        });
    }
    *pages = kept;
    Ok(())
}

fn title(pages: &[Page]) -> String {
    let titles: Vec<&str> = pages.iter().map(|page| page.title.as_str()).collect();
    titles.join(" · ")
}

fn failure(plan: &Plan, error: &RunError) -> Diagnostic {
    let cause = std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    Diagnostic::error("plan::failed", format!("{}: {error}{cause}", plan.path.display()))
}

/// Prints the events of a run: results on standard output, the rest on standard error.
struct Watcher<'p> {
    plan: &'p Plan,
    quiet: bool,
    /// True if a line on standard error can be overwritten.
    is_terminal: bool,
    begun: Instant,
}

impl<'p> Watcher<'p> {
    fn new(plan: &'p Plan, console: &Console) -> Self {
        let is_terminal = io::stderr().is_terminal();
        if !console.quiet {
            let _ = writeln!(io::stdout(), "{}\n", plan.title);
        }
        Self {
            plan,
            quiet: console.quiet,
            is_terminal,
            begun: Instant::now(),
        }
    }

    fn show(&mut self, event: &PlanEvent<'_>) {
        if self.quiet {
            return;
        }
        match event {
            PlanEvent::Waits => self.status(&format!(
                "{}: another measurement is running; waiting for its end …",
                self.plan.title
            )),
            PlanEvent::Begun { title } => {
                self.begun = Instant::now();
                self.status(&format!("{}: {title} …", self.plan.title));
            }
            PlanEvent::LeftOut { name, why } => {
                self.status("");
                let _ = writeln!(io::stderr(), "left out: {name} ({why})");
            }
            PlanEvent::Done(part) => {
                self.status("");
                let mut text = String::new();
                terminal::write_part(&mut text, part);
                let seconds = self.begun.elapsed().as_secs();
                let _ = write!(io::stdout(), "{text}");
                let _ = writeln!(io::stderr(), "({seconds} s)");
            }
        }
    }

    /// Shows the current activity on one line.
    fn status(&self, text: &str) {
        let _ = match (self.is_terminal, text.is_empty()) {
            (true, _) => write!(io::stderr(), "\r\x1b[K{text}"),
            (false, true) => Ok(()),
            (false, false) => writeln!(io::stderr(), "{text}"),
        };
        let _ = io::stderr().flush();
    }
}
