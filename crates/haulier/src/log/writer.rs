//! A bounded queue of lines and the thread that writes them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that may wait; at a few hundred bytes each this is about a megabyte.
const WAITING: usize = 4096;
/// Time that a stop waits for a stalled reader.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two tries at a full queue.
const PAUSE: Duration = Duration::from_millis(1);

enum Message {
    Line(String),
    Close,
}

/// Owns the thread that writes.
#[derive(Debug)]
pub(crate) struct LogWriter {
    sender: LineSender,
    closed: Receiver<()>,
}

/// Takes lines from any thread and never blocks.
#[derive(Debug, Clone)]
pub(crate) struct LineSender {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl LogWriter {
    /// Starts the thread that writes to `output`.
    pub(crate) fn start(output: Box<dyn Write + Send>) -> Self {
        let (lines, waiting) = sync_channel(WAITING);
        let (done, closed) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let sender = LineSender {
            lines,
            dropped: Arc::clone(&dropped),
        };
        let spawned = thread::Builder::new().name("log".to_owned()).spawn(move || {
            write_lines(output, &waiting, &dropped);
            // The owner may be gone.
            let _ = done.send(());
        });
        if let Err(error) = spawned {
            eprintln!("haulier: no thread for the log: {error}");
        }
        Self { sender, closed }
    }

    /// A handle that puts lines into the queue.
    pub(crate) fn sender(&self) -> LineSender {
        self.sender.clone()
    }

    /// Writes the waiting lines and ends the thread, without waiting longer than a second for a stalled reader.
    pub(crate) fn close(self) {
        // A full queue drains unless its reader has stalled; the lines left then are lost in any case.
        let mut left = TIMEOUT;
        while let Err(TrySendError::Full(_)) = self.sender.lines.try_send(Message::Close) {
            let Some(rest) = left.checked_sub(PAUSE) else {
                return;
            };
            left = rest;
            thread::sleep(PAUSE);
        }
        let _: Result<(), RecvTimeoutError> = self.closed.recv_timeout(left);
    }
}

impl LineSender {
    /// Queues a line, which ends in a newline; counts it as dropped when the queue is full.
    pub(crate) fn send(&self, line: String) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes lines until `Close` or until every sender is gone. Lines are lost if the reader has closed the pipe.
fn write_lines(mut output: Box<dyn Write + Send>, waiting: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(Message::Line(line)) = waiting.recv() {
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(output, "haulier: {lost} log lines dropped, the reader is too slow");
        }
        let _ = output.write_all(line.as_bytes());
    }
    let _ = output.flush();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no writer panics").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_sent_is_written_before_close_returns() {
        let output = Shared::default();
        let writer = LogWriter::start(Box::new(output.clone()));
        for number in 0..100 {
            writer.sender().send(format!("{number}\n"));
        }
        writer.close();
        let text = String::from_utf8(output.0.lock().expect("no writer panics").clone()).expect("text");
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn a_stalled_reader_costs_lines_and_is_told_how_many() {
        let output = Shared::default();
        let writer = LogWriter::start(Box::new(output.clone()));
        let sender = writer.sender();
        {
            let _stalled = output.0.lock().expect("no writer panics");
            for _ in 0..WAITING + 500 {
                sender.send("line\n".to_owned());
            }
        }
        // The queue empties once the reader continues; the next line reports the count.
        while sender.lines.try_send(Message::Line("last\n".to_owned())).is_err() {
            thread::yield_now();
        }
        writer.close();
        let text = String::from_utf8(output.0.lock().expect("no writer panics").clone()).expect("text");
        assert!(text.contains("log lines dropped"), "no word about the dropped lines");
        assert!(text.ends_with("last\n"), "the last line is lost");
    }
}
