//! Measures the time for which a server keeps a connection after the last byte of an answer.
//!
//! A client that reads to the end of the stream, instead of to the end of the answer, waits for that time.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::answer::{AnswerContext, AnswerReader, KnownHead};
use super::job::{Protocol, SliceJob};
use super::report::figures;
use super::transport::{self, Transport};

/// Result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterBody {
    /// From sending to the last byte.
    pub answer: Duration,
    /// From the last byte to the end of the connection; `None` if the timeout ended the check.
    pub idle: Option<Duration>,
}

impl AfterBody {
    /// The result in words; `timeout` was the longest wait.
    #[must_use]
    pub fn words(&self, timeout: Duration) -> String {
        /// The server closes with the body, as far as can be measured.
        const AT_ONCE: Duration = Duration::from_millis(50);
        let answer = figures::time(self.answer.as_micros() as f64);
        let idle = match self.idle {
            None => format!(
                "the server keeps the connection for more than {} s after the body",
                timeout.as_secs()
            ),
            Some(idle) if idle < AT_ONCE => "the server closes with the body".to_owned(),
            Some(idle) => format!(
                "the server idles {:.1} s after the body: a client that reads to the end of the stream waits that long",
                idle.as_secs_f64()
            ),
        };
        format!("answer in {answer}; {idle}")
    }
}

/// Sends one request, and waits for the server to close the connection, at most for `timeout`.
///
/// # Errors
/// No connection, no answer, or TLS, which is not supported here.
pub fn after_body(job: &SliceJob, timeout: Duration) -> io::Result<AfterBody> {
    if job.tls.is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the check is for plain connections",
        ));
    }
    let mut transport = transport::open(job, 0)?;
    let began = Instant::now();
    send(&mut transport, &job.requests[0].bytes, job.timeout)?;
    read_answer(&mut transport, job)?;
    let answer = began.elapsed();
    let ended = Instant::now();
    let mut buffer = [0; 1024];
    let idle = loop {
        let left = timeout.saturating_sub(ended.elapsed());
        if left.is_zero() || !wait(&transport, PollFlags::IN, left)? {
            break None;
        }
        match transport.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A reset ends the connection, too.
            Ok(0) | Err(_) => break Some(ended.elapsed()),
            Ok(_) => {}
        }
    };
    Ok(AfterBody { answer, idle })
}

fn send(transport: &mut Transport, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        match transport.send(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !wait(transport, PollFlags::OUT, timeout)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                transport.take_error()?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_answer(transport: &mut Transport, job: &SliceJob) -> io::Result<()> {
    let mut answer = AnswerReader::new(job.protocol);
    let (mut known, mut scratch, mut buffer) = (KnownHead::default(), Vec::new(), vec![0; 64 * 1024]);
    loop {
        if !wait(transport, PollFlags::IN, job.timeout)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = match transport.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            received => received?,
        };
        let mut context = AnswerContext {
            known: &mut known,
            is_head: job.requests[0].is_head,
            expected: &job.expected,
            scratch: &mut scratch,
            capture: None,
        };
        let complete = if count == 0 {
            answer.end().map(Some)
        } else {
            answer.take(&buffer[..count], &mut context)
        };
        let what = if job.protocol == Protocol::FastCgi {
            "not FastCGI"
        } else {
            "not HTTP"
        };
        match complete {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
        }
    }
}

fn wait(transport: &Transport, flags: PollFlags, time: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    Ok(poll(&mut [PollFd::new(transport, flags)], Some(&timeout))? > 0)
}
