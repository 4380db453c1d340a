//! Formats events as lines: `12:04:11Z error pool=php php_crashed pid=4121`, or the same as JSON.

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use haulier_proto::text::is_unseen;
use haulier_server::local_time::TimeOfDay;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::json_line::json_line;
use super::writer::LineSender;

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// For people.
    Text { color: bool },
    /// One object a line.
    Json,
}

/// Sends each event as a line.
#[derive(Debug)]
pub(super) struct LineLayer {
    line_format: LineFormat,
    lines: LineSender,
}

impl LineLayer {
    pub(super) fn new(line_format: LineFormat, lines: LineSender) -> Self {
        Self { line_format, lines }
    }
}

impl<S: Subscriber> Layer<S> for LineLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = SystemTime::now();
        self.lines.send(match self.line_format {
            LineFormat::Text { color } => fields.text(event.metadata().level(), now, color),
            LineFormat::Json => fields.json(event.metadata().level(), now),
        });
    }
}

/// The fields of one event, in their order.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn text(&self, level: &Level, now: SystemTime, color: bool) -> String {
        let (name, paint) = level_name(level);
        let mut line = TimeOfDay::at(now).to_string();
        if color && !paint.is_empty() {
            let _ = write!(line, " \x1b[{paint}m{name:<5}\x1b[0m");
        } else {
            let _ = write!(line, " {name:<5}");
        }
        // The pool or site precedes the message; the details follow it.
        let (subject, details): (Vec<_>, Vec<_>) = self
            .others
            .iter()
            .partition(|(name, _)| matches!(*name, "pool" | "site"));
        for (name, value) in subject {
            let _ = write!(line, " {name}={}", Plain(value));
        }
        let _ = write!(line, " {}", Escaped(&self.message));
        for (name, value) in details {
            let _ = write!(line, " {name}={}", Plain(value));
        }
        line.push('\n');
        line
    }

    fn json(self, level: &Level, now: SystemTime) -> String {
        let first = [
            ("ts", seconds(now).into()),
            ("level", level_name(level).0.into()),
            ("msg", self.message.into()),
        ];
        json_line(first.into_iter().chain(self.others))
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// Seconds since 1970 with milliseconds, as in the access log.
pub(crate) fn seconds(now: SystemTime) -> f64 {
    now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64 / 1000.0
}

fn level_name(level: &Level) -> (&'static str, &'static str) {
    match *level {
        Level::ERROR => ("error", "31"),
        Level::WARN => ("warn", "33"),
        Level::INFO => ("info", ""),
        Level::DEBUG => ("debug", "2"),
        Level::TRACE => ("trace", "2"),
    }
}

/// A value on one line, in quotes only where it holds a space.
struct Plain<'v>(&'v Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) if text.is_empty() || text.contains([' ', '"', '=']) => {
                write!(f, "\"{}\"", Escaped(text))
            }
            Value::String(text) => Escaped(text).fmt(f),
            other => other.fmt(f),
        }
    }
}

/// Text without control characters and marks of direction: text of a client or of PHP must not move the cursor, begin a
/// line or reverse one.
struct Escaped<'v>(&'v str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if is_unseen(character) {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn crash() -> Fields {
        Fields {
            message: "php_crashed".to_owned(),
            others: vec![
                ("pid", 4121.into()),
                ("pool", "php".into()),
                ("request", "GET /a b\n".into()),
            ],
        }
    }

    #[test]
    fn text_says_whom_what_and_then_details_on_one_line() {
        let at = UNIX_EPOCH + Duration::from_secs(3661);
        let line = crash().text(&Level::ERROR, at, false);
        let expected = " error pool=php php_crashed pid=4121 request=\"GET /a b\\n\"\n";
        assert_eq!(line, format!("{}{expected}", TimeOfDay::at(at)));
    }

    #[test]
    fn json_keeps_numbers_and_order() {
        let line = crash().json(&Level::ERROR, UNIX_EPOCH + Duration::from_millis(1_250));
        let value: Value = serde_json::from_str(&line).expect("a line is an object");
        assert_eq!(value["msg"], "php_crashed");
        assert_eq!(value["pid"], 4121);
        assert_eq!(value["ts"], 1.25);
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn colour_is_never_the_only_carrier() {
        let line = crash().text(&Level::ERROR, UNIX_EPOCH, true);
        assert!(line.contains("\x1b[31merror\x1b[0m"), "{line}");
    }
}
