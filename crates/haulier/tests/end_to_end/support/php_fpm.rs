//! A php-fpm of a test's own, with its own configuration and socket.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::haulier::children_of;
use super::ports::free_port;
use super::{is_root, require, wait_until};

/// Where the pool listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Socket {
    Unix,
    Tcp,
}

/// A running php-fpm; ended when dropped.
#[derive(Debug)]
pub(crate) struct PhpFpm {
    directory: TempDir,
    listen: String,
    child: Option<Child>,
}

impl PhpFpm {
    /// Starts a pool of `children` processes and waits until it takes connections.
    pub(crate) fn start(socket: Socket, children: usize, ini: &[(String, String)]) -> Self {
        let directory = super::readable_directory();
        let listen = match socket {
            Socket::Unix => directory.path().join("fpm.sock").display().to_string(),
            Socket::Tcp => format!("127.0.0.1:{}", free_port()),
        };
        fs::write(
            directory.path().join("fpm.conf"),
            configuration(directory.path(), &listen, children, ini),
        )
        .expect("the directory is ours");
        let mut fpm = Self {
            directory,
            listen,
            child: None,
        };
        fpm.start_again();
        fpm
    }

    /// The address as haulier's `servers` takes it.
    pub(crate) fn server(&self) -> String {
        if self.is_unix() {
            format!("unix:{}", self.listen)
        } else {
            self.listen.clone()
        }
    }

    /// Ends it at once, children included; the socket refuses connections from then on.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait();
        }
    }

    /// Starts it again on the same address after `stop`.
    pub(crate) fn start_again(&mut self) {
        let output = fs::File::create(self.directory.path().join("output")).expect("the directory is ours");
        let child = Command::new(program())
            .arg("--nodaemonize")
            .arg("--fpm-config")
            .arg(self.directory.path().join("fpm.conf"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a descriptor is free"))
            .stderr(output)
            .spawn()
            .expect("php-fpm starts");
        self.child = Some(child);
        let log = self.directory.path().join("fpm.log");
        let what = format!("php-fpm to listen; its log is {}", log.display());
        wait_until(&what, || self.is_listening());
    }

    /// Starts it anew with children that end after so many requests.
    pub(crate) fn replace_children_after(&mut self, requests: u32) {
        self.stop();
        let path = self.directory.path().join("fpm.conf");
        let text = fs::read_to_string(&path).expect("it was written before");
        let text = text.replace("pm.max_requests = 0", &format!("pm.max_requests = {requests}"));
        fs::write(path, text).expect("the directory is ours");
        self.start_again();
    }

    /// Pids of the pool's processes.
    pub(crate) fn children(&self) -> Vec<u32> {
        self.child
            .as_ref()
            .map_or_else(Vec::new, |master| children_of(master.id()))
    }

    fn is_unix(&self) -> bool {
        self.listen.starts_with('/')
    }

    fn is_listening(&self) -> bool {
        if self.is_unix() {
            return UnixStream::connect(&self.listen).is_ok();
        }
        let address = self.listen.parse().expect("an address of ours");
        TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        self.stop();
    }
}

fn configuration(directory: &Path, listen: &str, children: usize, ini: &[(String, String)]) -> String {
    let user = if is_root() {
        "user = www-data\ngroup = www-data\nlisten.mode = 0666\n"
    } else {
        ""
    };
    let ini: String = ini
        .iter()
        .map(|(name, value)| format!("php_admin_value[{name}] = {value}\n"))
        .collect();
    let log = directory.join("fpm.log");
    format!(
        "[global]\nerror_log = {log}\n[www]\nlisten = {listen}\nlisten.backlog = 511\n{user}\
         pm = static\npm.max_children = {children}\npm.max_requests = 0\nping.path = /ping\npm.status_path = /status\n{ini}",
        log = log.display()
    )
}

/// The newest php-fpm of the machine.
fn program() -> PathBuf {
    let entries = fs::read_dir("/usr/sbin")
        .expect("a Debian machine")
        .flatten()
        .map(|entry| entry.path());
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
    };
    let newest = entries.filter(named).max();
    require("php-fpm", newest.as_deref().unwrap_or(Path::new("/usr/sbin/php-fpm")));
    newest.expect("just required")
}
