//! Runs `haulier get` in a directory of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory to download into.
pub(crate) struct DownloadDir {
    directory: TempDir,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl DownloadDir {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
        command.arg("get").args(arguments).current_dir(self.directory.path());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "NETRC"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.env("HOME", self.directory.path());
        command
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().expect("the binary runs").into()
    }

    /// Fails the test unless it succeeds.
    #[track_caller]
    pub(crate) fn get_well(&self, arguments: &[&str]) -> Ended {
        let ended = self.get(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        ended
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs")
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}; there is {:?}", self.names()))
    }

    /// The names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).expect("the directory is ours");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Fails the test if a file of that name exists.
    #[track_caller]
    pub(crate) fn assert_no_file(&self, name: &str) {
        assert!(
            !Path::exists(&self.path(name)),
            "{name} must not be there: {:?}",
            self.names()
        );
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    /// The events of `--json`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.stdout);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
            .collect()
    }

    /// The last event of a kind.
    #[track_caller]
    pub(crate) fn event(&self, kind: &str) -> Value {
        let found = self.events().into_iter().rev().find(|event| event["event"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {:?}", self.events()))
    }
}
