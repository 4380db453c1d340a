//! The run of a plan, from its first server to its last table.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::lock::Lock;
use super::processes::{Start, Started, last_words, on_cores};
use super::server::{self, Server};
use super::settings::{Named, Plan, PlanPart, ScriptPlan, TablePlan, TargetPlan};
use super::template::MissingValue;
use super::verify;
use super::workspace::{Workspace, WorkspaceError, own_program};
use crate::report::data::{self, DataError};
use crate::report::document::{Judgement, Page, PagePart, PartContent, ScriptOutcome};
use crate::result::Run;
use crate::surroundings;

/// Most bytes of a script's output.
const MOST_READ: u64 = 64 << 20;

/// Options of a run, besides the plan's own settings.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Only parts whose title contains one of these texts; all if it is empty.
    pub only: Vec<String>,
    /// Everything once, and short, to see whether the plan works.
    pub quick: bool,
    /// Rounds of every table, in place of its own number.
    pub rounds: Option<u32>,
    /// `PHP_CGI` and `PHP_VERSION` of this machine.
    pub values: Vec<(String, String)>,
}

/// Progress of a plan.
#[derive(Debug)]
pub enum PlanEvent<'a> {
    /// Another plan is running alone; this one waits for its end.
    Waits,
    /// A part begins.
    Begun { title: &'a str },
    /// A server or target is not measured.
    LeftOut { name: &'a str, why: &'a str },
    /// A part was measured, or could not be.
    Done(&'a PagePart),
}

/// The reason that a plan could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error("`{command}` failed ({status}): {words}")]
    Prepare {
        command: String,
        status: ExitStatus,
        words: String,
    },
    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },
    #[error(transparent)]
    Value(#[from] MissingValue),
    #[error("no part has a title with {0}")]
    NoPart(String),
    #[error("cannot write into the directory for temporary files")]
    Write(#[from] io::Error),
}

/// The reason that a part could not be measured. The other parts are.
#[derive(Debug, thiserror::Error)]
enum PartError {
    #[error("none of its servers could be started")]
    NoServer,
    #[error("{name} did not answer as expected: {why}")]
    WrongAnswer { name: String, why: String },
    #[error("{what} ended with {status}: {words}")]
    Failed {
        what: &'static str,
        status: ExitStatus,
        words: String,
    },
    #[error("the script took longer than {0:?}")]
    TooLong(std::time::Duration),
    #[error("the script's output is not valid")]
    NotUnderstood(#[source] serde_json::Error),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Value(#[from] MissingValue),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs a plan; `tell` is called at every step.
///
/// # Errors
/// Nothing could be measured: the plan has no directory, or a command of `prepare` failed.
pub async fn run(plan: &Plan, options: &RunOptions, tell: &mut dyn FnMut(PlanEvent<'_>)) -> Result<Page, RunError> {
    let parts = wanted(plan, options);
    if parts.is_empty() {
        return Err(RunError::NoPart(options.only.join(" or ")));
    }
    let _alone = match plan.is_alone {
        true => Some(Lock::take(|| tell(PlanEvent::Waits)).await?),
        false => None,
    };
    let workspace = Workspace::make(plan, &options.values)?;
    prepare(plan, &workspace).await?;
    let mut run = PlanRun {
        plan,
        workspace: &workspace,
        options,
        left_out: Vec::new(),
        met: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    let mut done = Vec::new();
    for part in parts {
        tell(PlanEvent::Begun { title: part.title() });
        let part = run.part(part, tell).await;
        tell(PlanEvent::Done(&part));
        done.push(part);
    }
    let mut versions = run.versions().await;
    for (name, line) in &plan.versions {
        if let Some(text) = server::printed(line, &workspace.values, &workspace).await {
            versions.push((name.clone(), text));
        }
    }
    Ok(Page {
        title: plan.title.clone(),
        about: plan.about.clone(),
        plan: Some(plan.path.to_string_lossy().into_owned()),
        parts: done,
        versions,
        left_out: run.left_out,
    })
}

/// The wanted parts: a text means the part with this title, or without one all parts whose titles contain it.
fn wanted<'p>(plan: &'p Plan, options: &RunOptions) -> Vec<&'p PlanPart> {
    let is_title = |text: &String| plan.parts.iter().any(|part| part.title() == text);
    let is_meant = |part: &&PlanPart| {
        let holds = |text: &String| match is_title(text) {
            true => part.title() == text,
            false => part.title().to_lowercase().contains(&text.to_lowercase()),
        };
        options.only.is_empty() || options.only.iter().any(holds)
    };
    plan.parts.iter().filter(is_meant).collect()
}

/// Runs the commands of `prepare`.
async fn prepare(plan: &Plan, workspace: &Workspace) -> Result<(), RunError> {
    let log = workspace.path().join("prepare.output");
    for line in &plan.prepare {
        let words = line.fill(&workspace.values)?;
        let command = words.join(" ");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: workspace.path(),
            cores: &workspace.client_cores,
        };
        let fault = |source| RunError::Start {
            command: command.clone(),
            source,
        };
        let status = start.run(workspace, &log).await.map_err(fault)?;
        if !status.success() {
            let words = last_words(&log);
            return Err(RunError::Prepare { command, status, words });
        }
    }
    Ok(())
}

/// A run of a plan.
struct PlanRun<'p> {
    plan: &'p Plan,
    workspace: &'p Workspace,
    options: &'p RunOptions,
    left_out: Vec<(String, String)>,
    /// Servers that ran, by index in the plan.
    met: BTreeSet<usize>,
    /// Servers that could not be started; they are not tried again.
    failed: BTreeSet<usize>,
}

impl PlanRun<'_> {
    async fn part(&mut self, part: &PlanPart, tell: &mut dyn FnMut(PlanEvent<'_>)) -> PagePart {
        let (title, about, measured) = match part {
            PlanPart::Table(table) => (&table.title, &table.about, self.table(table, tell).await),
            PlanPart::Script(script) => (&script.title, &script.about, self.script(script, tell).await),
        };
        let content = measured.unwrap_or_else(|error| PartContent::Failed { why: chain(&error) });
        PagePart {
            measured: Some(surroundings::now()),
            ..PagePart::new(title, about, content)
        }
    }

    async fn table(
        &mut self,
        table: &TablePlan,
        tell: &mut dyn FnMut(PlanEvent<'_>),
    ) -> Result<PartContent, PartError> {
        let wanted: BTreeSet<usize> = table.targets.iter().map(|target| target.server).collect();
        let servers = self.start(wanted, tell).await;
        let measured = match servers.is_empty() {
            true => Err(PartError::NoServer),
            false => self.measure(table, &servers, tell).await,
        };
        end(servers).await;
        measured
    }

    async fn measure(
        &mut self,
        table: &TablePlan,
        servers: &[(usize, Server)],
        tell: &mut dyn FnMut(PlanEvent<'_>),
    ) -> Result<PartContent, PartError> {
        let mut targets: Vec<(&TargetPlan, &Server)> = Vec::new();
        for target in &table.targets {
            if let Some((_, server)) = servers.iter().find(|(index, _)| *index == target.server) {
                targets.push((target, server));
            }
        }
        let targets = self.verified(table, targets, tell).await?;
        let json = self.workspace.run_directory("table")?.join("run.json");
        let words = self.bench_words(table, &targets, &json);
        let log = json.with_file_name("output");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: self.workspace.path(),
            cores: &self.workspace.client_cores,
        };
        let status = start.run(self.workspace, &log).await?;
        if !json.exists() {
            return Err(PartError::Failed {
                what: "haulier bench",
                status,
                words: last_words(&log),
            });
        }
        let mut run = data::read_run(&json)?;
        // Ports and processes were those of this run; the command names the plan's servers instead.
        run.command = ["haulier", "bench"].map(str::to_owned).to_vec();
        run.command.extend(self.flags(table));
        let named = targets
            .iter()
            .map(|(target, server)| format!("{}={}{}", target.name, server.name, target.path));
        run.command.extend(named);
        Ok(PartContent::Run {
            goals: self.judge(table, &run),
            show: table.show.clone(),
            run: Box::new(run),
        })
    }

    /// The targets with the expected answers; the others are reported as left out.
    async fn verified<'t>(
        &mut self,
        table: &TablePlan,
        targets: Vec<(&'t TargetPlan, &'t Server)>,
        tell: &mut dyn FnMut(PlanEvent<'_>),
    ) -> Result<Vec<(&'t TargetPlan, &'t Server)>, PartError> {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for (target, server) in targets {
            match verify::check(table, target, server, self.workspace).await {
                Ok(()) => right.push((target, server)),
                Err(why) => wrong.push((target.name.clone(), why)),
            }
        }
        if right.is_empty() {
            let (name, why) = wrong.swap_remove(0);
            return Err(PartError::WrongAnswer { name, why });
        }
        for (name, why) in wrong {
            let why = format!("{}: {why}", table.title);
            tell(PlanEvent::LeftOut { name: &name, why: &why });
            self.left_out.push((name, why));
        }
        Ok(right)
    }

    /// The goals of a table; none if its first target was not measured.
    fn judge(&self, table: &TablePlan, run: &Run) -> Vec<Judgement> {
        let names = (run.targets.first(), table.targets.first());
        let is_there = matches!(names, (Some(first), Some(meant)) if first.name == meant.name);
        let goals = table.goals.iter().filter(|_| is_there && !self.options.quick);
        goals.map(|goal| goal.judge(run)).collect()
    }

    /// The command line of one table.
    fn bench_words(&self, table: &TablePlan, targets: &[(&TargetPlan, &Server)], json: &Path) -> Vec<String> {
        let mut words = vec![own_program().to_string_lossy().into_owned(), "bench".to_owned()];
        words.extend(self.flags(table));
        words.extend(["--json".to_owned(), json.to_string_lossy().into_owned()]);
        for (target, server) in targets {
            words.push(format!("{}={}{}", target.name, server.url, target.path));
            for pid in server.pids() {
                words.extend(["--pid".to_owned(), format!("{}={pid}", target.name)]);
            }
        }
        words
    }

    fn flags(&self, table: &TablePlan) -> Vec<String> {
        let mut flags = table.flags.clone();
        if let Some(rounds) = self.options.rounds {
            if let Some(at) = flags.iter().position(|flag| flag == "--rounds") {
                flags.drain(at..flags.len().min(at + 2));
            }
            flags.extend(["--rounds".to_owned(), rounds.to_string()]);
        }
        if self.options.quick {
            flags.extend(quick(&table.flags).map(str::to_owned));
        }
        flags
    }

    async fn script(
        &mut self,
        script: &ScriptPlan,
        tell: &mut dyn FnMut(PlanEvent<'_>),
    ) -> Result<PartContent, PartError> {
        let servers = self.start(script.servers.iter().copied().collect(), tell).await;
        let outcome = match servers.is_empty() && !script.servers.is_empty() {
            true => Err(PartError::NoServer),
            false => self.outcome(script, &servers).await,
        };
        end(servers).await;
        Ok(PartContent::Script { outcome: outcome? })
    }

    async fn outcome(&self, script: &ScriptPlan, servers: &[(usize, Server)]) -> Result<ScriptOutcome, PartError> {
        let words = script.run.fill(&self.workspace.values)?;
        let directory = self.workspace.run_directory("script")?;
        let log = directory.join("output");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: &directory,
            cores: &self.workspace.client_cores,
        };
        let mut command = start.command(self.workspace);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?);
        let mut started = on_cores(start.cores, || Started::spawn(&mut command))?;
        let asked = self.asked(servers);
        let Ok(said) = timeout(script.patience, converse(&mut started, &asked)).await else {
            started.end(std::time::Duration::from_secs(5)).await;
            return Err(PartError::TooLong(script.patience));
        };
        let (status, said) = said?;
        if !status.success() {
            return Err(PartError::Failed {
                what: "the script",
                status,
                words: last_words(&log),
            });
        }
        serde_json::from_slice(&said).map_err(PartError::NotUnderstood)
    }

    /// Input of a script, as JSON.
    fn asked(&self, servers: &[(usize, Server)]) -> Vec<u8> {
        let one = |(_, server): &(usize, Server)| {
            json!({
                "name": server.name,
                "about": server.about,
                "url": server.url,
                "port": server.port,
                "pids": server.pids().collect::<Vec<_>>(),
                "run": server.run,
            })
        };
        let asked = json!({
            "haulier": self.workspace.values.get("HAULIER"),
            "place": self.workspace.path(),
            "quick": self.options.quick,
            "server_cores": self.workspace.server_cores,
            "client_cores": self.workspace.client_cores,
            "servers": servers.iter().map(one).collect::<Vec<_>>(),
        });
        asked.to_string().into_bytes()
    }

    /// Starts servers; those that cannot be started are reported as left out.
    async fn start(&mut self, wanted: BTreeSet<usize>, tell: &mut dyn FnMut(PlanEvent<'_>)) -> Vec<(usize, Server)> {
        let mut servers = Vec::new();
        for index in wanted.difference(&self.failed.clone()).copied() {
            let plan = &self.plan.servers[index];
            match Server::start(plan, self.workspace).await {
                Ok(server) => {
                    self.met.insert(index);
                    servers.push((index, server));
                }
                Err(error) => {
                    self.failed.insert(index);
                    let why = chain(&error);
                    tell(PlanEvent::LeftOut {
                        name: &plan.about,
                        why: &why,
                    });
                    self.left_out.push((plan.about.clone(), why));
                }
            }
        }
        servers
    }

    /// Versions of the servers that ran, each program once.
    async fn versions(&self) -> Vec<(String, String)> {
        let mut versions: Vec<(String, String)> = Vec::new();
        for index in &self.met {
            let plan = &self.plan.servers[*index];
            let Some(text) = server::version(plan, self.workspace).await else {
                continue;
            };
            match versions.iter_mut().find(|(_, known)| *known == text) {
                Some((names, _)) => *names = format!("{names}, {}", plan.about),
                None => versions.push((plan.about.clone(), text)),
            }
        }
        versions
    }
}

/// Flags, added to those of a table, for a short run.
pub(super) fn quick(flags: &[String]) -> impl Iterator<Item = &'static str> {
    let timed = flags
        .iter()
        .any(|flag| ["--slice", "--duration", "-t"].contains(&flag.as_str()));
    let length: &[&str] = match flags.iter().any(|flag| flag == "--slice") {
        true => &["--slice", "200ms"],
        false if timed => &["--duration", "1s"],
        false => &["-n", "40"],
    };
    length.iter().copied().chain(["--rounds", "1", "--warmup", "0"])
}

async fn end(servers: Vec<(usize, Server)>) {
    for (_, server) in servers.into_iter().rev() {
        server.end().await;
    }
}

/// Writes the input of a script and reads its output.
async fn converse(started: &mut Started, asked: &[u8]) -> io::Result<(ExitStatus, Vec<u8>)> {
    let child = started.child();
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(asked).await {
            // A script that needs no input need not read it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(MOST_READ).read_to_end(&mut said).await?;
    }
    Ok((child.wait().await?, said))
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
