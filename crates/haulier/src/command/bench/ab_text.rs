//! The text of ab, line by line, for the scripts that read it.
//!
//! Widths, words and rounding are ab's: whole milliseconds, blanks and all.

use std::fmt::Write;

use haulier_bench::campaign::{Measured, Options};
use haulier_bench::histogram::Histogram;
use haulier_bench::result::{Warning, WarningKind};
use haulier_bench::sample::Tally;
use haulier_bench::target::Address;

use super::status_line::ab_beats;
use crate::cli::bench::BenchArgs;
use crate::outcome::Outcome;

/// What `-V` prints.
pub(super) fn version(is_ab: bool) -> String {
    if is_ab {
        BANNER.to_owned()
    } else {
        format!("haulier {}\n", env!("CARGO_PKG_VERSION"))
    }
}

const BANNER: &str = concat!(
    "This is ApacheBench, Version 2.3 <haulier ",
    env!("CARGO_PKG_VERSION"),
    ">\n\n"
);

/// What is said before the run.
pub(super) fn opening(options: &Options, arguments: &BenchArgs) -> String {
    if arguments.html {
        let version = env!("CARGO_PKG_VERSION");
        return format!("<p>\n This is ApacheBench, Version 2.3 <i>&lt;haulier {version}&gt;</i><br>\n</p>\n<p>\n");
    }
    let host = host(options).0;
    let through = options
        .proxy
        .as_ref()
        .map_or_else(String::new, |proxy| format!(" [through {proxy}]"));
    let end = if ab_beats(options, arguments) { "\n" } else { "..." };
    format!("{BANNER}Benchmarking {host}{through} (be patient){end}")
}

/// What is said after it.
pub(super) fn render(measured: &Measured, options: &Options, arguments: &BenchArgs) -> String {
    let report = Report::new(measured, options, arguments);
    let done = if ab_beats(options, arguments) {
        "\n\n"
    } else {
        "..done\n\n\n"
    };
    let body = if arguments.html { report.html() } else { report.text() };
    format!("{done}{body}")
}

/// From `-v 2` on: the request, and every answer as it came; from 3 on, every status.
pub(super) fn exchanges(measured: &Measured, options: &Options, verbosity: u8) -> Vec<u8> {
    let mut text = Vec::new();
    if verbosity < 2 {
        return text;
    }
    // POST and PUT have a word of their own.
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
        // ab shows what its first read has brought.
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

/// From `-v 1` on with `-r`: a line for every failure that it went on after.
pub(super) fn socket_errors(measured: &Measured, verbosity: u8) -> String {
    let failures = measured.tallies[0].failures;
    let lines = |error: &str, count: u64| format!("{error}\n").repeat(usize::try_from(count).unwrap_or(0));
    if verbosity < 1 {
        return String::new();
    }
    [lines(RESET.0, failures.reset), lines(REFUSED.0, failures.refused)].concat()
}

/// How ab ends when it does not go on, if it does not: what it says, and the code it leaves with.
pub(super) fn abort(measured: &Measured, options: &Options) -> Option<Outcome> {
    let failures = measured.tallies[0].failures;
    if !options.stop.ends(&failures) {
        return None;
    }
    let (line, code) = match failures {
        _ if failures.timeouts() > 0 => TIMED_OUT,
        _ if failures.refused > 0 => REFUSED,
        _ if failures.tls > 0 => ("SSL handshake failed (1).", 1),
        _ if failures.local > 0 => ("socket: Cannot assign requested address (99)", 99),
        _ if failures.protocol > 0 => ("apr_socket_recv: Bad message (74)", 74),
        _ => RESET,
    };
    let done = measured.tallies[0].answers() + failures.short_body;
    if done > 0 {
        println!("Total of {done} requests completed");
    }
    eprintln!("{line}");
    Some(Outcome::FailedWith(code))
}

/// ab's words and exit codes for what went wrong with a socket: the numbers of the system, cut to a byte.
const RESET: (&str, u8) = ("apr_socket_recv: Connection reset by peer (104)", 104);
const REFUSED: (&str, u8) = ("apr_socket_recv: Connection refused (111)", 111);
const TIMED_OUT: (&str, u8) = ("apr_pollset_poll: The timeout specified has expired (70007)", 119);
/// What ab keeps of an answer, bytes.
const AB_BUFFER: usize = 2048;

/// ab says on standard error only what changes the meaning of all figures.
pub(super) fn is_worth_saying(warning: &Warning) -> bool {
    warning.kind == WarningKind::GeneratorLimited
}

/// Host, port and path.
fn host(options: &Options) -> (String, u16, String) {
    match &options.targets[0].address {
        Address::Http(url) => (url.origin().host.clone(), url.origin().port, url.target().to_owned()),
        other @ Address::FastCgi { script, .. } => (other.to_string(), 0, script.clone()),
    }
}

struct Report<'a> {
    measured: &'a Measured,
    options: &'a Options,
    arguments: &'a BenchArgs,
    tally: &'a Tally,
    seconds: f64,
    done: u64,
    /// Those that count in a rate.
    in_time: u64,
}

impl<'a> Report<'a> {
    fn new(measured: &'a Measured, options: &'a Options, arguments: &'a BenchArgs) -> Self {
        let tally = &measured.tallies[0];
        // A connection that ended, or broke where it goes on, ended a request all the same.
        let done = tally.requests + tally.failures.all();
        Self {
            measured,
            options,
            arguments,
            tally,
            seconds: tally.elapsed as f64 / 1e9,
            done,
            in_time: done - tally.after_end - tally.failures.unanswered,
        }
    }

    /// The lines with a name and a value, which text and table share. Without a name it belongs to the line before;
    /// without both it is empty.
    fn facts(&self) -> Vec<(String, String)> {
        let (host, port, path) = host(self.options);
        let tally = self.tally;
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
        fact("Server Software", self.server());
        fact("Server Hostname", host);
        fact("Server Port", port.to_string());
        if let Some(name) = self.options.targets[0]
            .address
            .tls_name()
            .filter(|_| !self.arguments.no_sni)
        {
            fact("TLS Server Name", name.to_owned());
        }
        fact("", String::new());
        fact("Document Path", path);
        fact("Document Length", self.length());
        fact("", String::new());
        fact("Concurrency Level", self.options.connections[0].to_string());
        fact("Time taken for tests", format!("{:.3} seconds", self.seconds));
        fact("Complete requests", self.done.to_string());
        let failures = tally.failures;
        let late = failures.body_timeout + failures.first_byte_timeout + failures.unanswered;
        let exceptions = failures.tls + failures.protocol + late + failures.local;
        let receive = failures.reset;
        let connect = failures.refused + failures.connect_timeout;
        let length = failures.length + failures.body + failures.short_body;
        fact("Failed requests", (connect + receive + length + exceptions).to_string());
        if connect + receive + length + exceptions > 0 {
            let classes =
                format!("(Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})");
            fact("", classes);
        }
        let is_bad = |status: u16| !(200..300).contains(&status);
        let bad: u64 = tally
            .statuses
            .iter()
            .filter(|(status, _)| is_bad(*status))
            .map(|(_, count)| count)
            .sum();
        if bad > 0 {
            fact("Non-2xx responses", bad.to_string());
        }
        if self.options.template.keep_alive {
            fact("Keep-Alive requests", tally.kept_alive.to_string());
        }
        fact("Total transferred", format!("{} bytes", tally.bytes.received));
        if self.options.template.body.is_some() {
            fact("Total body sent", tally.bytes.sent.to_string());
        }
        fact("HTML transferred", format!("{} bytes", tally.bytes.body));
        facts
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
        if self.arguments.any_length {
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
            if !self.arguments.no_percentiles && self.done > 1 {
                text.push_str(&self.percentiles());
            }
        }
        text
    }

    fn rows(&self) -> [(&'static str, &'static str, Times); 4] {
        let tally = self.tally;
        // A kept connection takes no time to connect; ab counts it with the others.
        let mut connect = tally.connect.clone();
        for _ in connect.count()..tally.latency.count() {
            connect.record(0);
        }
        [
            ("Connect", "the initial connection time", Times::of(&connect)),
            ("Processing", "the processing time", Times::of(&tally.processing)),
            ("Waiting", "the waiting time", Times::of(&tally.first_byte)),
            ("Total", "the total time", Times::of(&tally.latency)),
        ]
    }

    fn times(&self) -> String {
        let mut text = "\nConnection Times (ms)\n".to_owned();
        let rows = self.rows();
        if self.arguments.no_confidence {
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

    fn html(&self) -> String {
        let attribute = |given: &Option<String>| given.clone().unwrap_or_default();
        let (table, row, cell) = (
            attribute(&self.arguments.table_attributes),
            attribute(&self.arguments.row_attributes),
            attribute(&self.arguments.cell_attributes),
        );
        let cell = if cell.is_empty() {
            "bgcolor=white".to_owned()
        } else {
            cell
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

/// Of one histogram, ms.
struct Times {
    min: f64,
    mean: f64,
    deviation: f64,
    median: f64,
    max: f64,
}

impl Times {
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

    /// What ab says where mean and median are far apart.
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
        let times = |mean| Times {
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
