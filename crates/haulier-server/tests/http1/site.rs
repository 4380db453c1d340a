//! A server of one site with a few files, on a free port, with its access log at hand.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use haulier_php::{Pool, PoolKind, PoolSettings, Supervised};
use haulier_server::access_log::{AccessLog, LogFormat, LoggedRequests};
use haulier_server::{FileSettings, Limits, PhpSettings, RunningServer, Server, ServerSettings, SiteSettings};
use tempfile::TempDir;

use crate::client::{Client, Response};

/// Sent after a request that must be refused.
pub(crate) const SMUGGLED: &str = "GET /smuggled.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Length of `/large.bin`: more than the socket buffers of both sides hold.
pub(crate) const LARGE: usize = 16 * 1024 * 1024;

/// 2001-09-09: long enough ago that the date is a strong validator.
pub(crate) const MODIFIED: u64 = 1_000_000_000;

/// A running server. When dropped, its log must contain no panic.
pub(crate) struct Site {
    address: SocketAddr,
    server: Option<RunningServer>,
    log: LogLines,
    root: TempDir,
    /// The workers, and the directory of their socket.
    php: Option<(Arc<Pool>, TempDir)>,
    /// Number of requests made to mark a place in the log.
    marks: AtomicUsize,
}

impl Site {
    /// Starts with default limits.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Starts with changed settings.
    pub(crate) fn start_with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let root = TempDir::new().expect("a temporary directory");
        write_files(root.path());
        let log = LogLines::default();
        let mut settings = settings(root.path());
        change(&mut settings);
        let access_log = AccessLog::new(LogFormat::Json, LoggedRequests::All, Box::new(log.clone())).expect("a log");
        let server = Server::bind(settings, access_log, &mut Vec::new()).expect("a free port");
        let address = server.addresses()[0].internet().expect("an internet address");
        let server = Some(server.run().expect("threads"));
        Self {
            address,
            server,
            log,
            root,
            php: None,
            marks: AtomicUsize::new(0),
        }
    }

    /// Starts with PHP: `scripts` are names and sources beside the files.
    pub(crate) fn with_php(scripts: &[(&str, &str)], change: impl FnOnce(&mut ServerSettings)) -> Self {
        let sockets = TempDir::new().expect("a temporary directory");
        let pool = Pool::start(pool_settings(sockets.path())).expect("php-cgi, which `make test` installs");
        let mut site = Self::start_with(|settings| {
            let root = &settings.sites[0].files.root;
            for (name, source) in scripts {
                std::fs::write(root.join(name), source).expect("a script");
            }
            settings.pools = vec![Arc::clone(&pool)];
            settings.sites[0].php = Some(PhpSettings::default());
            change(settings);
        });
        site.php = Some((pool, sockets));
        site
    }

    /// Starts with changed limits.
    pub(crate) fn with_limits(change: impl FnOnce(&mut Limits)) -> Self {
        Self::start_with(|settings| change(&mut settings.limits))
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// A client with a small receive buffer.
    pub(crate) fn connect_narrow(&self) -> Client {
        Client::connect_narrow(self.address)
    }

    /// Answers one request on a connection of its own.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        self.connect().ask(request)
    }

    /// GETs a target, with further field lines, each ended by CR LF.
    pub(crate) fn get(&self, target: &str, lines: &str) -> Response {
        self.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
    }

    /// Checks that the server refuses this with one response of this status, announces the close, and closes.
    pub(crate) fn assert_refused(&self, request: impl AsRef<[u8]>, status: u16) {
        let request = request.as_ref();
        let shown = request[..request.len().min(300)].escape_ascii();
        let mut client = self.connect();
        client.send(request);
        client.send(SMUGGLED);
        let response = client.response();
        assert_eq!(response.status, status, "{shown}");
        assert!(response.closes(), "{shown} keeps the connection");
        assert!(client.is_closed(), "{shown} is followed by something");
        assert!(
            !self.log().contains("smuggled"),
            "behind {shown} a request was executed"
        );
    }

    /// The log lines about all requests answered so far. Lines are written after the responses, in order, so the line
    /// of one more request is the last.
    pub(crate) fn log(&self) -> String {
        let mark = format!("/mark-{}", self.marks.fetch_add(1, Ordering::Relaxed));
        self.get(&mark, "");
        let log = self.log_until(|log| log.contains(&format!("\"{mark}\"")));
        let lines = log.split_inclusive('\n').filter(|line| !line.contains("\"/mark-"));
        lines.collect()
    }

    /// The access log, once `is_enough` holds.
    #[track_caller]
    pub(crate) fn log_until(&self, is_enough: impl Fn(&str) -> bool) -> String {
        for _ in 0..12_000 {
            let log = self.log.text();
            if is_enough(&log) {
                return log;
            }
            wait(Duration::from_millis(5));
        }
        panic!("no more in the log than: {}", self.log.text());
    }

    /// Waits until at most `most` connections are open.
    pub(crate) fn assert_connections_fall_to(&self, most: usize) {
        let server = self.server.as_ref().expect("a running server");
        for _ in 0..6000 {
            if server.active() <= most {
                return;
            }
            wait(Duration::from_millis(10));
        }
        panic!("{} connections are still open", server.active());
    }

    /// Announces the end, and goes on serving.
    pub(crate) fn announce_end(&self) {
        self.server.as_ref().expect("a running server").announce_end();
    }

    /// Cuts off active requests.
    pub(crate) fn abort(&mut self) {
        self.server.take().expect("a running server").abort();
    }

    /// Stops accepting and finishes active requests.
    pub(crate) fn drain(&self) {
        self.server.as_ref().expect("a running server").drain();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
        if let Some((pool, _)) = self.php.take() {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("an event loop");
            runtime.block_on(pool.stop(Duration::ZERO));
        }
        let log = self.log.text();
        if !std::thread::panicking() {
            assert!(!log.contains("\"panic\""), "a request panicked: {log}");
        }
    }
}

/// Blocks the test's thread.
pub(crate) fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// Runs a test whose client itself must keep time: with steps of the given length, then of four and sixteen times that.
/// A stalled machine spoils one run, a wrong server fails all.
pub(crate) fn at_some_pace(step: Duration, test: impl Fn(Duration)) {
    let is_right = |pace| catch_unwind(AssertUnwindSafe(|| test(pace))).is_ok();
    if !is_right(step) && !is_right(4 * step) {
        test(16 * step);
    }
}

/// The lines of the log.
#[derive(Debug, Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no writer panicked")).into_owned()
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn write_files(root: &Path) {
    write(root, "index.html", b"<title>index</title>");
    write(root, "ten.txt", b"0123456789");
    write(root, "empty.txt", b"");
    write(root, "smuggled.txt", b"SMUGGLED");
    write(root, "a b.txt", b"space");
    write(root, "caf\u{e9}.txt", b"accent");
    write(root, "sub/index.html", b"<title>sub</title>");
    write(root, "large.bin", large());
}

/// The content of `/large.bin`: no two neighbouring pages are equal.
pub(crate) fn large() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| (0..LARGE).map(|place| (place / 4096 + place) as u8).collect())
}

fn write(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(&path, content).expect("a file");
    let file = File::options().write(true).open(&path).expect("the file just written");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED))
        .expect("a date in the past");
}

fn settings(root: &Path) -> ServerSettings {
    ServerSettings {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
        defer_accept: false,
        spool_dir: root.to_owned(),
        sites: vec![site("site", &["*"], root)],
        ..ServerSettings::default()
    }
}

fn pool_settings(sockets: &Path) -> PoolSettings {
    let own = Supervised {
        workers: 2,
        ini: vec![("log_errors".into(), "0".into())],
        env_copy: vec!["PATH".into()],
        ..Supervised::new("php-cgi".into(), sockets.to_owned())
    };
    PoolSettings {
        timeout: Duration::from_secs(60),
        queue_timeout: Duration::from_secs(60),
        ..PoolSettings::new("php", PoolKind::Supervised(own))
    }
}

/// A site of files for these hosts.
pub(crate) fn site(name: &str, hosts: &[&str], root: &Path) -> SiteSettings {
    SiteSettings {
        name: name.into(),
        hosts: hosts.iter().map(ToString::to_string).collect(),
        files: FileSettings {
            root: root.to_owned(),
            ..FileSettings::default()
        },
        ..SiteSettings::default()
    }
}
