//! What systemd gives and wants to hear.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;

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
            .wait_within(Duration::from_secs(20))
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
    server.wait_within(Duration::from_secs(20)).expect("it ends");
    // Between two processes of the service connections wait in the manager's socket.
    let mut waiting = Connection::open(address);
    waiting.send(Request::get("/a.txt").to_bytes());
    let again = Haulier::start_as_it_is(activated(held, "haulier.socket", &config), Vec::new());
    waiting.read_response("GET").expect("an answer").expect(200);
    drop(waiting);
    drop(again);
    drop(server);
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
