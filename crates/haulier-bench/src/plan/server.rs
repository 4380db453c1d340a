//! A running server of a plan.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::command_line::CommandLine;
use super::processes::{Start, Started, last_words};
use super::settings::{FURTHER_PORT, Named, ServerPlan};
use super::template::{MissingValue, Values, names_in};
use super::workspace::Workspace;

/// Pause between two checks whether a server is ready.
const LOOK: Duration = Duration::from_millis(50);
/// Longest wait for the answer to one check.
const ANSWER: Duration = Duration::from_secs(5);

/// A server that is ready; dropping it kills it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) about: String,
    /// Its address, without a path.
    pub(super) url: String,
    pub(super) port: u16,
    /// Its own directory.
    pub(super) run: PathBuf,
    started: Vec<Started>,
    patience: Duration,
}

/// The reason that a server does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    /// This machine lacks a program or file that the server needs.
    #[error("{0} is not installed")]
    NotInstalled(String),
    #[error("cannot start {program}")]
    CannotStart { program: String, source: io::Error },
    #[error("{name} ended before it was ready: {words}")]
    Ended { name: String, words: String },
    #[error("{name} was not ready within {patience:?}: {why}; {words}")]
    NotReady {
        name: String,
        patience: Duration,
        why: String,
        words: String,
    },
    #[error("`{command}` failed ({status}): {words}")]
    NotSetUp {
        command: String,
        status: ExitStatus,
        words: String,
    },
    #[error(transparent)]
    Value(#[from] MissingValue),
    #[error("cannot write into the plan's directory")]
    Write(#[from] io::Error),
}

impl Server {
    /// Starts the server's processes, and waits until it is ready and set up.
    pub(super) async fn start(plan: &ServerPlan, workspace: &Workspace) -> Result<Self, ServerError> {
        let run = workspace.run_directory(&plan.name)?;
        let (values, port) = values(plan, workspace, &run)?;
        missing(plan, workspace, &values)?;
        for (name, template) in &plan.files {
            fs::write(run.join(name), values.render(template, workspace.root)?)?;
        }
        let log = run.join("output");
        let mut server = Self {
            name: plan.name.clone(),
            about: plan.about.clone(),
            url: values.fill(&plan.url)?,
            port,
            run: run.clone(),
            started: Vec::new(),
            patience: plan.patience,
        };
        let env = filled(&plan.env, &values)?;
        for line in &plan.run {
            let words = line.fill(&values)?;
            let start = Start {
                words: &words,
                env: &env,
                directory: &run,
                cores: &workspace.server_cores,
            };
            let started = start
                .start(workspace, &log)
                .map_err(|source| ServerError::CannotStart {
                    program: words[0].clone(),
                    source,
                })?;
            server.started.push(started);
        }
        let ready = plan.ready.as_ref().map(|path| values.fill(path)).transpose()?;
        let is_set_up = match server.wait(ready.as_deref(), &log).await {
            Ok(()) => server.set_up(plan, workspace, &values, &env).await,
            Err(error) => Err(error),
        };
        match is_set_up {
            Ok(()) => Ok(server),
            Err(error) => {
                server.end().await;
                Err(error)
            }
        }
    }

    /// Runs the commands of `setup`.
    async fn set_up(
        &self,
        plan: &ServerPlan,
        workspace: &Workspace,
        values: &Values,
        env: &Named,
    ) -> Result<(), ServerError> {
        let log = self.run.join("setup.output");
        for line in &plan.setup {
            let words = line.fill(values)?;
            let start = Start {
                words: &words,
                env,
                directory: &self.run,
                cores: &workspace.client_cores,
            };
            let cannot_start = |source| ServerError::CannotStart {
                program: words[0].clone(),
                source,
            };
            let status = start.run(workspace, &log).await.map_err(cannot_start)?;
            if !status.success() {
                return Err(ServerError::NotSetUp {
                    command: words.join(" "),
                    status,
                    words: last_words(&log),
                });
            }
        }
        Ok(())
    }

    async fn wait(&mut self, ready: Option<&str>, log: &PathBuf) -> Result<(), ServerError> {
        let deadline = Instant::now() + self.patience;
        loop {
            if self.started.iter_mut().any(Started::has_ended) {
                return Err(ServerError::Ended {
                    name: self.name.clone(),
                    words: last_words(log),
                });
            }
            let said = answers(self.port, ready).await;
            let Some(why) = said.err() else { return Ok(()) };
            if Instant::now() > deadline {
                return Err(ServerError::NotReady {
                    name: self.name.clone(),
                    patience: self.patience,
                    why,
                    words: last_words(log),
                });
            }
            sleep(LOOK).await;
        }
    }

    /// The processes that were started, each the root of a tree.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.started.iter().map(|started| started.pid)
    }

    /// Ends its processes, the last started first.
    pub(super) async fn end(mut self) {
        while let Some(mut started) = self.started.pop() {
            started.end(self.patience).await;
        }
    }
}

/// First line of a server's version command; `None` if it has none, or prints nothing.
pub(super) async fn version(plan: &ServerPlan, workspace: &Workspace) -> Option<String> {
    let line = plan.version.as_ref()?;
    let mut values = workspace.values.clone();
    for (name, text) in &plan.values {
        let text = values.fill(text).ok()?;
        values.set(name.as_str(), text);
    }
    printed(line, &values, workspace).await
}

/// First line that a command prints.
pub(super) async fn printed(line: &CommandLine, values: &Values, workspace: &Workspace) -> Option<String> {
    let words = line.fill(values).ok()?;
    let start = Start {
        words: &words,
        env: &Named::new(),
        directory: workspace.path(),
        cores: &workspace.client_cores,
    };
    let output = timeout(ANSWER, start.command(workspace).output()).await.ok()?.ok()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().map(str::trim).find(|line| !line.is_empty())?;
    let bare = ["nginx version: ", "Server version: "]
        .iter()
        .find_map(|before| first.strip_prefix(before));
    Some(bare.unwrap_or(first).to_owned())
}

/// Values for the templates and command lines of a server, and its port.
fn values(plan: &ServerPlan, workspace: &Workspace, run: &std::path::Path) -> Result<(Values, u16), ServerError> {
    let mut values = workspace.values.clone();
    let port = free_port()?;
    values.set("RUN", run.to_string_lossy());
    values.set("PORT", port.to_string());
    let texts = plan.files.iter().map(|(_, text)| text.as_str());
    let texts = texts.chain(
        plan.run
            .iter()
            .chain(&plan.setup)
            .flat_map(|line| line.0.iter().map(String::as_str)),
    );
    for text in texts
        .chain([plan.url.as_str()])
        .chain(plan.values.iter().map(|(_, text)| text.as_str()))
    {
        for (name, _) in names_in(text).filter(|(name, _)| name.starts_with(FURTHER_PORT)) {
            if values.get(name).is_none() {
                values.set(name, free_port()?.to_string());
            }
        }
    }
    for (name, text) in &plan.values {
        let text = values.fill(text)?;
        values.set(name.as_str(), text);
    }
    Ok((values, port))
}

fn filled(pairs: &Named, values: &Values) -> Result<Named, MissingValue> {
    pairs
        .iter()
        .map(|(name, text)| Ok((name.clone(), values.fill(text)?)))
        .collect()
}

/// Refuses a server that this machine cannot run.
fn missing(plan: &ServerPlan, workspace: &Workspace, values: &Values) -> Result<(), ServerError> {
    let programs = plan.run.iter().map(|line| &line.0[0]);
    for need in plan.needs.iter().chain(programs) {
        let need = values.fill(need)?;
        if workspace.find(&need).is_none() {
            return Err(ServerError::NotInstalled(need));
        }
    }
    Ok(())
}

/// A free port. If another program takes it before the server, the server fails to start.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Checks that the port accepts connections and the path answers with a status below 500.
///
/// # Errors
/// A message: the reason that it is not ready.
async fn answers(port: u16, path: Option<&str>) -> Result<(), String> {
    let connected = timeout(ANSWER, TcpStream::connect((Ipv4Addr::LOCALHOST, port))).await;
    let mut stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("no connection".to_owned()),
    };
    let Some(path) = path else { return Ok(()) };
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let mut head = [0; 12];
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_exact(&mut head).await
    };
    match timeout(ANSWER, exchange).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(format!("{path}: {error}")),
        Err(_) => return Err(format!("{path}: no answer within {ANSWER:?}")),
    }
    // `HTTP/1.1 200`
    match head[..5] == *b"HTTP/" && (b'1'..b'5').contains(&head[9]) {
        true => Ok(()),
        false => Err(format!("{path} answers {}", String::from_utf8_lossy(&head[9..]))),
    }
}
