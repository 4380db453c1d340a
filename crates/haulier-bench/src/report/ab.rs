//! The text of ab, for scripts that read it.
//!
//! Widths, words and rounding are ab's: whole milliseconds, blanks and all.

use std::fmt::Write;

use crate::campaign::{Measured, Options};
use crate::histogram::Histogram;
use crate::result::{Warning, WarningKind};
use crate::sample::Tally;
use crate::target::Address;

/// Version and copyright lines of ab.
pub const BANNER: &str = concat!(
    "This is ApacheBench, Version 2.3 <haulier ",
    env!("CARGO_PKG_VERSION"),
    ">\n\n"
);
/// Requests up to which ab shows no progress.
const MOST_WITHOUT_PROGRESS: u64 = 150;
/// ab's messages and exit codes for socket errors: the number of the system, cut to a byte.
const RESET: (&str, u8) = ("apr_socket_recv: Connection reset by peer (104)", 104);
const REFUSED: (&str, u8) = ("apr_socket_recv: Connection refused (111)", 111);
const TIMED_OUT: (&str, u8) = ("apr_pollset_poll: The timeout specified has expired (70007)", 119);
/// Size of ab's buffer: the bytes of an answer that it shows.
const AB_BUFFER: usize = 2048;

/// Form of ab's text.
#[derive(Debug, Clone, Default)]
pub struct AbForm {
    /// An HTML table instead of text.
    pub html: Option<TableAttributes>,
    pub is_quiet: bool,
    pub without_percentiles: bool,
    /// No deviations, medians and warnings about them.
    pub without_confidence: bool,
    pub verbosity: u8,
}

/// Attributes of the elements of ab's HTML table.
#[derive(Debug, Clone, Default)]
pub struct TableAttributes {
    pub table: String,
    pub row: String,
    /// `bgcolor=white` if it is empty.
    pub cell: String,
}

/// The end of a run that ab ends early.
#[derive(Debug, PartialEq, Eq)]
pub struct Abort {
    /// Completed requests.
    pub done: u64,
    /// The message on standard error.
    pub message: &'static str,
    pub code: u8,
}

/// Progress in ab's lines.
#[derive(Debug)]
pub struct AbProgress {
    step: u64,
    /// The number of the next line.
    next: u64,
}

impl AbProgress {
    /// `None` if ab shows no progress.
    #[must_use]
    pub fn new(options: &Options, form: &AbForm) -> Option<Self> {
        let step = (options.count.unwrap_or_default() / 10).max(100);
        shows_progress(options, form).then_some(Self { step, next: step })
    }

    /// The lines up to this number of answers.
    pub fn lines(&mut self, answers: u64) -> String {
        let mut text = String::new();
        while answers >= self.next {
            let _ = writeln!(text, "Completed {} requests", self.next);
            self.next += self.step;
        }
        text
    }
}

fn shows_progress(options: &Options, form: &AbForm) -> bool {
    options.count.is_some_and(|count| count > MOST_WITHOUT_PROGRESS) && !form.is_quiet
}

/// The text before the run.
#[must_use]
pub fn opening(options: &Options, form: &AbForm) -> String {
    if form.html.is_some() {
        let version = env!("CARGO_PKG_VERSION");
        return format!("<p>\n This is ApacheBench, Version 2.3 <i>&lt;haulier {version}&gt;</i><br>\n</p>\n<p>\n");
    }
    let host = host(options).0;
    let proxy = options.proxy.as_ref();
    let through = proxy.map_or_else(String::new, |proxy| format!(" [through {proxy}]"));
    let end = if shows_progress(options, form) { "\n" } else { "..." };
    format!("{BANNER}Benchmarking {host}{through} (be patient){end}")
}

/// The text after the run.
#[must_use]
pub fn render(measured: &Measured, options: &Options, form: &AbForm) -> String {
    let report = AbReport::new(measured, options, form);
    let done = if shows_progress(options, form) {
        "\n\n"
    } else {
        "..done\n\n\n"
    };
    let body = match &form.html {
        Some(attributes) => report.html(attributes),
        None => report.text(),
    };
    format!("{done}{body}")
}

/// The request and every answer, from verbosity 2 on; every status from 3 on.
#[must_use]
pub fn exchanges(measured: &Measured, options: &Options, verbosity: u8) -> Vec<u8> {
    let mut text = Vec::new();
    if verbosity < 2 {
        return text;
    }
    let method = &options.template.method;
    let is_sent = options.template.body.is_some();
    let request = &measured.request;
    let head = if is_sent {
        let length = options.template.body.as_ref().map_or(0, Vec::len);
        &request[..request.len() - length]
    } else {
        request
    };
    text.extend_from_slice(format!("INFO: {method} header == \n---\n").as_bytes());
    text.extend_from_slice(head);
    text.extend_from_slice(b"\n---\n");
    for answer in measured.tallies.iter().flat_map(|tally| &tally.seen) {
        text.extend_from_slice(b"LOG: header received:\n");
        // ab shows the bytes of its first read.
        text.extend_from_slice(&answer.head);
        text.extend_from_slice(&answer.body[..answer.body.len().min(AB_BUFFER.saturating_sub(answer.head.len()))]);
        text.push(b'\n');
        let status = answer.status;
        let line = match status {
            200..300 if verbosity < 3 => String::new(),
            200..300 => format!("LOG: Response code = {status}\n"),
            _ => format!("WARNING: Response code not 2xx ({status})\n"),
        };
        text.extend_from_slice(line.as_bytes());
    }
    text
}

/// A line for every socket error that did not end the run, from verbosity 1 on.
#[must_use]
pub fn socket_errors(measured: &Measured, verbosity: u8) -> String {
    let failures = measured.tallies[0].failures;
    let lines = |error: &str, count: u64| format!("{error}\n").repeat(usize::try_from(count).unwrap_or(0));
    if verbosity < 1 {
        return String::new();
    }
    [lines(RESET.0, failures.reset), lines(REFUSED.0, failures.refused)].concat()
}

/// The early end of a run, if its failures end it.
#[must_use]
pub fn abort(measured: &Measured, options: &Options) -> Option<Abort> {
    let failures = measured.tallies[0].failures;
    if !options.stop.ends(&failures) {
        return None;
    }
    let (message, code) = match failures {
        _ if failures.timeouts() > 0 => TIMED_OUT,
        _ if failures.refused > 0 => REFUSED,
        _ if failures.tls > 0 => ("SSL handshake failed (1).", 1),
        _ if failures.local > 0 => ("socket: Cannot assign requested address (99)", 99),
        _ if failures.protocol > 0 => ("apr_socket_recv: Bad message (74)", 74),
        _ => RESET,
    };
    let done = measured.tallies[0].answers() + failures.short_body;
    Some(Abort { done, message, code })
}

/// True for a warning that changes the meaning of all figures; other ones would disturb scripts.
#[must_use]
pub fn is_worth_saying(warning: &Warning) -> bool {
    warning.kind == WarningKind::GeneratorLimited
}

/// Host, port and path.
fn host(options: &Options) -> (String, u16, String) {
    match &options.targets[0].address {
        Address::Http(url) => (url.origin().host.clone(), url.origin().port, url.target().to_owned()),
        other @ Address::FastCgi { script, .. } => (other.to_string(), 0, script.clone()),
    }
}

struct AbReport<'a> {
    measured: &'a Measured,
    options: &'a Options,
    form: &'a AbForm,
    tally: &'a Tally,
    seconds: f64,
    done: u64,
    /// Requests that count in a rate.
    in_time: u64,
}

impl<'a> AbReport<'a> {
    fn new(measured: &'a Measured, options: &'a Options, form: &'a AbForm) -> Self {
        let tally = &measured.tallies[0];
        // ab counts failed requests as done.
        let done = tally.requests + tally.failures.all();
        Self {
            measured,
            options,
            form,
            tally,
            seconds: tally.elapsed as f64 / 1e9,
            done,
            in_time: done - tally.after_end - tally.failures.unanswered,
        }
    }

    /// Names and values, for text and table. A value without a name continues the line before; an empty pair is an
    /// empty line.
    fn facts(&self) -> Vec<(String, String)> {
        let (host, port, path) = host(self.options);
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
        fact("Server Software", self.server());
        fact("Server Hostname", host);
        fact("Server Port", port.to_string());
        let tls_name = self.options.targets[0].address.tls_name();
        if let Some(name) = tls_name.filter(|_| !self.options.tls.no_sni) {
            fact("TLS Server Name", name.to_owned());
        }
        fact("", String::new());
        fact("Document Path", path);
        fact("Document Length", self.length());
        fact("", String::new());
        fact("Concurrency Level", self.options.connections[0].to_string());
        fact("Time taken for tests", format!("{:.3} seconds", self.seconds));
        fact("Complete requests", self.done.to_string());
        self.failure_facts(&mut fact);
        self.transfer_facts(&mut fact);
        facts
    }

    fn failure_facts(&self, fact: &mut impl FnMut(&str, String)) {
        let failures = self.tally.failures;
        let late = failures.body_timeout + failures.first_byte_timeout + failures.unanswered;
        let exceptions = failures.tls + failures.protocol + late + failures.local;
        let receive = failures.reset;
        let connect = failures.refused + failures.connect_timeout;
        let length = failures.length + failures.body + failures.short_body;
        let all = connect + receive + length + exceptions;
        fact("Failed requests", all.to_string());
        if all > 0 {
            let classes =
                format!("(Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})");
            fact("", classes);
        }
        let statuses = self.tally.statuses.iter();
        let bad = statuses.filter(|(status, _)| !(200..300).contains(status));
        let bad: u64 = bad.map(|(_, count)| count).sum();
        if bad > 0 {
            fact("Non-2xx responses", bad.to_string());
        }
    }

    fn transfer_facts(&self, fact: &mut impl FnMut(&str, String)) {
        let tally = self.tally;
        if self.options.template.keep_alive {
            fact("Keep-Alive requests", tally.kept_alive.to_string());
        }
        fact("Total transferred", format!("{} bytes", tally.bytes.received));
        if self.options.template.body.is_some() {
            fact("Total body sent", tally.bytes.sent.to_string());
        }
        fact("HTML transferred", format!("{} bytes", tally.bytes.body));
    }

    fn server(&self) -> String {
        let head = self
            .measured
            .first
            .as_ref()
            .map(|first| String::from_utf8_lossy(&first.head).into_owned());
        let head = head.unwrap_or_default();
        let value = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("server").then(|| value.trim().to_owned())
        });
        value.unwrap_or_default()
    }

    fn length(&self) -> String {
        if !self.options.same_length {
            return "Variable".to_owned();
        }
        let first = self.measured.first.as_ref().map_or(0, |first| first.body.len() as u64);
        format!("{} bytes", self.measured.first_length.unwrap_or(first))
    }

    fn rates(&self) -> Option<(f64, f64)> {
        (self.seconds > 0.0 && self.in_time > 0).then(|| {
            let rate = self.in_time as f64 / self.seconds;
            (
                rate,
                f64::from(self.options.connections[0]) * self.seconds * 1000.0 / self.in_time as f64,
            )
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.facts() {
            let _ = match name.as_str() {
                "" if value.is_empty() => writeln!(text),
                "" => writeln!(text, "   {value}"),
                _ => writeln!(text, "{:<24}{value}", format!("{name}:")),
            };
        }
        if let Some((rate, time)) = self.rates() {
            let across = self.seconds * 1000.0 / self.in_time as f64;
            let received = self.tally.bytes.received as f64 / 1024.0 / self.seconds;
            let _ = writeln!(text, "Requests per second:    {rate:.2} [#/sec] (mean)");
            let _ = writeln!(text, "Time per request:       {time:.3} [ms] (mean)");
            let _ = writeln!(
                text,
                "Time per request:       {across:.3} [ms] (mean, across all concurrent requests)"
            );
            let _ = writeln!(text, "Transfer rate:          {received:.2} [Kbytes/sec] received");
            if self.options.template.body.is_some() {
                let sent = self.tally.bytes.sent as f64 / 1024.0 / self.seconds;
                let _ = writeln!(text, "                        {sent:.2} kb/s sent");
                let _ = writeln!(text, "                        {:.2} kb/s total", received + sent);
            }
        }
        if self.done > 0 {
            text.push_str(&self.times());
            if !self.form.without_percentiles && self.done > 1 {
                text.push_str(&self.percentiles());
            }
        }
        text
    }

    fn rows(&self) -> [(&'static str, &'static str, TimeSummary); 4] {
        let tally = self.tally;
        // ab counts kept connections with a time of 0.
        let mut connect = tally.connect.clone();
        for _ in connect.count()..tally.latency.count() {
            connect.record(0);
        }
        [
            ("Connect", "the initial connection time", TimeSummary::of(&connect)),
            ("Processing", "the processing time", TimeSummary::of(&tally.processing)),
            ("Waiting", "the waiting time", TimeSummary::of(&tally.first_byte)),
            ("Total", "the total time", TimeSummary::of(&tally.latency)),
        ]
    }

    fn times(&self) -> String {
        let mut text = "\nConnection Times (ms)\n".to_owned();
        let rows = self.rows();
        if self.form.without_confidence {
            text.push_str("              min   avg   max\n");
            for (name, _, times) in rows {
                let (min, mean, max) = (times.min.round(), times.mean.round(), times.max.round());
                let _ = writeln!(text, "{:<12}{min:>5} {mean:>5}{max:>5}", format!("{name}:"));
            }
            return text;
        }
        text.push_str("              min  mean[+/-sd] median   max\n");
        for (name, _, times) in &rows {
            let (min, mean, max) = (times.min.round(), times.mean.round(), times.max.round());
            let (deviation, median) = (times.deviation, times.median.round());
            let _ = writeln!(
                text,
                "{:<12}{min:>5} {mean:>4} {deviation:>5.1} {median:>6} {max:>7}",
                format!("{name}:")
            );
        }
        for (_, what, times) in &rows {
            text.push_str(&times.doubt(what));
        }
        text
    }

    fn percentiles(&self) -> String {
        let mut text = "\nPercentage of the requests served within a certain time (ms)\n".to_owned();
        for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
            let time = (self.tally.latency.percentile(f64::from(percent)) as f64 / 1e3).round();
            let _ = writeln!(text, "  {percent}%  {time:>5}");
        }
        let longest = (self.tally.latency.max() as f64 / 1e3).round();
        let _ = writeln!(text, " 100%  {longest:>5} (longest request)");
        text
    }

    fn html(&self, attributes: &TableAttributes) -> String {
        let TableAttributes { table, row, cell } = attributes;
        let cell = if cell.is_empty() {
            "bgcolor=white"
        } else {
            cell.as_str()
        };
        let mut text = format!("<table {table}>\n");
        let mut facts = self.facts();
        if let Some((rate, _)) = self.rates() {
            let received = self.tally.bytes.received as f64 / 1024.0 / self.seconds;
            facts.push(("Requests per second".to_owned(), format!("{rate:.2}")));
            facts.push(("Transfer rate".to_owned(), format!("{received:.2} kb/s received")));
        }
        for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = if name.is_empty() {
                writeln!(text, "<tr {row}><td colspan=4 {cell} >   {value}</td></tr>")
            } else {
                writeln!(
                    text,
                    "<tr {row}><th colspan=2 {cell}>{name}:</th><td colspan=2 {cell}>{}</td></tr>",
                    escaped(value)
                )
            };
        }
        if self.done > 0 {
            let _ = writeln!(text, "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>");
            let _ = writeln!(
                text,
                "<tr {row}><th {cell}>&nbsp;</th> <th {cell}>min</th>   <th {cell}>avg</th>   <th {cell}>max</th></tr>"
            );
            for (name, _, times) in self.rows().into_iter().filter(|(name, ..)| *name != "Waiting") {
                let (min, mean, max) = (times.min.round(), times.mean.round(), times.max.round());
                let _ = writeln!(
                    text,
                    "<tr {row}><th {cell}>{name}:</th><td {cell}>{min:>5}</td><td {cell}>{mean:>5}</td><td {cell}>{max:>5}</td></tr>"
                );
            }
        }
        text.push_str("</table>\n");
        text
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Figures of a histogram, ms.
struct TimeSummary {
    min: f64,
    mean: f64,
    deviation: f64,
    median: f64,
    max: f64,
}

impl TimeSummary {
    fn of(histogram: &Histogram) -> Self {
        let ms = |microseconds: u64| microseconds as f64 / 1e3;
        Self {
            min: ms(histogram.min()),
            mean: histogram.mean() / 1e3,
            deviation: histogram.deviation() / 1e3,
            median: ms(histogram.percentile(50.0)),
            max: ms(histogram.max()),
        }
    }

    /// ab's doubt if mean and median are far apart.
    fn doubt(&self, what: &str) -> String {
        let apart = (self.mean - self.median).abs();
        if apart > 2.0 * self.deviation {
            format!(
                "ERROR: The median and mean for {what} are more than twice the standard\n       deviation apart. These results are NOT reliable.\n"
            )
        } else if apart > self.deviation {
            format!(
                "WARNING: The median and mean for {what} are not within a normal deviation\n        These results are probably not that reliable.\n"
            )
        } else {
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_far_apart_are_doubted_as_ab_doubts_them() {
        let times = |mean| TimeSummary {
            min: 0.0,
            mean,
            deviation: 1.0,
            median: 0.0,
            max: 0.0,
        };
        assert_eq!(times(0.9).doubt("the total time"), "");
        assert!(
            times(1.5)
                .doubt("the total time")
                .starts_with("WARNING: The median and mean for the total time")
        );
        assert!(times(2.5).doubt("the total time").starts_with("ERROR: "));
    }
}
