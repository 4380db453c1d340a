//! Bodies in every coding, read back by the reference tools, not by the libraries that made them.

use std::io::Write;
use std::process::{Command, Stdio};

use super::client::Response;
use super::require;

/// Every coding with the tool that reads it.
pub(crate) const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

/// The original of a coded body.
#[track_caller]
pub(crate) fn decode(coding: &str, coded: &[u8]) -> Vec<u8> {
    let (package, program) = match coding {
        "zstd" => ("zstd", "/usr/bin/zstd"),
        "br" => ("brotli", "/usr/bin/brotli"),
        "gzip" => ("gzip", "/bin/gzip"),
        other => panic!("no tool for {other}"),
    };
    require(package, program);
    let mut tool = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool starts");
    let mut stdin = tool.stdin.take().expect("piped");
    let coded = coded.to_vec();
    let writer = std::thread::spawn(move || {
        // A tool that has seen enough closes its end.
        let _ = stdin.write_all(&coded);
    });
    let output = tool.wait_with_output().expect("the tool ends");
    writer.join().expect("the writer ends");
    output.stdout
}

/// What a client can read of a stream that was flushed and is not at its end.
#[track_caller]
pub(crate) fn decode_flushed(coding: &str, coded: &[u8]) -> Vec<u8> {
    // The tool for brotli shows nothing of a stream without end; after a flush one byte ends it (RFC 7932 §9.2: the
    // last meta-block, and empty).
    let end: &[u8] = if coding == "br" { &[3] } else { &[] };
    decode(coding, &[coded, end].concat())
}

/// The original of a response that must be in this coding.
#[track_caller]
pub(crate) fn decoded(coding: &str, response: &Response) -> Vec<u8> {
    assert_eq!(response.field("Content-Encoding"), Some(coding), "{:?}", response.head);
    decode(coding, &response.body)
}

/// Text of this length that is neither trivial nor random.
pub(crate) fn text(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = ["haulier ", "carries ", "<p>", "the ", "page</p>\n", "swiftly, "][(state >> 16) as usize % 6];
        text.extend_from_slice(word.as_bytes());
        text.extend_from_slice(format!("{:x} ", state >> 22).as_bytes());
    }
    text.truncate(length);
    text
}
