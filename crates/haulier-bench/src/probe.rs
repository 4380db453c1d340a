//! One answer of every target before the run, to see whether they do the same work.

use std::io;
use std::time::Duration;

use haulier_proto::response_head::{ResponseHead, ResponseLimits};
use sha2::{Digest, Sha256};

use super::answer::Captured;
use super::job::{Arrivals, Expected, SliceJob, StatusRule};
use super::result::ProbeAnswer;
use super::runner::LoadControl;
use super::spread::on_threads;
use haulier_client::decode::Decoder;

/// An answer before the run.
#[derive(Debug, Clone)]
pub struct Probed {
    pub answer: ProbeAnswer,
    /// The body as it travelled.
    pub body: Vec<u8>,
    /// It has an ETag or a Last-Modified, so that the body should not change from answer to answer.
    pub is_constant: bool,
}

/// Sends the first request of the job once, on one connection.
///
/// # Errors
/// A message: there is no answer, or it is not valid.
pub fn ask(job: &SliceJob) -> Result<Probed, String> {
    let probe = SliceJob {
        connections: 1,
        threads: 1,
        count: Some(1),
        time: None,
        arrivals: Arrivals::Closed,
        read_rate: None,
        send_rate: None,
        expected: Expected {
            status: StatusRule::Any,
            ..Expected::default()
        },
        capture: true,
        timeout: job.timeout.max(Duration::from_secs(1)),
        ..job.clone()
    };
    let (tally, captured) = on_threads(&probe, &LoadControl::default()).map_err(|error| error.to_string())?;
    if let Some((class, _)) = tally.failures.by_class().into_iter().find(|(_, count)| *count > 0) {
        return Err(class.to_owned());
    }
    let captured = captured.ok_or("no answer")?;
    examine(captured).map_err(|error| error.to_string())
}

fn examine(captured: Captured) -> io::Result<Probed> {
    let (version, mut bytes) = with_status_line(&captured);
    let parsed = ResponseHead::parse(&mut bytes, &ResponseLimits::default()).map_err(io::Error::other)?;
    let head = parsed.ok_or(io::ErrorKind::InvalidData)?;
    let field = |name: &str| {
        let value = head.fields().get(name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let decoded = decoded(&captured.body, head.fields().get("content-encoding"));
    let digest = Sha256::digest(&decoded);
    let answer = ProbeAnswer {
        status: captured.status,
        version,
        head_bytes: captured.head.len() as u64,
        body_bytes: captured.body.len() as u64,
        decoded_bytes: decoded.len() as u64,
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        encoding: field("content-encoding").map_or_else(|| "identity".to_owned(), |name| name.to_ascii_lowercase()),
        content_type: field("content-type"),
        server: field("server"),
        location: field("location"),
        keep_alive: captured.keeps_alive,
    };
    let is_constant = field("etag").is_some() || field("last-modified").is_some();
    Ok(Probed {
        answer,
        body: captured.body,
        is_constant,
    })
}

/// The version, and a complete HTTP head: a CGI head has no status line and no end.
fn with_status_line(captured: &Captured) -> (String, Vec<u8>) {
    if let Some(lines) = captured.head.strip_prefix(b"HTTP/2 ") {
        return ("HTTP/2".to_owned(), [b"HTTP/1.1 ", lines].concat());
    }
    if let Some(end) = captured
        .head
        .windows(9)
        .next()
        .filter(|start| start.starts_with(b"HTTP/"))
    {
        return (String::from_utf8_lossy(&end[..8]).into_owned(), captured.head.clone());
    }
    let line = format!("HTTP/1.1 {} \r\n", captured.status);
    (
        "FastCGI".to_owned(),
        [line.as_bytes(), &captured.head, b"\r\n"].concat(),
    )
}

/// The decoded body, or the body itself if it cannot be decoded.
fn decoded(body: &[u8], coding: Option<&[u8]>) -> Vec<u8> {
    let take_off = || -> Option<Vec<u8>> {
        let mut decoder = Decoder::new(coding).ok()??;
        let mut out = Vec::new();
        decoder.feed(body, &mut out).ok()?;
        decoder.finish(&mut out).ok()?;
        Some(out)
    };
    take_off().unwrap_or_else(|| body.to_vec())
}

/// Differences between two answers to the same request, in words; none if the work was the same.
#[must_use]
pub fn differences(base: &ProbeAnswer, other: &ProbeAnswer, may_vary: bool) -> Vec<String> {
    let mut found = Vec::new();
    if base.status != other.status {
        found.push(format!("status {} and {}", base.status, other.status));
    }
    if base.encoding != other.encoding {
        found.push(format!("{} and {}", base.encoding, other.encoding));
    }
    if base.status == other.status && base.sha256 != other.sha256 && !may_vary {
        if base.decoded_bytes == other.decoded_bytes {
            found.push(format!("two different bodies of {} bytes", base.decoded_bytes));
        } else {
            found.push(format!(
                "bodies of {} and {} bytes",
                base.decoded_bytes, other.decoded_bytes
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn captured(head: &str, body: &[u8]) -> Captured {
        Captured {
            head: head.as_bytes().to_vec(),
            body: body.to_vec(),
            status: 200,
            keeps_alive: true,
            tls: None,
        }
    }

    #[test]
    fn a_coded_body_is_the_same_work_as_a_plain_one_but_not_the_same_coding() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(5));
        encoder.write_all(b"hello hello hello").expect("memory");
        let coded = encoder.finish().expect("memory");
        let plain = examine(captured("HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n", b"hello hello hello")).expect("good");
        let gzip = examine(captured("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", &coded)).expect("good");
        assert_eq!(plain.answer.sha256, gzip.answer.sha256);
        assert_eq!(gzip.answer.decoded_bytes, 17);
        assert!(plain.is_constant && !gzip.is_constant);
        assert_eq!(differences(&plain.answer, &gzip.answer, false), ["identity and gzip"]);
    }

    #[test]
    fn a_cgi_head_is_read_too() {
        let probed = examine(captured("Content-Type: text/html\r\n", b"x")).expect("good");
        assert_eq!(probed.answer.version, "FastCGI");
        assert_eq!(probed.answer.content_type.as_deref(), Some("text/html"));
    }

    #[test]
    fn pages_that_vary_are_compared_without_their_bodies() {
        let one = examine(captured("HTTP/1.1 200 OK\r\n\r\n", b"one"))
            .expect("good")
            .answer;
        let two = examine(captured("HTTP/1.1 200 OK\r\n\r\n", b"twoo"))
            .expect("good")
            .answer;
        assert_eq!(differences(&one, &two, false), ["bodies of 3 and 4 bytes"]);
        assert_eq!(differences(&one, &two, true), Vec::<String>::new());
        let elsewhere = ProbeAnswer { status: 302, ..two };
        assert_eq!(differences(&one, &elsewhere, true), ["status 200 and 302"]);
    }
}
