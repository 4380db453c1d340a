//! The Debian package, unpacked and looked at, and haulier as the first process of a container.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
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
    for page in [
        "haulier",
        "haulier-run",
        "haulier-serve",
        "haulier-check",
        "haulier-get",
        "haulier-status",
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
    let line = |name: &str| {
        let found = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {unit}"))
    };
    for command in [line("ExecStart"), line("ExecReload")] {
        let program = command.split(' ').next().expect("a program").trim_start_matches('/');
        assert!(package.tree().join(program).is_file(), "{program}");
    }
    let config = line("ExecStart")
        .rsplit(' ')
        .next()
        .expect("a path")
        .trim_start_matches('/');
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

/// A server that was started here, and the address it printed.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    #[track_caller]
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut output = child.stdout.take().expect("piped");
        let (mut said, mut piece) = (String::new(), [0; 4096]);
        while !said.contains('\n') {
            let count = output.read(&mut piece).expect("readable");
            assert!(count > 0, "it ended before it listened: {said} {:?}", child.try_wait());
            said.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        let (_, rest) = said.split_once("\"listen\":[\"").expect("a start line");
        let (address, _) = rest.split_once('"').expect("an address");
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
