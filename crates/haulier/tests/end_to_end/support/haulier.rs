//! The real binary as a child process: started, watched, read and ended by its pid.
//!
//! Every test ends with the same questions, asked when `Haulier` is dropped: has anything panicked, is any client
//! connection or spool file still open, does each 5xx name its reason, does SIGTERM end it with code 0.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::{Connection, Request, Response};
use super::metrics::Metrics;
use super::wait_until;

/// Lines written so far, to standard output and standard error alike.
type Lines = Arc<Mutex<Vec<String>>>;

/// A running server.
#[derive(Debug)]
pub(crate) struct Haulier {
    child: Child,
    address: SocketAddr,
    lines: Lines,
    /// The threads that read them.
    readers: Vec<JoinHandle<()>>,
    /// What the server works on; lives as long as the server.
    _holds: Vec<Box<dyn std::fmt::Debug>>,
}

impl Haulier {
    /// The binary under test.
    pub(crate) fn command() -> Command {
        Command::new(env!("CARGO_BIN_EXE_haulier"))
    }

    /// Starts the server and waits for its start line.
    #[track_caller]
    pub(crate) fn start(mut command: Command, holds: Vec<Box<dyn std::fmt::Debug>>) -> Self {
        command.stdin(Stdio::null());
        Self::start_as_it_is(command, holds)
    }

    /// The same with what the command says about its standard input.
    #[track_caller]
    pub(crate) fn start_as_it_is(mut command: Command, holds: Vec<Box<dyn std::fmt::Debug>>) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let lines = Lines::default();
        let readers = vec![
            collect(child.stdout.take().expect("piped"), &lines),
            collect(child.stderr.take().expect("piped"), &lines),
        ];
        let address = wait_for_address(&mut child, &lines);
        Self {
            child,
            address,
            lines,
            readers,
            _holds: holds,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// GETs on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.ask(&Request::get(target))
    }

    /// Sends one request on a connection of its own.
    #[track_caller]
    pub(crate) fn ask(&self, request: &Request) -> Response {
        self.connect().ask(request)
    }

    /// Somebody new is answered in time, whatever else goes on. The machine may be busy with other things, so the best of
    /// several answers counts.
    #[track_caller]
    pub(crate) fn assert_answers_in_time(&self, target: &str, during: &str) {
        const IN_TIME: Duration = Duration::from_secs(2);
        let mut took = Duration::MAX;
        for _ in 0..20 {
            let start = Instant::now();
            self.get(target).expect(200);
            took = took.min(start.elapsed());
            if took < IN_TIME {
                return;
            }
        }
        panic!("during {during}, an answer took {took:?}");
    }

    /// Sends raw bytes on a connection of its own and reads one response to a GET.
    #[track_caller]
    pub(crate) fn ask_raw(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut connection = self.connect();
        connection.send(bytes);
        connection.read_response("GET").expect("a response")
    }

    /// All lines written so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The access log so far.
    pub(crate) fn access_log(&self) -> Vec<Value> {
        self.lines().iter().filter_map(|line| access_line(line)).collect()
    }

    /// Waits for the access log line of this path and gives it back.
    #[track_caller]
    pub(crate) fn access_line_for(&self, path: &str) -> Value {
        let find = || self.access_log().into_iter().find(|line| line["path"] == path);
        wait_until(&format!("an access log line for {path}"), || find().is_some());
        find().expect("just seen")
    }

    /// Waits for a line that holds this text.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, text: &str) {
        let what = format!("a log line with {text:?} in {:#?}", self.lines());
        wait_until(&what, || self.lines().iter().any(|line| line.contains(text)));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server can be signalled");
    }

    /// Waits for the server to end by itself or by an earlier signal.
    pub(crate) fn wait_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// What the server said at its start.
    pub(crate) fn start_line(&self) -> Value {
        let lines = self.lines();
        let line = lines.iter().find(|line| start_line_address(line).is_some());
        serde_json::from_str(line.expect("it has started")).expect("just parsed")
    }

    /// The address of metrics and health.
    pub(crate) fn admin(&self) -> SocketAddr {
        let line = self.start_line();
        let address = line["admin"].as_str().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("no admin address in {line}"))
    }

    /// The address of probes.
    pub(crate) fn probes(&self) -> SocketAddr {
        let line = self.start_line();
        let address = line["probes"].as_str().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("no address of probes in {line}"))
    }

    /// The address of TLS.
    pub(crate) fn https(&self) -> SocketAddr {
        let line = self.start_line();
        let address = line["https"][0].as_str().and_then(|address| address.parse().ok());
        address.unwrap_or_else(|| panic!("no address of TLS in {line}"))
    }

    /// Where it is asked and told.
    pub(crate) fn control(&self) -> PathBuf {
        let line = self.start_line();
        let path = line["control"].as_str().map(PathBuf::from);
        path.unwrap_or_else(|| panic!("no control socket in {line}"))
    }

    /// Runs a command on its control socket to the end.
    #[track_caller]
    pub(crate) fn tell(&self, arguments: &[&str]) -> Output {
        let mut command = Self::command();
        command.args(arguments).arg("--socket").arg(self.control());
        command.output().expect("the binary starts")
    }

    /// Has it read its configuration again; gives what it says about that.
    #[track_caller]
    pub(crate) fn reload(&self) -> String {
        let output = self.tell(&["reload"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The metrics as they are now.
    #[track_caller]
    pub(crate) fn metrics(&self) -> Metrics {
        let answer = Connection::open(self.admin())
            .ask(&Request::get("/metrics"))
            .expect(200);
        Metrics::parse(&answer.text())
    }

    /// Pids of the php-cgi workers: children of our child's children.
    pub(crate) fn php_workers(&self) -> Vec<u32> {
        children_of(self.pid()).into_iter().flat_map(children_of).collect()
    }

    /// Memory of the server itself, bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.expect("a size in kB") * 1024
    }

    /// Processor time used so far by the server itself, user and system.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the server runs");
        let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
        let ticks = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|tick| tick.parse::<u64>().expect("ticks"));
        // The kernel shows user space a hundred ticks a second on every architecture (USER_HZ).
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// Descriptors that a finished test must not leave behind: client connections and nameless files.
    fn left_open(&self) -> Vec<String> {
        let secure = self.start_line()["https"][0]
            .as_str()
            .and_then(|text| text.parse::<SocketAddr>().ok());
        let ports = [Some(self.address), secure].into_iter().flatten();
        let ports: Vec<u16> = ports.map(|address| address.port()).collect();
        let waiting: usize = ports.iter().map(|port| unaccepted(*port)).sum();
        let connected: Vec<String> = ports.into_iter().flat_map(connected_inodes).collect();
        let links = descriptors(self.pid());
        let is_left = |link: &String| is_spool(link) || connected.iter().any(|inode| link.contains(inode));
        let mut left: Vec<String> = links.into_iter().filter(is_left).collect();
        if waiting > 0 {
            left.push(format!("{waiting} in the queue of connections to accept"));
        }
        left
    }

    fn check_end(&mut self) -> String {
        let mut faults = String::new();
        let end = Instant::now() + Duration::from_secs(40);
        let left = loop {
            let left = self.left_open();
            if left.is_empty() || Instant::now() > end {
                break left;
            }
            thread::sleep(Duration::from_millis(20));
        };
        for link in left {
            let _ = writeln!(faults, "still open after the test: {link}{}", connection_of(&link));
        }
        self.signal(Signal::TERM);
        match self.wait_within(Duration::from_secs(60)) {
            Some(status) if status.success() => {}
            Some(status) => _ = writeln!(faults, "SIGTERM ended it with {status}"),
            None => _ = writeln!(faults, "SIGTERM did not end it within a minute"),
        }
        faults
    }

    fn check_log(&self) -> String {
        let mut faults = String::new();
        for line in self.lines().iter().filter(|line| line.contains("panicked")) {
            let _ = writeln!(faults, "panic: {line}");
        }
        let failed = |line: &Value| line["status"].as_u64().is_some_and(|status| status >= 500);
        let unexplained = |line: &Value| line["reason"].as_str().is_none_or(str::is_empty);
        for line in self
            .access_log()
            .iter()
            .filter(|line| failed(line) && unexplained(line))
        {
            let _ = writeln!(faults, "a 5xx without reason: {line}");
        }
        faults
    }
}

impl Drop for Haulier {
    fn drop(&mut self) {
        let running = self.child.try_wait().is_ok_and(|status| status.is_none());
        let mut faults = String::new();
        if running && !thread::panicking() {
            faults = self.check_end();
        } else if running {
            self.signal(Signal::TERM);
            self.signal(Signal::TERM);
            self.wait_within(Duration::from_secs(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The pipes end with whoever wrote into them; a PHP that is about to end may be slower than the server was.
        let end = Instant::now() + Duration::from_secs(5);
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        faults += &self.check_log();
        if thread::panicking() {
            eprintln!("log of the server:\n{}", self.lines().join("\n"));
        } else {
            assert!(
                faults.is_empty(),
                "{faults}log of the server:\n{}",
                self.lines().join("\n")
            );
        }
    }
}

fn collect(stream: impl Read + Send + 'static, lines: &Lines) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}

#[track_caller]
fn wait_for_address(child: &mut Child, lines: &Lines) -> SocketAddr {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(address) = seen.iter().find_map(|line| start_line_address(line)) {
            return address;
        }
        let ended = child.try_wait().expect("our child");
        if ended.is_some() || Instant::now() > end {
            let _ = child.kill();
            panic!("no start line with an address (ended: {ended:?}):\n{}", seen.join("\n"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first address in the start line: `{"msg":"listening","listen":["127.0.0.1:40123"],…}`.
pub(crate) fn start_line_address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    line["listen"].as_array()?.first()?.as_str()?.parse().ok()
}

fn access_line(line: &str) -> Option<Value> {
    let line: Value = serde_json::from_str(line).ok()?;
    line["status"].is_u64().then_some(line)
}

/// Whether a descriptor is a nameless file in a `spool_dir` of [`Site`](super::site::Site).
fn is_spool(link: &str) -> bool {
    link.contains("/spool/") && !link.contains("/haulier-variants-") && link.ends_with("(deleted)")
}

/// What the descriptors of a process point to.
pub(crate) fn descriptors(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// `socket:[inode]` of every connection to this port.
fn connected_inodes(port: u16) -> Vec<String> {
    let rows = connections_of(port).into_iter().filter(|(inode, _)| inode != "0");
    rows.map(|(inode, _)| format!("socket:[{inode}]")).collect()
}

/// Number of connections to this port that no process has accepted yet.
fn unaccepted(port: u16) -> usize {
    let is_waiting = |(inode, state): &(String, String)| inode == "0" && matches!(&**state, "01" | "08");
    connections_of(port).iter().filter(|row| is_waiting(row)).count()
}

/// Inode and state of every TCP socket bound to this port that is not listening. Established (01) and closed by the
/// client (08) without an inode are those that wait to be accepted.
fn connections_of(port: u16) -> Vec<(String, String)> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let local = format!(":{port:04X}");
    let rows = table
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 9 && row[1].ends_with(&local) && row[3] != "0A")
        .map(|row| (row[9].to_owned(), row[3].to_owned()))
        .collect()
}

/// State of a connection that was left open, from the kernel's table: its own end, the other end, and the process that
/// holds that.
fn connection_of(link: &str) -> String {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    let inode = link.trim_start_matches("socket:[").trim_end_matches(']');
    let Some(own) = rows.iter().find(|row| row.get(9) == Some(&inode)) else {
        return String::new();
    };
    let other = rows
        .iter()
        .find(|row| row.len() > 9 && row[1] == own[2] && row[2] == own[1]);
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders: Vec<String> = pids
        .filter(|pid| other.is_some_and(|row| descriptors(*pid).contains(&format!("socket:[{}]", row[9]))))
        .map(|pid| {
            format!(
                "{pid} {}",
                fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
            )
        })
        .collect();
    format!("\n    its row: {own:?}\n    the client's: {other:?}, held by {holders:?}")
}

/// Pids of the processes whose parent is `pid`.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|child| parent_of(*child) == Some(pid)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    // A zombie is no child any more.
    (fields.next()? != "Z").then_some(())?;
    fields.next()?.parse().ok()
}
