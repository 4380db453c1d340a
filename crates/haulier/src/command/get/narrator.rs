//! The display of downloads: moving lines on a terminal, a few lines elsewhere, JSON on request.
//!
//! Text goes to standard error, JSON to standard output, so that a program can read the one without the other.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use haulier_client::download::error::DownloadError;
use haulier_client::download::event::{DownloadEvent, Finished, Observer};
use haulier_client::url::Url;
use serde_json::{Value, json};

use crate::cli::Console;

/// The output that all downloads of a run share.
#[derive(Debug)]
pub(super) struct Screen {
    style: Style,
    /// JSON would mix with the file on standard output.
    json_to_stderr: bool,
    /// The moving lines and the numbers of their downloads.
    lines: RefCell<Vec<(usize, String)>>,
    /// The number of moving lines on the terminal now.
    drawn: Cell<usize>,
    downloads: Cell<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Moving,
    Lines,
    Json,
    Quiet,
}

impl Screen {
    pub(super) fn new(json: bool, to_stdout: bool, console: &Console) -> Self {
        let style = match (json, console.quiet) {
            (true, _) => Style::Json,
            (false, true) => Style::Quiet,
            (false, false) if io::stderr().is_terminal() => Style::Moving,
            (false, false) => Style::Lines,
        };
        Self {
            style,
            json_to_stderr: to_stdout,
            lines: RefCell::default(),
            drawn: Cell::new(0),
            downloads: Cell::new(0),
        }
    }

    /// Prints an error that belongs to no download.
    pub(super) fn problem(&self, problem: &str) {
        match self.style {
            Style::Json => self.json(&json!({"event": "failed", "reason": problem})),
            _ => self.print_line(&format!("error: {problem}")),
        }
    }

    /// Removes the moving lines from the terminal.
    pub(super) fn leave(&self) {
        self.lines.borrow_mut().clear();
        self.draw(None);
    }

    fn json(&self, value: &Value) {
        let line = format!("{value}\n");
        // A closed output is not a failure.
        let _ = if self.json_to_stderr {
            io::stderr().write_all(line.as_bytes())
        } else {
            io::stdout().write_all(line.as_bytes())
        };
    }

    /// Prints a line that stays.
    fn print_line(&self, line: &str) {
        self.draw(Some(line));
    }

    fn draw(&self, staying: Option<&str>) {
        let lines = self.lines.borrow();
        let mut text = String::new();
        if self.drawn.get() > 0 {
            text.push_str(&format!("\x1b[{}A\r\x1b[J", self.drawn.get()));
        }
        for line in staying.into_iter().chain(lines.iter().map(|(_, line)| line.as_str())) {
            text.push_str(line);
            text.push('\n');
        }
        self.drawn.set(lines.len());
        let _ = io::stderr().write_all(text.as_bytes());
    }

    fn set_line(&self, download: usize, line: String) {
        let mut lines = self.lines.borrow_mut();
        match lines.iter_mut().find(|(number, _)| *number == download) {
            Some((_, shown)) => *shown = line,
            None => lines.push((download, line)),
        }
        drop(lines);
        self.draw(None);
    }

    fn drop_line(&self, download: usize) {
        self.lines.borrow_mut().retain(|(number, _)| *number != download);
    }
}

/// Prints the events of one download.
#[derive(Debug)]
pub(super) struct Narrator {
    screen: Rc<Screen>,
    url: Url,
    number: usize,
    name: RefCell<String>,
    /// Bytes that were there before this attempt.
    kept: Cell<u64>,
    /// The last tenth that was printed.
    tenths: Cell<u64>,
}

impl Narrator {
    pub(super) fn new(screen: Rc<Screen>, url: Url) -> Self {
        let number = screen.downloads.get();
        screen.downloads.set(number + 1);
        Self {
            screen,
            number,
            name: RefCell::new(url.file_name()),
            url,
            kept: Cell::new(0),
            tenths: Cell::new(0),
        }
    }

    pub(super) fn finished(&self, finished: &Finished, took: Duration) {
        self.screen.drop_line(self.number);
        if let Some(path) = &finished.path {
            self.rename(path);
        }
        match self.screen.style {
            Style::Json => self.json(json!({
                "event": "finished",
                "path": finished.path,
                "bytes": finished.length,
                "received": finished.received,
                "seconds": took.as_secs_f64(),
                "already_complete": finished.was_complete,
                "etag": finished.etag,
                "verified": finished.verified.iter().map(|checksum| json!({
                    "algorithm": checksum.algorithm.name(),
                    "value": checksum.hex(),
                    "source": checksum.source.name(),
                })).collect::<Vec<_>>(),
            })),
            Style::Quiet => {}
            Style::Moving | Style::Lines => self.screen.print_line(&self.last_line(finished, took)),
        }
    }

    fn last_line(&self, finished: &Finished, took: Duration) -> String {
        let (name, size) = (self.name.borrow(), amount(finished.length));
        let verified: Vec<String> = finished
            .verified
            .iter()
            .map(|checksum| format!("{} matches {}", checksum.algorithm.name(), checksum.source.name()))
            .collect();
        let verified = if verified.is_empty() {
            String::new()
        } else {
            format!("  {}", verified.join(", "))
        };
        if finished.was_complete {
            let tag = finished
                .etag
                .as_ref()
                .map_or_else(String::new, |tag| format!(", ETag {tag} unchanged"));
            return format!("{name}  already complete ({size}{tag}){verified}");
        }
        let rate = finished.received as f64 / took.as_secs_f64().max(0.001);
        format!("{name}  {size} in {} ({}/s){verified}", time(took), amount(rate as u64))
    }

    pub(super) fn failed(&self, error: &DownloadError) {
        self.screen.drop_line(self.number);
        let reason = chain(error);
        if self.screen.style == Style::Json {
            self.json(
                json!({"event": "failed", "reason": reason, "class": format!("{:?}", error.class()).to_lowercase()}),
            );
            return;
        }
        self.screen.print_line(&format!("error: {}\n  {reason}", self.url));
        if self.kept.get() > 0 {
            self.screen.print_line("  run the same command to continue");
        }
    }

    fn rename(&self, path: &Path) {
        *self.name.borrow_mut() = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    }

    fn json(&self, mut value: Value) {
        value["url"] = json!(self.url.to_string());
        self.screen.json(&value);
    }

    fn print(&self, words: &str) {
        match self.screen.style {
            Style::Moving | Style::Lines => self.screen.print_line(&format!("{}  {words}", self.name.borrow())),
            Style::Json | Style::Quiet => {}
        }
    }

    fn started(&self, total: Option<u64>, kept: u64) {
        self.kept.set(kept);
        let size = total.map_or_else(|| "of unknown length".to_owned(), amount);
        if kept > 0 {
            self.print(&format!("{size}, continuing after {}", amount(kept)));
        } else if self.screen.style == Style::Lines {
            self.print(&size);
        }
        self.tenths.set(tenths(kept, total));
    }

    fn progress(&self, done: u64, total: Option<u64>, rate: f64, connections: usize) {
        self.kept.set(done);
        match self.screen.style {
            Style::Moving => {
                let line = bar(&self.name.borrow(), done, total, rate, connections);
                self.screen.set_line(self.number, line);
            }
            Style::Lines if tenths(done, total) > self.tenths.get() => {
                self.tenths.set(tenths(done, total));
                let rate = amount(rate as u64);
                self.print(&format!("{} %  {}  {rate}/s", self.tenths.get() * 10, amount(done)));
            }
            Style::Json => self.json(json!({
                "event": "progress",
                "done": done,
                "total": total,
                "bytes_per_second": rate.round(),
                "connections": connections,
            })),
            Style::Lines | Style::Quiet => {}
        }
    }
}

impl Observer for Narrator {
    fn event(&self, event: &DownloadEvent<'_>) {
        let is_json = self.screen.style == Style::Json;
        match event {
            DownloadEvent::Started { target, total, kept } => {
                self.rename(target);
                if is_json {
                    self.json(json!({"event": "started", "path": target, "total": total, "kept": kept}));
                }
                self.started(*total, *kept);
            }
            DownloadEvent::Progress {
                done,
                total,
                rate,
                connections,
            } => self.progress(*done, *total, *rate, *connections),
            DownloadEvent::Retrying { error, wait } if is_json => self.json(json!({
                "event": "retrying", "reason": chain(*error), "seconds": wait.as_secs_f64(),
            })),
            DownloadEvent::Retrying { error, wait } => {
                self.print(&format!("{}; retrying in {}", chain(*error), time(*wait)));
            }
            DownloadEvent::Damaged { bytes } if is_json => self.json(json!({"event": "damaged", "bytes": bytes})),
            DownloadEvent::Damaged { bytes } => self.print(&format!(
                "{} of the partial file changed since the last run; fetching them again",
                amount(*bytes)
            )),
            DownloadEvent::StartedAgain { reason } if is_json => {
                self.json(json!({"event": "started_again", "reason": chain(*reason)}));
            }
            DownloadEvent::StartedAgain { reason } => self.print(&format!("{}; starting again", chain(*reason))),
            DownloadEvent::Warning(words) if is_json => self.json(json!({"event": "warning", "reason": words})),
            DownloadEvent::Warning(words) => self.print(words),
        }
    }
}

/// An error with its causes in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

/// The full tenths of the file that are there.
fn tenths(done: u64, total: Option<u64>) -> u64 {
    total
        .filter(|total| *total > 0)
        .map_or(0, |total| done.saturating_mul(10) / total)
}

/// `big.iso  ██████▌    61 %  2.44 of 4.00 GB  112 MB/s  14 s left  4 connections`.
fn bar(name: &str, done: u64, total: Option<u64>, rate: f64, connections: usize) -> String {
    /// Cells of the bar.
    const CELLS: u64 = 20;
    let speed = format!("{}/s", amount(rate as u64));
    let plural = if connections == 1 { "" } else { "s" };
    let connections = format!("{connections} connection{plural}");
    let name = shortened(name);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{name}  {}  {speed}  {connections}", amount(done));
    };
    let eighths = done.min(total) as u128 * u128::from(CELLS) * 8 / u128::from(total);
    let full = usize::try_from(eighths / 8).unwrap_or_default();
    let partial = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][usize::try_from(eighths % 8).unwrap_or_default()];
    let mut cells = "█".repeat(full);
    if full < CELLS as usize {
        cells.push(partial);
        cells.push_str(&" ".repeat(CELLS as usize - full - 1));
    }
    let left = if rate > 0.0 {
        let seconds = (total.saturating_sub(done) as f64 / rate).min(1e9);
        format!("{} left", time(Duration::from_secs_f64(seconds)))
    } else {
        "stalled".to_owned()
    };
    let percent = u128::from(done) * 100 / u128::from(total);
    format!(
        "{name}  {cells}  {percent:>3} %  {} of {}  {speed}  {left}  {connections}",
        amount(done),
        amount(total)
    )
}

/// The beginning of a name, short enough for the rest of the line.
fn shortened(name: &str) -> String {
    const MOST: usize = 30;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 1).chain(['…']).collect()
}

/// `4.00 GB`: three digits, decimal units.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 999.5 && unit < UNITS.len() - 1 {
        number /= 1000.0;
        unit += 1;
    }
    let digits = match number {
        _ if unit == 0 => 0,
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {}", UNITS[unit])
}

/// `0.4 s`, `37 s`, `2 min 5 s`, `3 h 20 min`.
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_999, "10.0 kB"),
            (112_000_000, "112 MB"),
            (999_600_000, "1.00 GB"),
            (2_440_000_000, "2.44 GB"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }

    #[test]
    fn times_are_told_in_two_units_at_most() {
        for (seconds, text) in [
            (0.5, "0.5 s"),
            (37.0, "37 s"),
            (125.0, "2 min 5 s"),
            (12_000.0, "3 h 20 min"),
        ] {
            assert_eq!(time(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn the_bar_says_how_far_how_fast_and_how_long() {
        let line = bar("big.iso", 2_440_000_000, Some(4_000_000_000), 112e6, 4);
        let expected = "big.iso  ████████████▏          61 %  2.44 GB of 4.00 GB  112 MB/s  13 s left  4 connections";
        assert_eq!(line, expected);
        assert!(bar("x", 5, Some(5), 1.0, 1).contains("100 %"));
        assert_eq!(bar("x", 5, None, 2.0, 1), "x  5 B  2 B/s  1 connection");
    }
}
