//! The last requests that failed, and the slowest.

use std::fmt::Write;

use haulier_server::metrics::{FailedRequest, RequestSummary, SlowRequest};

use super::label::{cut, site};
use super::table::{TableColumn, table};
use super::time::time_of_day;
use crate::admin::view::View;
use crate::quantity::{milliseconds, span};
use haulier_proto::text::Escaped;

/// Characters of a message that are shown at once; the rest of a longer one unfolds.
const BEGINNING: usize = 240;
/// Failures whose message is shown.
const MESSAGES: usize = 8;

pub(super) fn section(view: &View) -> String {
    format!(
        "<section id=\"requests\" data-live><h2>Requests</h2>{}{}</section>",
        failures(view),
        slowest(view)
    )
}

fn failures(view: &View) -> String {
    if view.failures.is_empty() {
        return "<p>No request has failed.</p>".to_owned();
    }
    let columns = [TableColumn::Text("Reason"), TableColumn::Text("Request")];
    let rows = view.failures.chunk_by(is_same).enumerate().map(|(number, failures)| {
        let (failure, times) = (&failures[0], failures.len());
        let at = time_of_day(failure.request.at);
        let again = if times > 1 {
            format!(" · {times} times")
        } else {
            String::new()
        };
        let reason = format!(
            "<b>{}</b> <small>{} · {at}{again}</small>",
            failure.reason, failure.request.status
        );
        vec![reason, described(view, failure, number < MESSAGES)]
    });
    table("The last requests that failed, by UTC", &columns, rows)
}

/// True if the two failures differ in nothing but their time.
fn is_same(one: &FailedRequest, other: &FailedRequest) -> bool {
    let about = |failure: &FailedRequest| (failure.reason, failure.request.status, failure.request.site.clone());
    about(one) == about(other) && one.request.request == other.request.request && one.message == other.message
}

fn described(view: &View, failure: &FailedRequest, with_message: bool) -> String {
    let mut out = named(&failure.request);
    if let Some(message) = failure.message.as_ref().filter(|_| with_message) {
        out.push_str(&unfolding(message, &failure.request.id));
    }
    out.push_str(&calls(view, &failure.request));
    out
}

/// A message: the whole if it is short, otherwise its beginning, from which the rest unfolds. `id` keeps it unfolded when the
/// page is renewed.
fn unfolding(message: &str, id: &str) -> String {
    match message.char_indices().nth(BEGINNING) {
        None => format!("<span class=\"message\">{}</span>", Escaped(message)),
        Some((end, _)) => format!(
            "<details class=\"message\" data-of=\"{}\"><summary>{}…</summary>…{}</details>",
            Escaped(id),
            Escaped(&message[..end]),
            Escaped(&message[end..])
        ),
    }
}

/// A request, with its id for the log.
fn named(request: &RequestSummary) -> String {
    let mut out = match request.request.as_str() {
        "" => "<i>no request</i>".to_owned(),
        words => format!("<code>{}</code>", Escaped(&cut(words))),
    };
    out.push_str(&site(request.site.as_deref()));
    if !request.id.is_empty() {
        let _ = write!(out, " <small class=\"w\">{}</small>", Escaped(&request.id));
    }
    out
}

fn slowest(view: &View) -> String {
    if view.slowest.is_empty() {
        return String::new();
    }
    let columns = [
        TableColumn::Number("Time"),
        TableColumn::Text("Request"),
        TableColumn::WideNumber("Queue"),
        TableColumn::WideNumber("PHP"),
        TableColumn::WideNumber("Sending"),
        TableColumn::WideText("Ended"),
    ];
    let most = view.slowest.iter().map(whole).fold(0.001, f64::max);
    let rows = view.slowest.iter().map(|slow| {
        let time = |time: std::time::Duration| milliseconds(Some(time.as_secs_f64() * 1000.0));
        vec![
            span(whole(slow)),
            format!(
                "{}{}{}",
                named(&slow.request),
                bar(slow, most),
                calls(view, &slow.request)
            ),
            time(slow.queued),
            time(slow.php),
            time(slow.took.saturating_sub(slow.queued + slow.php)),
            time_of_day(slow.request.at),
        ]
    });
    table(
        "The slowest of the last hour, by their time in the queue and in PHP; ended by UTC",
        &columns,
        rows,
    )
}

/// The calls of its script when it was slow, or was ended: the innermost, from which the others unfold. Empty if they were not read.
fn calls(view: &View, request: &RequestSummary) -> String {
    if request.id.is_empty() {
        return String::new();
    }
    let mut traced = view.pools.iter().flat_map(|pool| &pool.traced);
    let label_end = format!("(req {})", request.id);
    let Some(traced) = traced.find(|traced| traced.label.ends_with(&label_end)) else {
        return String::new();
    };
    let calls = traced.trace.calls();
    let rows = calls
        .iter()
        .map(|call| format!("<li><code>{}</code></li>", Escaped(call)));
    format!(
        "<details class=\"message\" data-of=\"calls-{}\"><summary>PHP was at <code>{}</code></summary><ol class=\"calls\">{}</ol></details>",
        Escaped(&request.id),
        Escaped(calls.first().map_or("", String::as_str)),
        rows.collect::<String>()
    )
}

/// Queue, PHP and sending together, seconds.
fn whole(slow: &SlowRequest) -> f64 {
    slow.took.max(slow.queued + slow.php).as_secs_f64()
}

/// The three parts side by side; the slowest of all fills the width.
fn bar(slow: &SlowRequest, most: f64) -> String {
    let percent = |seconds: f64| (seconds / most * 1000.0).round() / 10.0;
    let (queue, php) = (slow.queued.as_secs_f64(), slow.php.as_secs_f64());
    let parts = [
        ("k3", 0.0, queue),
        ("k1", queue, php),
        ("km", queue + php, whole(slow) - queue - php),
    ];
    let shown = parts.into_iter().filter(|(.., length)| percent(*length) > 0.0);
    let parts = shown.map(|(ink, from, length)| {
        let (from, length) = (percent(from), percent(length));
        format!("<rect class=\"{ink}\" x=\"{from}%\" width=\"{length}%\"/>")
    });
    format!(
        "<svg class=\"bar\" aria-hidden=\"true\">{}</svg>",
        parts.collect::<String>()
    )
}
