//! Real servers: nginx, Apache, lighttpd and haulier itself.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::peer::data;
use crate::ports::free_port;
use crate::program::DownloadDir;

const MIB: usize = 1024 * 1024;

/// A server process with a directory of files; it ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: TempDir,
}

impl Server {
    /// Writes a configuration into a fresh directory and starts the program on it.
    pub(crate) fn start(package: &str, program: &str, command: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        assert!(
            Path::new(program).exists(),
            "{program} is missing: this test needs `apt-get install --no-install-recommends {package}` (or `make test`)"
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("root")).expect("created");
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(directory.path(), everyone).expect("ours");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let child = command(directory.path(), address)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let server = Self {
            child,
            address,
            directory,
        };
        for _ in 0..600 {
            if TcpStream::connect(address).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{program} does not listen");
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both masters end their workers on TERM.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// nginx with further lines in its server block.
pub(crate) fn nginx(lines: &str, listen: &str) -> Server {
    Server::start("nginx", "/usr/sbin/nginx", |directory, address| {
        let at = directory.display();
        let config = format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; events {{}}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
             fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
             server {{ listen {address} {listen}; root {at}/root; {lines} }} }}\n"
        );
        fs::write(directory.join("nginx.conf"), config).expect("written");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(directory.join("nginx.conf"));
        command
    })
}

fn apache() -> Server {
    Server::start("apache2", "/usr/sbin/apache2", |directory, address| {
        let at = directory.display();
        let modules = "/usr/lib/apache2/modules";
        let config = format!(
            "ServerRoot {at}\nServerName localhost\nListen {address}\nPidFile {at}/pid\nErrorLog {at}/error.log\n\
             LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\n\
             User www-data\nGroup www-data\nKeepAlive On\nKeepAliveTimeout 15\nDocumentRoot {at}/root\n\
             <Directory {at}/root>\nRequire all granted\n</Directory>\n"
        );
        fs::write(directory.join("apache.conf"), config).expect("written");
        let mut command = Command::new("/usr/sbin/apache2");
        command
            .arg("-D")
            .arg("FOREGROUND")
            .arg("-f")
            .arg(directory.join("apache.conf"));
        command
    })
}

fn lighttpd() -> Server {
    Server::start("lighttpd", "/usr/sbin/lighttpd", |directory, address| {
        let at = directory.display();
        let config = format!(
            "server.document-root = \"{at}/root\"\nserver.bind = \"{}\"\nserver.port = {}\n\
             mimetype.assign = ( \"\" => \"application/octet-stream\" )\n",
            address.ip(),
            address.port()
        );
        fs::write(directory.join("lighttpd.conf"), config).expect("written");
        let mut command = Command::new("/usr/sbin/lighttpd");
        command.arg("-D").arg("-f").arg(directory.join("lighttpd.conf"));
        command
    })
}

pub(crate) fn haulier() -> Server {
    Server::start("none", env!("CARGO_BIN_EXE_haulier"), |directory, address| {
        let at = directory.display();
        let config = format!(
            "[server]\nhttp = \"{address}\"\nadmin = \"off\"\n[site.files]\nroot = \"{at}/root\"\napp = \"static\"\n[log]\naccess = \"off\"\n"
        );
        fs::write(directory.join("haulier.toml"), config).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
        command.arg("run").arg("-c").arg(directory.join("haulier.toml"));
        command
    })
}

/// Makes a fresh download, continues a killed one, and repeats a complete one.
fn three_downloads_from(server: &Server) {
    three_downloads(server, &[]);
}

/// The same with further arguments.
pub(crate) fn three_downloads(server: &Server, arguments: &[&str]) {
    let file = data(40 * MIB, 7);
    let path = server.root().join("f.bin");
    fs::write(&path, &**file).expect("written");
    // Apache gives a weak tag to a file that has just changed, and a range cannot be bound to that.
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let opened = fs::File::options().write(true).open(&path).expect("ours");
    opened.set_modified(hour_ago).expect("ours");
    let place = DownloadDir::new();
    let url = format!("http://{}/f.bin", server.address);
    let with = |more: &[&'static str]| -> Vec<String> {
        let all = [arguments, more].concat();
        all.into_iter().map(str::to_owned).chain([url.clone()]).collect()
    };
    let get_well = |more| {
        let all = with(more);
        place.get_well(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    get_well(&["-o", "fresh.bin"]);
    assert!(place.read("fresh.bin") == **file);

    let limited = with(&["--limit", "20MB/s"]);
    let mut child = place.start(&limited.iter().map(String::as_str).collect::<Vec<_>>());
    let part = place.path("f.bin.part.json");
    for _ in 0..6000 {
        let record = fs::read_to_string(&part).unwrap_or_default();
        let has_some = record.contains("\"done\":[[");
        if has_some || child.try_wait().expect("our child").is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("our child");
    child.wait().expect("our child");
    place.assert_no_file("f.bin");
    let ended = get_well(&["--json"]);
    assert!(place.read("f.bin") == **file);
    let received = ended.event("finished")["received"].as_u64().expect("a number");
    assert!(
        received < file.len() as u64,
        "nothing was continued: {received} bytes came"
    );

    let ended = get_well(&["--json"]);
    assert_eq!(ended.event("finished")["already_complete"], true);
}

#[test]
fn nginx_is_downloaded_from() {
    three_downloads_from(&nginx("", ""));
}

#[test]
fn apache_is_downloaded_from() {
    three_downloads_from(&apache());
}

#[test]
fn lighttpd_is_downloaded_from() {
    three_downloads_from(&lighttpd());
}

#[test]
fn haulier_is_downloaded_from() {
    three_downloads_from(&haulier());
}
