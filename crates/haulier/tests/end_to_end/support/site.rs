//! A site in a temporary directory and the configuration that serves it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::haulier::Haulier;
use super::php_fpm::{PhpFpm, Socket};
use super::readable_directory;

/// Who runs the PHP of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Php {
    /// haulier as it does by itself.
    Auto,
    /// php-cgi, started and watched by haulier.
    Cgi,
    /// Workers of haulier's own inside it.
    Embedded,
    /// php-fpm, started by the test.
    Fpm(Socket),
}

/// The configuration file of a server that runs.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) path: PathBuf,
}

impl Config {
    /// Puts `new` in the place of `old`, which must be there.
    #[track_caller]
    pub(crate) fn replace(&self, old: &str, new: &str) {
        let text = self.text();
        assert!(text.contains(old), "no {old:?} in {text}");
        fs::write(&self.path, text.replace(old, new)).expect("the directory is ours");
    }

    /// Adds tables at the end.
    pub(crate) fn append(&self, tables: &str) {
        fs::write(&self.path, format!("{}\n{tables}\n", self.text())).expect("the directory is ours");
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("it was written before")
    }
}

/// A site being put together; `start` serves it.
#[derive(Debug)]
pub(crate) struct Site {
    directory: TempDir,
    root: PathBuf,
    php: Option<Php>,
    workers: usize,
    ini: Vec<(String, String)>,
    listen: String,
    server: String,
    limits: String,
    pool: String,
    site: String,
    more: String,
    has_app: bool,
}

impl Site {
    /// An empty document root that PHP may read.
    pub(crate) fn new() -> Self {
        let directory = readable_directory();
        let root = directory.path().join("site");
        fs::create_dir(&root).expect("the directory is ours");
        let mut site = Self::with_root(directory, root);
        let sessions = site.writable("sessions");
        site.ini
            .push(("session.save_path".into(), sessions.display().to_string()));
        site
    }

    fn with_root(directory: TempDir, root: PathBuf) -> Self {
        Self {
            directory,
            root,
            php: None,
            workers: 4,
            ini: Vec::new(),
            listen: "\"127.0.0.1:0\"".into(),
            server: String::new(),
            limits: String::new(),
            pool: String::new(),
            site: String::new(),
            more: String::new(),
            has_app: false,
        }
    }

    /// The document root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A directory beside the document root that PHP may write to.
    pub(crate) fn writable(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(&path).expect("the directory is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("the directory is ours");
        path
    }

    /// With a directory `gates` where the test leaves files that its scripts wait for.
    pub(crate) fn writable_for_gate(self) -> Self {
        self.writable("gates");
        self
    }

    /// Serves what is in this directory instead.
    pub(crate) fn at(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Adds a file; its directories are made.
    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let full = self.root.join(path);
        fs::create_dir_all(full.parent().expect("inside the root")).expect("the directory is ours");
        fs::write(full, content).expect("the directory is ours");
        self
    }

    /// Adds a PHP script, given without its opening tag, and lets haulier run PHP if nothing else was said.
    pub(crate) fn php(mut self, path: &str, code: &str) -> Self {
        self.php.get_or_insert(Php::Auto);
        self.file(path, format!("<?php {code}"))
    }

    /// Adds a symbolic link.
    pub(crate) fn link(self, path: &str, target: impl AsRef<Path>) -> Self {
        symlink(target, self.root.join(path)).expect("the directory is ours");
        self
    }

    /// Says who runs PHP.
    pub(crate) fn run_by(mut self, php: Php) -> Self {
        self.php = Some(php);
        self
    }

    /// PHP processes, 4 if not said.
    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets a PHP ini value for all workers.
    pub(crate) fn ini(mut self, name: &str, value: &str) -> Self {
        self.ini.push((name.into(), value.into()));
        self
    }

    /// Listens on these addresses, given as they are written; the first one must be an IPv4 address.
    pub(crate) fn listen(mut self, addresses: &str) -> Self {
        self.listen = addresses.into();
        self
    }

    /// Adds a line to `[server]`.
    pub(crate) fn server(mut self, line: &str) -> Self {
        let _ = writeln!(self.server, "{line}");
        self
    }

    /// Adds a line to `[limits]`.
    pub(crate) fn limit(mut self, line: &str) -> Self {
        let _ = writeln!(self.limits, "{line}");
        self
    }

    /// Adds a line to `[pool.php]`.
    pub(crate) fn pool(mut self, line: &str) -> Self {
        let _ = writeln!(self.pool, "{line}");
        self
    }

    /// Adds a line to `[site.test]`.
    pub(crate) fn setting(mut self, line: &str) -> Self {
        let _ = writeln!(self.site, "{line}");
        self
    }

    /// Says what kind of application it is; `plain` if not said.
    pub(crate) fn app(mut self, app: &str) -> Self {
        self.has_app = true;
        self.setting(&format!("app = {app:?}"))
    }

    /// Adds tables of the configuration as they are.
    pub(crate) fn config(mut self, tables: &str) -> Self {
        let _ = writeln!(self.more, "{tables}");
        self
    }

    /// Starts haulier for this site with `haulier run`.
    #[track_caller]
    pub(crate) fn start(self) -> Haulier {
        let (config, fpm) = self.prepare();
        let command = self.run_command(&config);
        Haulier::start(command, vec![Box::new(self), Box::new(fpm)])
    }

    /// The same with no more than this many descriptors.
    #[track_caller]
    pub(crate) fn start_with_descriptors(self, count: u32) -> Haulier {
        let (config, fpm) = self.prepare();
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--nofile={count}:{count}"))
            .arg(env!("CARGO_BIN_EXE_haulier"));
        command.arg("run").arg("-c").arg(config);
        Haulier::start(command, vec![Box::new(self), Box::new(fpm)])
    }

    /// The same with the configuration in the caller's hands.
    #[track_caller]
    pub(crate) fn start_with_config(self) -> (Haulier, Config) {
        let (path, fpm) = self.prepare();
        let command = self.run_command(&path);
        let server = Haulier::start(command, vec![Box::new(self), Box::new(fpm)]);
        (server, Config { path })
    }

    /// The same with the php-fpm in the caller's hands.
    #[track_caller]
    pub(crate) fn start_beside_fpm(self) -> (Haulier, PhpFpm) {
        let (config, fpm) = self.prepare();
        let command = self.run_command(&config);
        (
            Haulier::start(command, vec![Box::new(self)]),
            fpm.expect("php-fpm runs the PHP of this site"),
        )
    }

    fn run_command(&self, config: &Path) -> Command {
        let mut command = Haulier::command();
        command
            .arg("run")
            .arg("-c")
            .arg(config)
            .current_dir(self.directory.path());
        command
    }

    /// Writes the configuration; gives its path and starts php-fpm if needed.
    pub(crate) fn prepare(&self) -> (PathBuf, Option<PhpFpm>) {
        let fpm = match self.php {
            Some(Php::Fpm(socket)) => Some(PhpFpm::start(socket, self.workers + 1, &self.ini)),
            _ => None,
        };
        let path = self.directory.path().join("haulier.toml");
        fs::write(&path, self.configuration(fpm.as_ref())).expect("the directory is ours");
        (path, fpm)
    }

    fn configuration(&self, fpm: Option<&PhpFpm>) -> String {
        let spool = self.writable("spool");
        let mut text = format!(
            "[server]\nhttp = {}\nadmin = \"localhost:0\"\nspool_dir = {spool:?}\n{}\n",
            self.listen, self.server
        );
        let _ = writeln!(text, "[limits]\n{}", self.limits);
        match fpm {
            _ if self.php.is_none() => {}
            None => {
                let run = match self.php {
                    Some(Php::Embedded) => "run = \"embed\"",
                    Some(Php::Cgi) => "run = \"cgi\"",
                    _ => "",
                };
                // The one that tests/sanitizer/run.sh names, or the installed one.
                let php = std::env::var("HAULIER_TEST_PHP").map(|php| format!("php = {php:?}"));
                let _ = writeln!(
                    text,
                    "[pool.php]\nworkers = {}\n{run}\n{}\n{}\n[pool.php.ini]",
                    self.workers,
                    php.unwrap_or_default(),
                    self.pool
                );
                for (name, value) in &self.ini {
                    let _ = writeln!(text, "{name:?} = {value:?}");
                }
            }
            Some(fpm) => {
                let servers = fpm.server();
                let connections = self.workers;
                let pool = &self.pool;
                let _ = writeln!(
                    text,
                    "[pool.php]\nservers = [{servers:?}]\nconnections = {connections}\n{pool}"
                );
            }
        }
        let _ = writeln!(text, "[site.test]\nroot = {:?}\n{}", self.root, self.site);
        if !self.has_app {
            // A site of plain files starts no PHP.
            let app = if self.php.is_some() { "plain" } else { "static" };
            let _ = writeln!(text, "app = {app:?}");
        }
        let _ = writeln!(text, "{}", self.more);
        text
    }
}
