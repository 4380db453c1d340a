//! Runs `haulier bench` and reads its JSON document.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for the files of a run.
pub(crate) struct Place {
    directory: TempDir,
}

/// Exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name).display().to_string()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
        command
            .arg("bench")
            .args(arguments)
            .stdin(Stdio::null())
            .current_dir(self.directory.path());
        command
    }

    pub(crate) fn bench(&self, arguments: &[&str]) -> Ended {
        end(&mut self.command(arguments))
    }

    /// The document of a run, which may fail.
    #[track_caller]
    pub(crate) fn measure(&self, arguments: &[&str]) -> Value {
        let path = self.path("run.json");
        let ended = self.bench(&[arguments, &["--json", &path.display().to_string()]].concat());
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The totals of a run with one point.
    #[track_caller]
    pub(crate) fn total(&self, arguments: &[&str]) -> Value {
        self.measure(arguments)["points"][0]["total"].clone()
    }
}

/// Runs a command to its end.
pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("the program runs");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A percentile of a distribution in a document, µs.
#[track_caller]
pub(crate) fn percentile(distribution: &Value, percent: f64) -> u64 {
    let all = distribution["percentiles"].as_array().expect("percentiles");
    let found = all.iter().find(|pair| pair[0].as_f64() == Some(percent));
    found
        .and_then(|pair| pair[1].as_u64())
        .expect("a percentile that is always there")
}
