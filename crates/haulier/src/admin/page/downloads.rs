//! Responses that take long to send, the worker time that hand-offs saved, and the scripts that could save more.

use std::collections::HashSet;
use std::fmt::Write;

use super::label::site;
use super::table::{TableColumn, table};
use crate::admin::state::StreamingState;
use crate::admin::view::{TransferView, View};
use crate::quantity::{count, counted, size, span};
use haulier_proto::text::Escaped;

/// Downloads shown one by one.
const SHOWN: usize = 8;

pub(super) fn section(view: &View) -> String {
    let state = &view.state;
    let mut out = "<section id=\"downloads\" data-live><h2>Downloads</h2>".to_owned();
    let _ = write!(
        out,
        "<p>{} on the way, {}/s in all. PHP workers were spared <strong>{}</strong> in the last 24 hours, {} since the \
         start: time in which clients were still reading while the worker already served other requests.</p>",
        counted(view.transfers.len() as u64, "long response", "long responses"),
        size(state.downloads.bytes_per_second),
        span(view.saved_day.as_secs_f64()),
        span(state.worker_seconds_saved),
    );
    if !view.transfers.is_empty() {
        let columns = [
            TableColumn::Text("File"),
            TableColumn::WideText("Client"),
            TableColumn::Number("Rate"),
            TableColumn::Number("Done"),
            TableColumn::WideNumber("For"),
        ];
        out.push_str(&table(
            "On the way, with the rate of the last minute",
            &columns,
            view.transfers.iter().take(SHOWN).map(transfer),
        ));
        if view.transfers.len() > SHOWN {
            let _ = write!(out, "<p>and {} more.</p>", view.transfers.len() - SHOWN);
        }
    }
    out.push_str(&streaming(&state.streaming));
    out.push_str("</section>");
    out
}

fn transfer(transfer: &TransferView) -> Vec<String> {
    let done = match transfer.length {
        Some(length) => {
            let percent = (transfer.sent as f64 / length.max(1) as f64 * 100.0).min(100.0);
            format!(
                "{percent:.0}% of {} <progress max=\"100\" value=\"{percent:.0}\" aria-label=\"done\"></progress>",
                size(length as f64)
            )
        }
        None => size(transfer.sent as f64),
    };
    vec![
        format!(
            "<code>{}</code>{}",
            Escaped(&transfer.target),
            site(transfer.site.as_deref())
        ),
        transfer.client.to_string(),
        format!("{}/s", size(transfer.bytes_per_second)),
        done,
        span(transfer.running.as_secs_f64()),
    ]
}

fn streaming(scripts: &[StreamingState]) -> String {
    if scripts.is_empty() {
        return String::new();
    }
    let columns = [
        TableColumn::Text("Script"),
        TableColumn::Number("Bodies"),
        TableColumn::Number("Bytes"),
    ];
    let mut said = HashSet::new();
    let rows = scripts.iter().take(SHOWN).map(|script| {
        let mut name = format!("<code>{}</code>{}", Escaped(&script.script), site(Some(&script.site)),);
        // One rule is for all scripts of a site.
        if said.insert(&script.rule) {
            let _ = write!(name, "<code class=\"rule\">{}</code>", Escaped(&script.rule));
        }
        vec![name, count(script.responses), size(script.bytes as f64)]
    });
    let caption = "Scripts that still stream large bodies through PHP, and the rule that takes them from it";
    table(caption, &columns, rows)
}
