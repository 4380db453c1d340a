//! Reference programs to compare with. Comparisons with a program that is not installed are skipped with a message.

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program on some bytes; `None` if it is not installed.
///
/// # Panics
/// The program fails: the test is wrong, or it cannot read our output.
pub(crate) fn run(program: &str, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        eprintln!("SKIPPED: a comparison with {program}, which is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A program may refuse its input before it has read all of it; its error follows.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    Some(output.stdout)
}
