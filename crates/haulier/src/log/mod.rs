//! Our own events on standard error: text for people, JSON for programs.
//!
//! `access` and `file` are for access logs. `line` formats events, `writer` writes them on a thread of its own: a stalled
//! pipe costs lines, never a request.

mod access;
mod file;
mod json_line;
mod line;
mod settings;
mod writer;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use access::{AccessLogs, LogFileError};
pub(crate) use file::Reopen;
pub(crate) use json_line::json_line;
pub(crate) use line::LineFormat;
pub(crate) use line::seconds;
pub(crate) use settings::{Format, LogSettings, LogTable, SiteLog, SiteLogTable};
pub(crate) use writer::LogWriter;

/// Sends every event of `level` and above to standard error. The caller closes the writer before the process ends.
///
/// A second call in one process has no effect; its lines are lost.
pub(crate) fn start(line_format: LineFormat, level: tracing::Level) -> LogWriter {
    let writer = LogWriter::start(Box::new(std::io::stderr()));
    let layer = line::LineLayer::new(line_format, writer.sender());
    let subscriber = tracing_subscriber::registry()
        .with(LevelFilter::from_level(level))
        .with(layer);
    let _ = subscriber.try_init();
    writer
}
