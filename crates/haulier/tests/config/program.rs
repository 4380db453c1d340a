//! Runs the program and gives back what it said.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs haulier in `directory`; its output is no terminal.
pub(crate) fn haulier(directory: &Path, arguments: &[&str]) -> Answer {
    let output = command(directory).args(arguments).output().expect("the program starts");
    answer(output)
}

/// The same as an account whose files and folders are closed where their mode says so: root without its right to read
/// all, anybody else as he is.
pub(crate) fn without_override(directory: &Path, arguments: &[&str]) -> Answer {
    let plain = command(directory);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command
            .arg("--bounding-set=-dac_override,-dac_read_search")
            .arg(plain.get_program());
        command
    } else {
        Command::new(plain.get_program())
    };
    let output = command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output();
    answer(output.expect("setpriv(1) is part of util-linux"))
}

/// haulier in `directory`, not started yet, without variables that change what it says.
pub(crate) fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
    command
        .current_dir(directory)
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        .env_remove("CACHE_DIRECTORY");
    command
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// The folder with the files of these tests.
pub(crate) fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/cases")
}

/// A folder with these files in it.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        std::fs::write(&path, text).expect("a file");
    }
    folder
}
