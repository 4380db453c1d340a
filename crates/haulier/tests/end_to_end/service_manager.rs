//! What systemd gives and wants to hear.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::Signal;
use rustls::version::TLS13;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::tls::Authority;

/// The manager's end of the notify socket.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// The next message that is no sign of life.
    fn hears(&self) -> String {
        loop {
            let message = self.hears_anything();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    fn hears_anything(&self) -> String {
        let mut buffer = [0; 4096];
        let count = self.socket.recv(&mut buffer).expect("a message within a minute");
        String::from_utf8(buffer[..count].to_vec()).expect("text")
    }
}

#[test]
fn the_manager_hears_of_start_reload_and_end() {
    let site = Site::new().file("a.txt", "page");
    let path = site.writable("run").join("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a free name");
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out can be set");
    let manager = Manager { socket };
    let (config, _fpm) = site.prepare();
    let mut command = Haulier::command();
    command.arg("run").arg("-c").arg(&config);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let mut server = Haulier::start(command, vec![Box::new(site)]);
    let ready = manager.hears();
    assert!(
        ready.starts_with("READY=1\nSTATUS=serving 1 site on 127.0.0.1:"),
        "{ready}"
    );
    for _ in 0..3 {
        assert_eq!(manager.hears_anything(), "WATCHDOG=1");
    }
    server.reload();
    assert!(manager.hears().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(manager.hears().starts_with("READY=1\n"));
    // One that is refused ends the reload, too.
    std::fs::write(&config, "nonsense").expect("the directory is ours");
    server.signal(Signal::HUP);
    assert!(manager.hears().starts_with("RELOADING=1\n"));
    assert!(manager.hears().starts_with("READY=1\n"));
    server.signal(Signal::TERM);
    assert!(manager.hears().starts_with("STOPPING=1\n"));
    assert!(
        server
            .wait_within(Duration::from_secs(60))
            .is_some_and(|status| status.success())
    );
}

/// `haulier run` with this socket as its descriptor 3, as the manager passes it.
fn activated(listener: TcpListener, name: &str, config: &std::path::Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!(
        "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES={name}; exec {:?} run -c {config:?}",
        env!("CARGO_BIN_EXE_haulier")
    );
    command.arg("-c").arg(script).stdin(OwnedFd::from(listener));
    command
}

#[test]
fn a_socket_of_the_manager_is_served_on_and_outlives_us() {
    let site = Site::new().file("a.txt", "page");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let site = site.listen(&format!("\"{address}\""));
    let (config, _fpm) = site.prepare();
    let held = listener.try_clone().expect("a descriptor");
    let mut server = Haulier::start_as_it_is(activated(listener, "haulier.socket", &config), vec![Box::new(site)]);
    assert_eq!(server.address(), address);
    for _ in 0..5 {
        server.get("/a.txt").expect(200);
    }
    server.signal(Signal::TERM);
    server.wait_within(Duration::from_secs(60)).expect("it ends");
    // Between two processes of the service connections wait in the manager's socket.
    let mut waiting = Connection::open(address);
    waiting.send(Request::get("/a.txt").to_bytes());
    let again = Haulier::start_as_it_is(activated(held, "haulier.socket", &config), Vec::new());
    waiting.read_response("GET").expect("an answer").expect(200);
    drop(waiting);
    drop(again);
    drop(server);
}

/// The same with several sockets and their names. They are passed by the numbers they have here: the second value keeps
/// them until the process has started.
fn activated_by(sockets: &[(&str, TcpListener)], config: &std::path::Path) -> (Command, Vec<OwnedFd>) {
    let names: Vec<_> = sockets.iter().map(|(name, _)| *name).collect();
    let held: Vec<OwnedFd> = sockets
        .iter()
        .map(|(_, listener)| rustix::io::fcntl_dupfd_cloexec(listener, 100).expect("a descriptor"))
        .collect();
    let mut moves = String::new();
    for (number, socket) in (3..).zip(&held) {
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).expect("it is open");
        let _ = write!(moves, " {number}<&{0} {0}<&-", socket.as_raw_fd()); // a String takes everything
    }
    let script = format!(
        "exec{moves}; export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}; exec {:?} run -c {config:?}",
        held.len(),
        names.join(":"),
        env!("CARGO_BIN_EXE_haulier")
    );
    let mut command = Command::new("bash");
    command.arg("-c").arg(script);
    (command, held)
}

#[test]
fn sockets_of_the_manager_may_be_for_tls_by_their_address_or_by_their_name() {
    let authority = Authority::new();
    let client = authority.client(&[&TLS13]);
    let table = format!("[site.test.tls]\n{}", authority.lines("shop", &["shop.test"]));
    for (name, tls) in [("haulier.socket", None), ("https", Some("127.0.0.1:0"))] {
        let bound = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (plain, secure) = (bound(), bound());
        let address = |listener: &TcpListener| listener.local_addr().expect("bound");
        let (http, https) = (address(&plain), address(&secure));
        let site = Site::new()
            .file("a.txt", "page")
            .setting("hosts = [\"shop.test\"]")
            .listen(&format!("\"{http}\""))
            .server(&format!("https = \"{}\"", tls.map_or(https.to_string(), str::to_owned)))
            .config(&table);
        let (config, _fpm) = site.prepare();
        let (command, held) = activated_by(&[("haulier.socket", plain), (name, secure)], &config);
        let server = Haulier::start(command, vec![Box::new(site)]);
        drop(held);
        let request = Request::get("/a.txt").with("Host", "shop.test");
        assert_eq!((server.address(), server.https()), (http, https), "{name}");
        for _ in 0..3 {
            let mut connection = Connection::open(https).secured("shop.test", &client);
            assert_eq!(connection.ask(&request).expect(200).text(), "page");
        }
        server.ask(&request).expect(308);
    }
}

#[test]
fn a_socket_that_nobody_asked_for_is_named() {
    let site = Site::new().file("a.txt", "page");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let site = site.listen("\"127.0.0.2:0\"");
    let (config, _fpm) = site.prepare();
    let server = Haulier::start_as_it_is(activated(listener, "web", &config), vec![Box::new(site)]);
    assert_ne!(server.address(), address);
    server.wait_for_line("names its address");
    server.get("/a.txt").expect(200);
}

#[test]
fn the_admin_address_may_be_the_managers_too() {
    let site = Site::new().file("a.txt", "page");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (config, _fpm) = site.prepare();
    let text = std::fs::read_to_string(&config).expect("just written");
    let text = text.replace("admin = \"localhost:0\"", &format!("admin = \"{address}\""));
    std::fs::write(&config, text).expect("the directory is ours");
    let server = Haulier::start_as_it_is(activated(listener, "admin", &config), vec![Box::new(site)]);
    assert_eq!(server.admin(), address);
    server.metrics();
}
