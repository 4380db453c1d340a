//! What the end-to-end tests stand on: the real binary, a strict client, sites in temporary directories, php-fpm.

pub(crate) mod browser;
pub(crate) mod client;
pub(crate) mod coded;
pub(crate) mod haulier;
pub(crate) mod images;
pub(crate) mod load;
pub(crate) mod metrics;
pub(crate) mod php_fpm;
#[path = "../../support/ports.rs"]
pub(crate) mod ports;
pub(crate) mod site;
pub(crate) mod streams;
pub(crate) mod tls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Waits up to a minute for something to become true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a test in which a client, or PHP, has to be in time: with this span, and if that fails, with four and sixteen
/// times as much. A machine that stalls spoils one of them; what is wrong fails at every pace.
pub(crate) fn at_some_pace(span: Duration, test: impl Fn(Duration)) {
    let is_right = |span| catch_unwind(AssertUnwindSafe(|| test(span))).is_ok();
    if !is_right(span) && !is_right(4 * span) {
        test(16 * span);
    }
}

/// How much a test does: as this variable says, or the usual.
pub(crate) fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// A span as settings have it.
pub(crate) fn setting(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

/// Ends the test with the name of the Debian package that is missing.
#[track_caller]
pub(crate) fn require(package: &str, path: impl AsRef<Path>) {
    let path = path.as_ref();
    let hint = "apt-get install --no-install-recommends";
    assert!(
        path.exists(),
        "{} is missing: this test needs `{hint} {package}` (or `make test`)",
        path.display()
    );
}

/// The body curl gets, with these arguments; its failure is the test's.
#[track_caller]
pub(crate) fn curl(arguments: &[&str]) -> Vec<u8> {
    require("curl", "/usr/bin/curl");
    let mut command = Command::new("/usr/bin/curl");
    let output = command.args(["-sS", "--max-time", "60"]).args(arguments).output();
    let output = output.expect("curl runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {said}");
    output.stdout
}

/// A temporary directory that the user PHP runs as may enter.
pub(crate) fn readable_directory() -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("haulier-test-")
        .tempdir()
        .expect("a temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("the directory is ours");
    directory
}

/// This many bytes that do not repeat in any simple way: a shifted or swapped piece is seen.
pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Copies a directory with what its symbolic links point to; everyone may write to the copy.
pub(crate) fn copy_directory(from: &str, to: &Path) {
    run(Command::new("cp").arg("-rL").arg(from).arg(to));
    run(Command::new("chmod").arg("-R").arg("a+rwX").arg(to));
}

/// Runs a program to its end; its failure is the test's.
#[track_caller]
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{out}{err}",
        output.status
    );
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
