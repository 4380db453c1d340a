//! Shared by the tests: a directory of PHP scripts, pools on php-cgi and php-fpm, a builder of requests, and a scripted
//! FastCGI server that can misbehave.

#![allow(dead_code)] // each test program uses its part

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use haulier_http::Presence;
use haulier_php::{
    Address, Body, Embedded, External, Pool, PoolError, PoolKind, PoolSettings, Request, Response, Supervised,
};
use haulier_proto::fastcgi::{CgiHead, ParamsWriter};
use tempfile::TempDir;
use tokio::task::LocalSet;

pub(crate) mod responder;
pub(crate) mod visitors;

/// Timeout of a test, long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of PHP scripts that any user can read, with `app.php` in it.
pub(crate) struct Scripts {
    pub(crate) dir: TempDir,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let scripts = Self { dir };
        scripts.add("app.php", include_str!("app.php"));
        scripts
    }

    pub(crate) fn add(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a script");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Opens this gate for the scripts of [`Call::held`].
    pub(crate) fn open(&self, gate: &str) {
        self.add(gate, "");
    }
}

/// The installed php-cgi, or the one that tests/sanitizer/run.sh names.
pub(crate) fn php() -> PathBuf {
    if let Some(php) = std::env::var_os("HAULIER_TEST_PHP") {
        return php.into();
    }
    ["/usr/bin/php-cgi8.2", "/usr/bin/php-cgi"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
        .expect("php-cgi")
}

pub(crate) fn fpm_program() -> PathBuf {
    let programs = fs::read_dir("/usr/sbin").expect("/usr/sbin");
    let is_fpm = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
    };
    programs
        .flatten()
        .map(|entry| entry.path())
        .find(is_fpm)
        .expect("php-fpm")
}

pub(crate) fn settings(kind: PoolKind) -> PoolSettings {
    PoolSettings {
        timeout: PATIENCE,
        queue_timeout: PATIENCE,
        ..PoolSettings::new("test", kind)
    }
}

pub(crate) fn supervised(scripts: &Scripts, workers: usize) -> Supervised {
    Supervised {
        workers,
        embedded: crate::EMBEDDED.then(|| embedded(None)),
        ini: vec![("display_errors".into(), "0".into()), ("log_errors".into(), "1".into())],
        env_copy: vec!["PATH".into()],
        ..Supervised::new(php(), scripts.path("run"))
    }
}

/// Workers of our own for the installed PHP, with this script booted.
pub(crate) fn embedded(script: Option<PathBuf>) -> Embedded {
    let output = Command::new(php()).arg("-v").output().expect("php-cgi runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .trim_start_matches("PHP ")
        .split('.')
        .take(2)
        .collect::<Vec<_>>()
        .join(".");
    Embedded {
        version,
        script,
        release: None,
    }
}

pub(crate) fn external(servers: Vec<Address>, connections: usize) -> PoolSettings {
    settings(PoolKind::External(External {
        connections,
        connect_timeout: Duration::from_secs(5),
        keep_conn: true,
        idle_timeout: PATIENCE,
        ..External::new(servers)
    }))
}

/// A supervised pool with `workers`, after `change`.
pub(crate) fn own_pool(
    scripts: &Scripts,
    workers: usize,
    change: impl FnOnce(&mut PoolSettings, &mut Supervised),
) -> Arc<Pool> {
    let mut own = supervised(scripts, workers);
    let mut settings = settings(PoolKind::Supervised(own.clone()));
    change(&mut settings, &mut own);
    settings.kind = PoolKind::Supervised(own);
    Pool::start(settings).expect("the pool starts")
}

/// A php-fpm in the foreground, with a pool on a Unix socket and one on TCP.
pub(crate) struct Fpm {
    master: Child,
    pub(crate) unix: Address,
    pub(crate) tcp: Address,
}

impl Fpm {
    pub(crate) fn start(scripts: &Scripts, children: usize) -> Self {
        for _ in 0..9 {
            if let Some(fpm) = Self::try_start(scripts, children) {
                return fpm;
            }
        }
        panic!("php-fpm does not listen: {}", scripts.path("fpm.log").display());
    }

    /// Starts it; `None` if it ends, for example because another process has taken its port meanwhile.
    fn try_start(scripts: &Scripts, children: usize) -> Option<Self> {
        let (socket, address) = (scripts.path("fpm.sock"), free_address());
        let _ = fs::remove_file(&socket);
        let pool = |name: &str, listen: String| {
            format!(
                "[{name}]\nlisten = {listen}\nuser = www-data\ngroup = www-data\nlisten.mode = 0666\npm = static\n\
                 pm.max_children = {children}\ncatch_workers_output = no\nping.path = /ping\npm.status_path = /status\n\
                 php_admin_value[display_errors] = 0\n"
            )
        };
        let config = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n{}{}",
            scripts.path("fpm.log").display(),
            pool("unix", socket.display().to_string()),
            pool("tcp", address.to_string()),
        );
        let file = scripts.path("fpm.conf");
        fs::write(&file, config).expect("the configuration");
        let mut command = Command::new(fpm_program());
        command
            .args(["-F", "-y"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let master = command.spawn().expect("php-fpm starts");
        let mut fpm = Self {
            master,
            unix: Address::Unix(socket.clone()),
            tcp: Address::Tcp(address),
        };
        let mut has_ended = false;
        wait_until("php-fpm listens", || {
            has_ended = fpm.master.try_wait().expect("our child").is_some();
            has_ended || (UnixStream::connect(&socket).is_ok() && TcpStream::connect(address).is_ok())
        });
        (!has_ended).then_some(fpm)
    }

    pub(crate) fn stop(&mut self) {
        if self.master.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        let pid = rustix::process::Pid::from_child(&self.master);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.master.wait();
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An address on which no process listens. Its port is below the ephemeral ones, so it stays free while other tests
/// run.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 120 * 100; // programs started one after the other begin apart
    let mut ports = (0..12_000).map(|_| {
        let number = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        SocketAddr::from(([127, 0, 0, 1], (20_000 + (first + number) % 12_000) as u16))
    });
    ports
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a free port")
}

/// Runs a test that depends on time: with this duration, then, if it fails, with four and sixteen times as much. A
/// machine that stalls makes one attempt fail; a real fault fails with each.
pub(crate) fn at_some_pace(span: Duration, test: impl AsyncFn(Duration)) {
    let run = |span| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), test(span));
    };
    let is_right = |span| catch_unwind(AssertUnwindSafe(|| run(span))).is_ok();
    if !is_right(span) && !is_right(4 * span) {
        run(16 * span);
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The same in a runtime whose other tasks continue.
pub(crate) async fn wait_until_async(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A request to `app.php?query`, with defaults for all else.
pub(crate) struct Call {
    pub(crate) script: PathBuf,
    pub(crate) method: &'static str,
    pub(crate) query: String,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) content_length: Option<String>,
    pub(crate) body: Vec<u8>,
    pub(crate) spooled: bool,
    pub(crate) idempotent: bool,
    pub(crate) affinity: Option<Vec<u8>>,
    pub(crate) client: Presence,
}

impl Call {
    pub(crate) fn get(scripts: &Scripts, query: &str) -> Self {
        Self {
            script: scripts.path("app.php"),
            method: "GET",
            query: query.into(),
            params: Vec::new(),
            content_length: None,
            body: Vec::new(),
            spooled: false,
            idempotent: true,
            affinity: None,
            client: Presence::Here,
        }
    }

    /// Sends nothing until its gate is opened, then `slept` and its process id, like `do=sleep`.
    pub(crate) fn held(scripts: &Scripts, gate: &str) -> Self {
        Self::get(scripts, &format!("do=hold&gate={}", scripts.path(gate).display()))
    }

    /// Sends `first`, and `second` when its gate is opened.
    pub(crate) fn held_in_body(scripts: &Scripts, gate: &str) -> Self {
        Self::get(scripts, &format!("do=hold-body&gate={}", scripts.path(gate).display()))
    }

    pub(crate) fn post(scripts: &Scripts, query: &str, body: &[u8]) -> Self {
        Self {
            method: "POST",
            content_length: Some(body.len().to_string()),
            body: body.to_vec(),
            idempotent: false,
            ..Self::get(scripts, query)
        }
    }

    pub(crate) fn param(mut self, name: &str, value: &str) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = ParamsWriter::new(&mut bytes);
        let mut push = |name: &str, value: &str| writer.push(name.as_bytes(), value.as_bytes()).expect("short enough");
        push("SCRIPT_FILENAME", &self.script.to_string_lossy());
        push("REQUEST_METHOD", self.method);
        push("QUERY_STRING", &self.query);
        push("REDIRECT_STATUS", "200");
        push("SERVER_PROTOCOL", "HTTP/1.1");
        if let Some(length) = &self.content_length {
            push("CONTENT_LENGTH", length);
            push("CONTENT_TYPE", "application/octet-stream");
        }
        for (name, value) in &self.params {
            push(name, value);
        }
        writer.finish();
        bytes
    }

    pub(crate) async fn send(&self, pool: &Arc<Pool>) -> Result<Response, PoolError> {
        self.send_with(pool, &mut |_| {}).await
    }

    pub(crate) async fn send_with(
        &self,
        pool: &Arc<Pool>,
        on_interim: &mut dyn FnMut(&CgiHead),
    ) -> Result<Response, PoolError> {
        let file = tempfile::tempfile().expect("a spool file");
        let body = match self.body.as_slice() {
            [] => Body::Empty,
            bytes if !self.spooled => Body::Bytes(bytes),
            bytes => {
                io::Write::write_all(&mut &file, bytes).expect("spooled");
                Body::File {
                    file: &file,
                    length: bytes.len() as u64,
                }
            }
        };
        let label = || format!("{} /app.php?{}", self.method, self.query);
        let request = Request {
            params: &self.encoded(),
            body,
            idempotent: self.idempotent,
            affinity: self.affinity.as_deref(),
            client: &|| self.client,
            label: &label,
        };
        pool.send(&request, on_interim).await
    }

    /// Sends the request and receives the whole answer.
    pub(crate) async fn answer(&self, pool: &Arc<Pool>) -> Result<Answer, PoolError> {
        Answer::of(self.send(pool).await?).await
    }

    pub(crate) async fn text(&self, pool: &Arc<Pool>) -> String {
        self.answer(pool).await.expect("an answer").text()
    }
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: CgiHead,
    pub(crate) body: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pid: Option<u32>,
}

impl Answer {
    pub(crate) async fn of(mut response: Response) -> Result<Self, PoolError> {
        let mut body = Vec::new();
        while let Some(piece) = response.piece().await? {
            assert!(!piece.is_empty(), "an empty piece says nothing");
            piece.read_to(&mut body).expect("the piece");
        }
        let (stderr, pid) = (response.take_stderr(), response.pid());
        Ok(Self {
            head: response.head.clone(),
            body,
            stderr,
            pid,
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The bytes of the next piece of a body.
pub(crate) async fn next_bytes(response: &mut Response) -> Result<Option<Vec<u8>>, PoolError> {
    let piece = response.piece().await?;
    Ok(piece.map(|piece| {
        let mut bytes = Vec::new();
        piece.read_to(&mut bytes).expect("the piece");
        bytes
    }))
}

/// The php-cgi processes that listen on a socket in `dir`: the master and its children.
pub(crate) fn php_processes(dir: &Path) -> Vec<u32> {
    let marker = format!("HAULIER_TEST={}", dir.display());
    let entries = fs::read_dir("/proc").expect("/proc");
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == marker.as_bytes())
    })
    .collect()
}

/// Marks the processes of a pool for [`php_processes`].
pub(crate) fn mark(scripts: &Scripts, own: &mut Supervised) {
    own.env
        .push(("HAULIER_TEST".into(), scripts.dir.path().display().to_string()));
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}
