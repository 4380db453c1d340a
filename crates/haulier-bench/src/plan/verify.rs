//! Check of a target's answer before the first round.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::report::data;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::processes::{Start, last_words};
use super::run::quick;
use super::server::Server;
use super::settings::{Named, TablePlan, TargetPlan};
use super::workspace::{Workspace, own_program};

/// Most bytes of an answer that are searched.
const MOST_READ: u64 = 64 << 20;
/// The longest wait for a whole answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Checks a target against `expect` and `body` of its table.
///
/// # Errors
/// A message with the difference from the expected answer.
pub(super) async fn check(
    table: &TablePlan,
    target: &TargetPlan,
    server: &Server,
    workspace: &Workspace,
) -> Result<(), String> {
    if let Some(text) = &table.expect {
        contains(target, server, text).await?;
    }
    match &table.body {
        Some(path) => {
            let path = workspace.values.fill(path).map_err(|error| error.to_string())?;
            is_file(table, target, server, workspace, Path::new(&path)).await
        }
        None => Ok(()),
    }
}

/// Requests a target once and searches the answer for the text.
async fn contains(target: &TargetPlan, server: &Server, text: &str) -> Result<(), String> {
    let answer = match timeout(ANSWER, get(target, server)).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err(format!("no complete answer within {ANSWER:?}")),
    };
    let status = String::from_utf8_lossy(&answer[..answer.len().min(15)])
        .trim()
        .to_owned();
    if !status.contains(" 200") {
        return Err(format!("it answered \"{status}\""));
    }
    match answer.windows(text.len().max(1)).any(|part| part == text.as_bytes()) {
        true => Ok(()),
        false => Err(format!("{} bytes without \"{text}\"", answer.len())),
    }
}

async fn get(target: &TargetPlan, server: &Server) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n",
        target.path, server.port
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST_READ).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Measures the target shortly with the flags of the table, and compares the body with a file. The server is warm
/// afterwards.
async fn is_file(
    table: &TablePlan,
    target: &TargetPlan,
    server: &Server,
    workspace: &Workspace,
    file: &Path,
) -> Result<(), String> {
    let content = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let expected: String = Sha256::digest(&content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let directory = workspace.run_directory("check").map_err(|error| error.to_string())?;
    let (json, log) = (directory.join("run.json"), directory.join("output"));
    let mut words = vec![own_program().to_string_lossy().into_owned(), "bench".to_owned()];
    words.extend(table.flags.iter().cloned());
    words.extend(quick(&table.flags).map(str::to_owned));
    words.extend(["--json".to_owned(), json.to_string_lossy().into_owned()]);
    words.push(format!("{}={}{}", target.name, server.url, target.path));
    let start = Start {
        words: &words,
        env: &Named::new(),
        directory: &directory,
        cores: &workspace.client_cores,
    };
    let ended = start.run(workspace, &log).await.map_err(|error| error.to_string())?;
    let Ok(run) = data::read_run(&json) else {
        return Err(format!("haulier bench ended with {ended}: {}", last_words(&log)));
    };
    let answer = run.targets.first().and_then(|target| target.answer.as_ref());
    match answer {
        None => Err("no answer".to_owned()),
        Some(answer) if answer.status != 200 => Err(format!("it answered \"{} {}\"", answer.version, answer.status)),
        Some(answer) if answer.sha256 != expected => Err(format!(
            "its {} bytes differ from {}",
            answer.decoded_bytes,
            file.display()
        )),
        Some(_) => Ok(()),
    }
}
