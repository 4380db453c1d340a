//! The protocol of service managers: LISTEN_FDS (sd_listen_fds(3)) and NOTIFY_SOCKET (sd_notify(3)).
//!
//! Without a service manager nothing here has an effect.
#![allow(unsafe_code)] // descriptors by their number, and the clock that the messages are dated by

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::io::FdFlags;

/// The first descriptor passed (SD_LISTEN_FDS_START).
const FIRST: RawFd = 3;

/// A socket that the service manager bound.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Its name in the unit (FileDescriptorName=), or `unknown`.
    pub(crate) name: String,
    pub(crate) socket: OwnedFd,
}

/// The sockets passed to this process. Called once, before another descriptor can take their numbers.
pub(crate) fn passed() -> Vec<Passed> {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    // The sockets are for the process that the manager started, not for one that inherited its variables.
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS")
        .and_then(|count| i32::try_from(count).ok())
        .unwrap_or(0);
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned);
    (FIRST..FIRST.saturating_add(count))
        .zip(names.chain(std::iter::repeat("unknown".to_owned())))
        .filter(|(descriptor, _)| is_open(*descriptor))
        .map(|(descriptor, name)| {
            // SAFETY: it is open, as was just checked, and by the protocol ours alone; this is the only place that takes it.
            let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let _ = rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC); // so that PHP does not inherit it
            Passed { name, socket }
        })
        .collect()
}

/// Marks inherited descriptors as close-on-exec, so that PHP does not get what a shell or a manager left open. Called
/// before any process is started.
pub(crate) fn keep_from_children() {
    const CLOSE_ON_EXEC: libc::c_uint = 4; // CLOSE_RANGE_CLOEXEC, Linux 5.11
    // SAFETY: a system call with plain numbers, which closes nothing now.
    let marked = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST as libc::c_uint,
            libc::c_uint::MAX,
            CLOSE_ON_EXEC,
        )
    };
    if marked == 0 {
        return;
    }
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for descriptor in numbers.filter(|number| *number >= FIRST) {
        // SAFETY: a system call with plain numbers; a descriptor that was closed meanwhile is an error.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: a system call with plain numbers.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

/// Tells the service manager the state of this process.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// `None` without a service manager.
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The notifier for the socket that the environment names.
    pub(crate) fn of_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(name.as_bytes());
            connected
                .inspect_err(|error| tracing::warn!(%error, "cannot notify systemd"))
                .ok()
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&time| is_for_us && time > 0);
        Self {
            watchdog: watchdog.map(Duration::from_micros).filter(|_| socket.is_some()),
            socket,
        }
    }

    /// The watchdog timeout: after it the manager restarts this process.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The process serves.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The configuration is being reloaded; `ready` ends that, also after a failure.
    pub(crate) fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_microseconds()));
    }

    /// The process stops, within `grace`.
    pub(crate) fn stopping(&self, grace: Duration) {
        self.send(&format!(
            "STOPPING=1\nSTATUS=finishing requests, at most {} s\nEXTEND_TIMEOUT_USEC={}",
            grace.as_secs(),
            grace.as_micros().saturating_add(5_000_000)
        ));
    }

    /// Another process is the main process of the service from now on.
    pub(crate) fn succeeded_by(&self, pid: i32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// Feeds the watchdog.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Sends without blocking; a manager that does not read must not delay requests.
    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!(%error, "the service manager does not read its socket");
        }
    }
}

/// A path, or a name in the abstract namespace, which begins with `@`.
fn connect(name: &[u8]) -> io::Result<UnixDatagram> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    }?;
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

fn monotonic_microseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call and this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(name: &[u8], address: &SocketAddr) -> (UnixDatagram, Notifier) {
        let manager = UnixDatagram::bind_addr(address).expect("a free name");
        manager
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a time-out");
        let notifier = Notifier {
            socket: Some(connect(name).expect("somebody listens")),
            watchdog: None,
        };
        (manager, notifier)
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let count = manager.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..count].to_vec()).expect("text")
    }

    #[test]
    fn messages_reach_a_path_and_an_abstract_name() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("notify");
        let name = format!("haulier-test-{}", std::process::id());
        let rows = [
            (path.as_os_str().as_bytes().to_vec(), SocketAddr::from_pathname(&path)),
            (format!("@{name}").into_bytes(), SocketAddr::from_abstract_name(&name)),
        ];
        for (name, address) in rows {
            let (manager, notifier) = listening(&name, &address.expect("an address"));
            notifier.ready("serving\n2 sites");
            assert_eq!(heard(&manager), "READY=1\nSTATUS=serving 2 sites");
            notifier.reloading();
            let text = heard(&manager);
            let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a date");
            assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{text}");
            notifier.stopping(Duration::from_secs(30));
            assert!(heard(&manager).starts_with("STOPPING=1\n"));
            notifier.succeeded_by(7);
            assert_eq!(heard(&manager), "MAINPID=7");
        }
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        let nobody = Notifier {
            socket: None,
            watchdog: None,
        };
        nobody.ready("up");
        nobody.alive();
        assert!(connect(b"/no/such/socket").is_err());
    }
}
