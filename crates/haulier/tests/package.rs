//! The Debian package, unpacked and looked at, and haulier as the first process of a container.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_haulier");
/// Long enough for a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The package's path, and its files in `tree`.
struct Package {
    place: TempDir,
    deb: PathBuf,
}

impl Package {
    fn tree(&self) -> PathBuf {
        self.place.path().join("tree")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.tree().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn field(&self, name: &str) -> String {
        let output = run(Command::new("dpkg-deb").arg("-f").arg(&self.deb).arg(name));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }
}

/// Made once for all tests, of the program that is tested.
fn package() -> &'static Package {
    static PACKAGE: OnceLock<Package> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut make = Command::new(project().join("packaging/deb.sh"));
        // What makes it small takes time, and changes nothing in it.
        let made = run(make.arg(BINARY).arg(place.path()).env("DEB_COMPRESSION", "none"));
        let deb = PathBuf::from(String::from_utf8(made.stdout).expect("text").trim());
        run(Command::new("dpkg-deb")
            .arg("-x")
            .arg(&deb)
            .arg(place.path().join("tree")));
        Package { place, deb }
    })
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_package_has_the_program_its_pages_and_completions_and_says_what_it_needs() {
    let package = package();
    let version = run(Command::new(package.tree().join("usr/bin/haulier")).arg("--version"));
    assert!(String::from_utf8_lossy(&version.stdout).contains(&package.field("Version")));
    assert_eq!(package.field("Package"), "haulier");
    let needs = package.field("Depends");
    assert!(
        needs.contains("libc6 (>= 2.") && package.field("Recommends").contains("php-cgi"),
        "{needs}"
    );
    for path in [
        "usr/share/bash-completion/completions/haulier",
        "usr/share/zsh/vendor-completions/_haulier",
        "usr/share/fish/vendor_completions.d/haulier.fish",
    ] {
        assert!(package.read(path).contains("completions"), "{path}");
    }
    let prelude = package.read("usr/share/haulier/prelude.php");
    assert!(prelude.contains("function zend_send_file("), "{prelude}");
    for page in [
        "haulier",
        "haulier-run",
        "haulier-serve",
        "haulier-check",
        "haulier-get",
        "haulier-status",
        "haulier-image-put",
        "haulier-bench-report",
    ] {
        let path = package.tree().join(format!("usr/share/man/man1/{page}.1.gz"));
        let text = run(Command::new("gzip").arg("-cd").arg(&path));
        assert!(String::from_utf8_lossy(&text.stdout).contains(".SH NAME"), "{page}");
    }
    for text in ["copyright", "config.md", "operate.md", "README.md"] {
        assert!(
            package.tree().join("usr/share/doc/haulier").join(text).is_file(),
            "{text}"
        );
    }
}

#[test]
fn the_archive_has_a_program_that_runs_where_it_is_unpacked() {
    let place = tempfile::tempdir().expect("a directory");
    let mut make = Command::new(project().join("packaging/tarball.sh"));
    let made = run(make.arg(BINARY).arg(place.path()).env("GZIP_LEVEL", "1"));
    let archive = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    run(Command::new("tar").arg("-C").arg(place.path()).args(["-xzf", &archive]));
    let tree = PathBuf::from(archive.trim_end_matches(".tar.gz"));
    let version = run(Command::new(tree.join("haulier")).arg("--version"));
    assert!(String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
    for file in [
        "man/haulier-run.1",
        "completions/haulier.zsh",
        "docs/config.md",
        "haulier.service",
        "welcome/index.html",
        "LICENSE-MIT",
    ] {
        assert!(tree.join(file).is_file(), "{file}");
    }
    let needed = run(Command::new("objdump").arg("-p").arg(tree.join("haulier")));
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    let libraries = needed.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    for library in libraries.map(str::trim) {
        let own = [
            "libc.so",
            "libm.so",
            "libgcc_s.so",
            "ld-linux",
            "libpthread.so",
            "libdl.so",
            "librt.so",
        ];
        assert!(own.iter().any(|name| library.starts_with(name)), "it needs {library}");
    }
}

#[test]
fn what_an_administrator_changes_is_kept_at_an_upgrade_and_the_scripts_are_scripts() {
    let package = package();
    let control = package.place.path().join("control");
    run(Command::new("dpkg-deb").arg("-e").arg(&package.deb).arg(&control));
    let kept = fs::read_to_string(control.join("conffiles")).expect("conffiles");
    assert_eq!(kept, "/etc/haulier/haulier.toml\n");
    for script in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh").arg("-n").arg(control.join(script)));
    }
    let account = package.read("usr/lib/sysusers.d/haulier.conf");
    assert!(account.starts_with("u haulier - "), "{account}");
    if Command::new("systemd-sysusers").arg("--version").output().is_ok() {
        let path = package.tree().join("usr/lib/sysusers.d/haulier.conf");
        // In a root of its own: nothing changes on this machine.
        let root = package.place.path().join("root");
        fs::create_dir_all(root.join("etc")).expect("it is ours");
        let made = Command::new("systemd-sysusers")
            .arg("--root")
            .arg(&root)
            .arg(&path)
            .output();
        let made = made.expect("it starts");
        if made.status.success() {
            let passwd = fs::read_to_string(root.join("etc/passwd")).expect("it was made");
            assert!(passwd.contains("haulier:x:"), "{passwd}");
        }
    } else {
        println!("SKIPPED: systemd-sysusers is not installed");
    }
}

/// The configuration of the package with the places it has here, and a port that is free.
fn configuration_here(place: &Path) -> PathBuf {
    let package = package();
    let text = package.read("etc/haulier/haulier.toml");
    let welcome = package.tree().join("usr/share/haulier/welcome");
    let here = text
        .replace("/usr/share/haulier/welcome", welcome.to_str().expect("text"))
        .replace("http = \":80\"", "http = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"");
    assert!(here.contains("127.0.0.1:0") && here.contains("/tree/usr"), "{here}");
    fs::create_dir_all(place.join("sites")).expect("it is ours");
    let path = place.join("haulier.toml");
    fs::write(&path, here).expect("it is ours");
    path
}

#[test]
fn the_default_configuration_serves_a_welcome_and_takes_in_what_lies_in_sites() {
    let place = tempfile::tempdir().expect("a directory");
    let config = configuration_here(place.path());
    let project = place.path().join("shop");
    fs::create_dir(&project).expect("it is ours");
    fs::write(project.join("index.html"), "the shop").expect("it is ours");
    let site = format!("[site.shop]\nhosts = [\"shop.example.com\"]\nroot = {project:?}\n");
    fs::write(place.path().join("sites/shop.toml"), site).expect("it is ours");
    let mut server = Server::start(Command::new(BINARY).arg("run").arg("-c").arg(&config));
    assert!(server.get("anything.example").contains("haulier is running"));
    assert!(server.get("shop.example.com").ends_with("the shop"));
    server.end(server.child.id());
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit_and_what_it_starts_is_there() {
    let package = package();
    let unit = package.read("usr/lib/systemd/system/haulier.service");
    for command in [unit_line("ExecStart"), unit_line("ExecReload")] {
        let program = command.split(' ').next().expect("a program").trim_start_matches('/');
        assert!(package.tree().join(program).is_file(), "{program}");
    }
    let config = unit_line("ExecStart");
    let config = config.rsplit(' ').next().expect("a path").trim_start_matches('/');
    assert!(package.tree().join(config).is_file(), "{config}");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    // It looks for the programs where the unit says they are.
    let here = package.place.path().join("haulier.service");
    let bin = package.tree().join("usr/bin/haulier");
    fs::write(&here, unit.replace("/usr/bin/haulier", bin.to_str().expect("text"))).expect("it is ours");
    let verified = run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&here));
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(!said.contains("haulier.service"), "{said}");
}

/// The value of a line of the unit.
#[track_caller]
fn unit_line(name: &str) -> String {
    let unit = package().read("usr/lib/systemd/system/haulier.service");
    let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {unit}")).to_owned()
}

/// A command of the unit with the places its files have here.
fn unit_command(name: &str, config: &Path) -> String {
    let tree = package().tree();
    let bin = tree.join("usr/bin/haulier");
    let command = unit_line(name).replace("/usr/bin/haulier", bin.to_str().expect("text"));
    command.replace("/etc/haulier/haulier.toml", config.to_str().expect("text"))
}

/// The next message to the notify socket.
#[track_caller]
fn heard(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let count = manager.recv(&mut buffer).expect("a message in time");
    String::from_utf8(buffer[..count].to_vec()).expect("text")
}

/// What systemd does with the unit, with what it gives: the notify socket, a socket to serve on, the runtime directory.
#[test]
fn the_commands_of_the_unit_start_reload_and_end_the_service() {
    assert_eq!(unit_line("Type"), "notify");
    let place = tempfile::tempdir().expect("a directory");
    let notify = place.path().join("notify");
    let manager = UnixDatagram::bind(&notify).expect("a free name");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let config = configuration_here(place.path());
    let text = fs::read_to_string(&config).expect("just written");
    let text = text.replacen("127.0.0.1:0", &address.to_string(), 1);
    fs::write(&config, text).expect("it is ours");
    let script = format!(
        "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec {}",
        unit_command("ExecStart", &config)
    );
    let runtime = place.path().join(unit_line("RuntimeDirectory"));
    fs::create_dir(&runtime).expect("it is ours");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let environment = |command: &mut Command| {
        command.env("NOTIFY_SOCKET", &notify).env("RUNTIME_DIRECTORY", &runtime);
    };
    let mut command = Command::new("sh");
    environment(command.arg("-c").arg(script));
    let mut server = Server::start_with(&mut command, OwnedFd::from(listener).into());
    assert_eq!(server.address, address.to_string(), "the socket that was given");
    let ready = heard(&manager);
    assert!(ready.starts_with("READY=1\nSTATUS=serving 1 site"), "{ready}");
    assert!(server.get("anything.example").contains("haulier is running"));

    let reload = || {
        let mut command = Command::new("sh");
        environment(command.arg("-c").arg(unit_command("ExecReload", &config)));
        command.output().expect("it runs")
    };
    let reloaded = reload();
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(heard(&manager).starts_with("RELOADING=1\n"));
    assert!(heard(&manager).starts_with("READY=1\n"));
    fs::write(place.path().join("sites/broken.toml"), "nonsense = 1").expect("it is ours");
    assert_eq!(reload().status.code(), Some(2), "`systemctl reload` fails");
    assert!(heard(&manager).starts_with("RELOADING=1\n"));
    assert!(heard(&manager).starts_with("READY=1\n"));
    assert!(server.get("anything.example").contains("haulier is running"));
    server.end(server.child.id());
    assert!(heard(&manager).starts_with("STOPPING=1\n"));
}

/// A server that was started here, and the address it printed.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    #[track_caller]
    fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::null())
    }

    #[track_caller]
    fn start_with(command: &mut Command, input: Stdio) -> Self {
        let mut child = command
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut output = child.stderr.take().expect("piped");
        let (mut said, mut piece) = (String::new(), [0; 4096]);
        // Warnings come before the start line.
        while !said
            .split_once("\"listen\":")
            .is_some_and(|(_, rest)| rest.contains('\n'))
        {
            let count = output.read(&mut piece).expect("readable");
            assert!(count > 0, "it ended before it listened: {said} {:?}", child.try_wait());
            said.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        let (_, rest) = said.split_once("\"listen\":[\"").expect("a start line");
        let (address, _) = rest.split_once('"').expect("an address");
        thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Self {
            address: address.to_owned(),
            child,
        }
    }

    #[track_caller]
    fn get(&self, host: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Asks this process to end, and waits for the one that was started.
    #[track_caller]
    fn end(&mut self, pid: u32) {
        kill_process(pid_of(pid), Signal::TERM).expect("it runs");
        let mut status = None;
        let child = &mut self.child;
        wait_until("its end", || {
            status = child.try_wait().expect("our child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid as i32).expect("not zero")
}

fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// `Z` for a process that has ended and was not collected.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

#[test]
fn as_the_first_process_it_collects_what_php_leaves_behind_and_ends_when_asked() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    let allowed = unshare().arg("true").stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no process namespace may be made here");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let root = place.path().join("site");
    fs::create_dir(&root).expect("it is ours");
    // Three processes that outlive the one that started them, and then end.
    let script = "<?php for ($i = 0; $i < 3; $i++) shell_exec('(sleep 0.3) > /dev/null 2>&1 &'); echo 'started';";
    fs::write(root.join("index.php"), script).expect("it is ours");
    let config = place.path().join("haulier.toml");
    let text = format!(
        "[server]\nhttp = \"127.0.0.1:0\"\nadmin = \"off\"\nspool_dir = {:?}\n[pool.php]\nworkers = 1\n[site.test]\nroot = {root:?}\n",
        place.path()
    );
    fs::write(&config, text).expect("it is ours");
    let mut server = Server::start(unshare().arg(BINARY).arg("run").arg("-c").arg(&config));
    let first = children(server.child.id())[0];
    assert_eq!(children(first).len(), 1, "the server is its only child");
    assert!(server.get("test").contains("started"));
    let mut adopted = 0;
    wait_until("they were adopted", || {
        adopted = adopted.max(children(first).len());
        adopted > 1
    });
    wait_until("they were collected", || children(first).len() == 1);
    assert!(children(first).iter().all(|&child| state(child) != Some('Z')));
    server.end(first);
}
