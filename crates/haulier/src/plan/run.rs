//! A plan from its first server to its last table.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::place::{Place, PlaceError, own_program};
use super::processes::{Start, Started, last_words, on_cores};
use super::server::{self, Server};
use super::settings::{Named, Part as PartPlan, Plan, ScriptPlan, TablePlan, TargetPlan};
use super::template::NoValue;
use haulier_bench::report::book::{Outcome, Page, Part};
use haulier_bench::report::data::{self, DataError};

/// The most of an answer that is searched for the text it must contain, and of what a script may say.
const MOST_READ: u64 = 64 << 20;

/// How a plan is run, beside what it says itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    /// Only parts whose title holds one of these texts; all without any.
    pub(crate) only: Vec<String>,
    /// Does it run? Everything once, and short.
    pub(crate) quick: bool,
}

/// What happens, for whoever watches.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A part begins.
    Begun { title: &'a str },
    /// A server takes no part.
    LeftOut { name: &'a str, why: &'a str },
    /// A part was measured, or could not be.
    Done(&'a Part),
}

/// Why a plan came to no end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("`{command}` failed ({status}): {words}")]
    Prepare {
        command: String,
        status: ExitStatus,
        words: String,
    },
    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },
    #[error(transparent)]
    Value(#[from] NoValue),
    #[error("no part has a title with {0}")]
    NoPart(String),
    #[error("cannot write into the plan's directory")]
    Write(#[from] io::Error),
}

/// Why a part could not be measured; the others still are.
#[derive(Debug, thiserror::Error)]
enum PartError {
    #[error("none of its servers could be started")]
    NoServer,
    #[error("{name} did not answer as it should: {why}")]
    WrongAnswer { name: String, why: String },
    #[error("{what} ended with {status}: {words}")]
    Failed {
        what: &'static str,
        status: ExitStatus,
        words: String,
    },
    #[error("the script took longer than {0:?}")]
    TooLong(std::time::Duration),
    #[error("what the script said is not understood")]
    NotUnderstood(#[source] serde_json::Error),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Value(#[from] NoValue),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs a plan; `tell` hears of every step.
///
/// # Errors
/// When nothing could be measured at all: no place to run in, or a command that prepares failed.
pub(crate) async fn run(plan: &Plan, wishes: &Wishes, tell: &mut dyn FnMut(Event<'_>)) -> Result<Page, RunError> {
    let parts: Vec<&PartPlan> = plan.parts.iter().filter(|part| is_wanted(part, wishes)).collect();
    if parts.is_empty() {
        return Err(RunError::NoPart(wishes.only.join(" or ")));
    }
    let place = Place::make(plan)?;
    prepare(plan, &place).await?;
    let mut run = Running {
        plan,
        place: &place,
        wishes,
        left_out: Vec::new(),
        met: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    let mut done = Vec::new();
    for part in parts {
        tell(Event::Begun { title: title(part) });
        let part = run.part(part, tell).await;
        tell(Event::Done(&part));
        done.push(part);
    }
    let versions = run.versions().await;
    Ok(Page {
        title: plan.title.clone(),
        about: plan.about.clone(),
        plan: Some(plan.path.to_string_lossy().into_owned()),
        parts: done,
        versions,
        left_out: run.left_out,
    })
}

fn title(part: &PartPlan) -> &str {
    match part {
        PartPlan::Table(table) => &table.title,
        PartPlan::Script(script) => &script.title,
    }
}

fn is_wanted(part: &PartPlan, wishes: &Wishes) -> bool {
    let title = title(part).to_lowercase();
    wishes.only.is_empty() || wishes.only.iter().any(|text| title.contains(&text.to_lowercase()))
}

/// The commands that come before everything else.
async fn prepare(plan: &Plan, place: &Place) -> Result<(), RunError> {
    let log = place.path().join("prepare.output");
    for line in &plan.prepare {
        let words = line
            .0
            .iter()
            .map(|word| place.values.fill(word))
            .collect::<Result<Vec<_>, _>>()?;
        let command = words.join(" ");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: place.path(),
            cores: &place.client_cores,
        };
        let fault = |source| RunError::Start {
            command: command.clone(),
            source,
        };
        let mut started = start.start(place, &log).map_err(fault)?;
        let status = started.child().wait().await.map_err(fault)?;
        if !status.success() {
            let words = last_words(&log);
            return Err(RunError::Prepare { command, status, words });
        }
    }
    Ok(())
}

/// A plan under way.
struct Running<'p> {
    plan: &'p Plan,
    place: &'p Place,
    wishes: &'p Wishes,
    left_out: Vec<(String, String)>,
    /// Servers that ran, by their place in the plan.
    met: BTreeSet<usize>,
    /// Servers that did not; they are not tried again.
    failed: BTreeSet<usize>,
}

impl Running<'_> {
    async fn part(&mut self, part: &PartPlan, tell: &mut dyn FnMut(Event<'_>)) -> Part {
        let measured = match part {
            PartPlan::Table(table) => self.table(table, tell).await,
            PartPlan::Script(script) => self.script(script, tell).await,
        };
        measured.unwrap_or_else(|error| Part::Failed {
            title: title(part).to_owned(),
            why: chain(&error),
        })
    }

    async fn table(&mut self, table: &TablePlan, tell: &mut dyn FnMut(Event<'_>)) -> Result<Part, PartError> {
        let wanted: BTreeSet<usize> = table.targets.iter().map(|target| target.server).collect();
        let servers = self.start(wanted, tell).await;
        let measured = match servers.is_empty() {
            true => Err(PartError::NoServer),
            false => self.measure(table, &servers).await,
        };
        end(servers).await;
        measured
    }

    async fn measure(&self, table: &TablePlan, servers: &[(usize, Server)]) -> Result<Part, PartError> {
        let mut targets: Vec<(&TargetPlan, &Server)> = Vec::new();
        for target in &table.targets {
            if let Some((_, server)) = servers.iter().find(|(place, _)| *place == target.server) {
                targets.push((target, server));
            }
        }
        if let Some(text) = &table.expect {
            for (target, server) in &targets {
                expect(target, server, text).await?;
            }
        }
        let json = self.place.run_directory("table")?.join("run.json");
        let words = self.bench_words(table, &targets, &json);
        let log = json.with_file_name("output");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: self.place.path(),
            cores: &self.place.client_cores,
        };
        let status = start.start(self.place, &log)?.child().wait().await?;
        if !json.exists() {
            return Err(PartError::Failed {
                what: "haulier bench",
                status,
                words: last_words(&log),
            });
        }
        let mut book = data::read(&json)?;
        let Some(Part::Run { mut run, .. }) = book.pages.pop().and_then(|mut page| page.parts.pop()) else {
            unreachable!("a run is a book of one page with one part");
        };
        // Ports and processes were of this run; what somebody else can repeat is the plan.
        run.command = ["haulier", "bench"].map(str::to_owned).to_vec();
        run.command.extend(self.flags(table));
        let named = targets
            .iter()
            .map(|(target, server)| format!("{}={}{}", target.name, server.name, target.path));
        run.command.extend(named);
        Ok(Part::Run {
            title: table.title.clone(),
            about: table.about.clone(),
            run,
        })
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
        let short = quick(&table.flags).filter(|_| self.wishes.quick).map(str::to_owned);
        table.flags.iter().cloned().chain(short).collect()
    }

    async fn script(&mut self, script: &ScriptPlan, tell: &mut dyn FnMut(Event<'_>)) -> Result<Part, PartError> {
        let servers = self.start(script.servers.iter().copied().collect(), tell).await;
        let outcome = match servers.is_empty() && !script.servers.is_empty() {
            true => Err(PartError::NoServer),
            false => self.outcome(script, &servers).await,
        };
        end(servers).await;
        Ok(Part::Script {
            title: script.title.clone(),
            about: script.about.clone(),
            outcome: outcome?,
        })
    }

    async fn outcome(&self, script: &ScriptPlan, servers: &[(usize, Server)]) -> Result<Outcome, PartError> {
        let values = &self.place.values;
        let words = script
            .run
            .0
            .iter()
            .map(|word| values.fill(word))
            .collect::<Result<Vec<_>, _>>()?;
        let directory = self.place.run_directory("script")?;
        let log = directory.join("output");
        let start = Start {
            words: &words,
            env: &Named::new(),
            directory: &directory,
            cores: &self.place.client_cores,
        };
        let mut command = start.command(self.place);
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

    /// What a script is told.
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
            "haulier": self.place.values.get("HAULIER"),
            "place": self.place.path(),
            "quick": self.wishes.quick,
            "server_cores": self.place.server_cores,
            "client_cores": self.place.client_cores,
            "servers": servers.iter().map(one).collect::<Vec<_>>(),
        });
        asked.to_string().into_bytes()
    }

    /// Starts those that can be started; the others are noted.
    async fn start(&mut self, wanted: BTreeSet<usize>, tell: &mut dyn FnMut(Event<'_>)) -> Vec<(usize, Server)> {
        let mut servers = Vec::new();
        for place in wanted.difference(&self.failed.clone()).copied() {
            let plan = &self.plan.servers[place];
            match Server::start(plan, self.place).await {
                Ok(server) => {
                    self.met.insert(place);
                    servers.push((place, server));
                }
                Err(error) => {
                    self.failed.insert(place);
                    let why = chain(&error);
                    tell(Event::LeftOut {
                        name: &plan.about,
                        why: &why,
                    });
                    self.left_out.push((plan.about.clone(), why));
                }
            }
        }
        servers
    }

    /// What the servers that ran say of themselves, each program once.
    async fn versions(&self) -> Vec<(String, String)> {
        let mut versions: Vec<(String, String)> = Vec::new();
        for place in &self.met {
            let plan = &self.plan.servers[*place];
            let Some(text) = server::version(plan, self.place).await else {
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

/// Flags behind those of a table that make it short.
fn quick(flags: &[String]) -> impl Iterator<Item = &'static str> {
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

/// Gives a script its input and takes what it says.
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

/// Asks a target once and looks for the text.
async fn expect(target: &TargetPlan, server: &Server, text: &str) -> Result<(), PartError> {
    let wrong = |why: String| PartError::WrongAnswer {
        name: target.name.clone(),
        why,
    };
    let mut stream = TcpStream::connect(("127.0.0.1", server.port))
        .await
        .map_err(|error| wrong(error.to_string()))?;
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n",
        target.path, server.port
    );
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        stream.take(MOST_READ).read_to_end(&mut answer).await
    };
    match timeout(std::time::Duration::from_secs(30), exchange).await {
        Ok(read) => read.map_err(|error| wrong(error.to_string()))?,
        Err(_) => return Err(wrong("no whole answer within 30 s".to_owned())),
    };
    let status = String::from_utf8_lossy(&answer[..answer.len().min(15)])
        .trim()
        .to_owned();
    let holds = answer.windows(text.len().max(1)).any(|part| part == text.as_bytes());
    if !status.contains(" 200") {
        return Err(wrong(format!("it said \"{status}\"")));
    }
    match holds {
        true => Ok(()),
        false => Err(wrong(format!("{} bytes without \"{text}\"", answer.len()))),
    }
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
