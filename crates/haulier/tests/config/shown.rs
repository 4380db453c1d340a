//! Blocks of the documentation that are marked `run`: what they show is what one sees.
//!
//! Each block is run in a small Symfony project, command by command, on a terminal. Numbers and places are those of this
//! machine; every line shown must be there with all its other words.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::docs::pages;
use crate::program::folder;

/// Long enough for a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command line with the lines it is said to print.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The blocks of a page that begin with "```text run".
fn blocks(page: &str) -> Vec<Vec<Shown>> {
    let blocks = page.split("```text run\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| commands(block)).collect()
}

fn commands(block: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, output) = (command.to_owned(), Vec::new());
            found.push(Shown { command, output });
        } else if let Some(last) = found.last_mut() {
            last.output.push(line.to_owned());
        }
    }
    found
}

/// A project, and where the documentation says it lies.
struct Project(TempDir);

impl Project {
    fn new(with_configuration: bool) -> Self {
        let place = folder(&[
            (
                "public/index.php",
                "<?php usleep(2000); echo str_repeat('page ', 2000);",
            ),
            ("public/build/app.css", &"p { margin: 0 }\n".repeat(500)),
            ("src/Kernel.php", "<?php"),
        ]);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        if with_configuration {
            let port = || {
                let listener = TcpListener::bind("[::]:0").expect("a free port");
                listener.local_addr().expect("bound").port()
            };
            // Who is not root serves as himself.
            let is_root = rustix::process::geteuid().is_root();
            let user = if is_root { "user = \"www-data\"\n" } else { "" };
            let text = format!(
                "[server]\n{user}http = \":{}\"\nadmin = \"127.0.0.1:{}\"\n[site.app]\nroot = {:?}\n",
                port(),
                port(),
                place.path()
            );
            fs::write(place.path().join("haulier.toml"), text).expect("it is ours");
        }
        Self(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Starts a command on a terminal.
    fn start(&self, command: &str) -> Child {
        let here = self.path().to_str().expect("text");
        let command = command.replace("/etc/haulier", here);
        // In place of the shell, so that a server is the terminal's own child.
        let command = if serves(&command) {
            format!("exec {command}")
        } else {
            command
        };
        let bin = Path::new(env!("CARGO_BIN_EXE_haulier")).parent().expect("a directory");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut script = Command::new("script");
        script
            .args(["-qec", &command, "/dev/null"])
            .current_dir(self.path())
            .env("PATH", path)
            .env("TZ", "CET-1")
            .env("NO_COLOR", "1")
            .env("STATE_DIRECTORY", self.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        script.spawn().expect("it starts")
    }

    /// A line with the places of the documentation, and numbers left out.
    fn in_general(&self, line: &str) -> String {
        let line = line.replace(self.path().to_str().expect("text"), "/srv/app");
        // Only root starts PHP as somebody else.
        let words = line.split_whitespace().map(general);
        words.collect::<Vec<_>>().join(" ").replace(" as www-data", "")
    }
}

/// A word without its numbers; units of time and size are all the same.
fn general(word: &str) -> String {
    let word = word.strip_suffix(',').unwrap_or(word);
    match word {
        "µs" | "ms" | "s" => return "ms".to_owned(),
        "B" | "KB" | "MB" => return "KB".to_owned(),
        _ => {}
    }
    let mut text = String::new();
    let mut rest = word.strip_prefix('<').unwrap_or(word);
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            text.push('#');
            rest = rest.trim_start_matches(|next: char| next.is_ascii_digit() || matches!(next, '.' | ','));
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

/// The lines that a command writes, as they come.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let output = child.stdout.take().expect("piped");
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Whether a command goes on until it is ended.
fn serves(command: &str) -> bool {
    ["haulier serve", "haulier run"]
        .iter()
        .any(|begin| command.starts_with(begin))
}

/// Checks one command of a block.
#[track_caller]
fn check(project: &Project, shown: &Shown) {
    let mut child = project.start(&shown.command);
    let lines = lines_of(&mut child);
    let (mut expected, mut said) = (shown.output.iter().collect::<Vec<_>>(), Vec::new());
    let serves = serves(&shown.command);
    let mut is_asked = false;
    while !expected.is_empty() || (serves && said.is_empty()) {
        let Ok(line) = lines.recv_timeout(PATIENCE) else { break };
        let seen = project.in_general(&line);
        // A request that waited, for PHP to start, has that behind it.
        let place = expected
            .iter()
            .position(|line| seen.starts_with(&project.in_general(line)));
        place.map(|place| expected.remove(place));
        said.push(line);
        // What is left are the lines of requests: somebody has to make them.
        if !is_asked && !expected.is_empty() && expected.iter().all(|line| line.contains("  GET  ")) {
            is_asked = true;
            let address = said.iter().find_map(|line| line.trim().strip_prefix("http://"));
            let address = address.and_then(|rest| rest.split('/').next()).expect("an address");
            for line in &expected {
                ask(address, line.split_whitespace().nth(3).expect("a path"));
            }
        }
    }
    if serves {
        end(&child);
    }
    let status = child.wait().expect("our child");
    assert!(
        expected.is_empty(),
        "{}: {expected:#?} is not in {said:#?}",
        shown.command
    );
    assert!(status.success(), "{}: {status} {said:#?}", shown.command);
}

fn ask(address: &str, path: &str) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    stream.read_to_end(&mut Vec::new()).expect("an answer");
}

/// Asks the server on the terminal to end.
fn end(terminal: &Child) {
    let pid = terminal.id();
    let below = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("/proc is mounted");
    for pid in below.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        let server = Pid::from_raw(pid).expect("not zero");
        kill_process(server, Signal::TERM).expect("it runs");
    }
}

#[test]
fn blocks_marked_run_show_what_one_sees() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("SKIPPED: what commands show on a terminal needs script (package bsdutils)");
        return;
    }
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).expect("a page")) {
            let needs_file = block.iter().any(|shown| shown.command.contains("haulier.toml"));
            let project = Project::new(needs_file);
            for shown in &block {
                check(&project, shown);
                seen += 1;
            }
        }
    }
    assert!(seen >= 6, "only {seen} commands are marked");
}

#[test]
fn a_start_on_a_terminal_takes_six_lines_at_most() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("SKIPPED: what commands show on a terminal needs script (package bsdutils)");
        return;
    }
    let project = Project::new(false);
    let mut child = project.start("haulier serve --workers 1");
    let lines = lines_of(&mut child);
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains("Ctrl-C stops.")) {
        said.push(lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{said:#?}")));
    }
    end(&child);
    assert!(said.len() <= 6, "{said:#?}");
    assert!(!said.concat().contains('\x1b'), "NO_COLOR is respected: {said:#?}");
    assert!(child.wait().expect("our child").success());
}

#[test]
fn numbers_and_units_are_left_out_and_words_are_not() {
    assert_eq!(general("12:04:11"), "#:#:#");
    assert_eq!(general("8.2.36"), "#");
    assert_eq!(general("<1"), general("0.3"));
    assert_eq!(general("KB"), general("B"));
    assert_ne!(general("php"), general("static"));
    let block = "$ haulier serve\nhaulier 0.1.0\n\n  text\n$ next\n";
    let found = commands(block);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].output, ["haulier 0.1.0", "  text"]);
}
