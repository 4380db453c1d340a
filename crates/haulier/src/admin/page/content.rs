//! Compression and images.

use super::table::{TableColumn, table};
use crate::admin::state::ImageState;
use crate::admin::view::View;
use crate::quantity::{rate, size, span};
use haulier_proto::text::Escaped;

/// Sites of images that are shown, the busiest of them.
const SHOWN: usize = 6;

pub(super) fn section(view: &View) -> String {
    let (title, tables) = match (compression(view), images(&view.state.images)) {
        (None, None) => return String::new(),
        (Some(table), None) => ("Compression", table),
        (None, Some(table)) => ("Images", table),
        (Some(first), Some(second)) => ("Compression and images", format!("{first}{second}")),
    };
    format!("<section id=\"content\" data-live><h2>{title}</h2>{tables}</section>")
}

fn compression(view: &View) -> Option<String> {
    let used: Vec<_> = view.codings.iter().filter(|coding| coding.taken > 0).collect();
    let columns = [
        TableColumn::Text("Coding"),
        TableColumn::Number("Before"),
        TableColumn::Number("After"),
        TableColumn::Number("Left"),
        TableColumn::Number("CPU time"),
    ];
    let rows = used.iter().map(|coding| {
        vec![
            coding.name.to_owned(),
            size(coding.taken as f64),
            size(coding.made as f64),
            format!("{:.0}%", coding.made as f64 / coding.taken as f64 * 100.0),
            span(coding.spent.as_secs_f64()),
        ]
    });
    (!used.is_empty()).then(|| table("Bodies coded since the start", &columns, rows))
}

/// Sources of images, and the cost of making them.
fn images(sites: &[ImageState]) -> Option<String> {
    let mut shown: Vec<_> = sites.iter().collect();
    shown.sort_by(|a, b| b.made_per_second.total_cmp(&a.made_per_second));
    shown.truncate(SHOWN);
    let columns = [
        TableColumn::Text("Images of"),
        TableColumn::Text("Last minute"),
        TableColumn::Number("Made/s"),
        TableColumn::Number("Busy"),
        TableColumn::WideNumber("Waiting"),
        TableColumn::WideText("Time of a variant"),
        TableColumn::WideNumber("In memory"),
    ];
    let rows = shown.into_iter().map(|site| {
        let mut shares: Vec<_> = site.shares.iter().collect();
        shares.sort_by(|a, b| b.1.total_cmp(a.1));
        let shares = shares
            .iter()
            .map(|(name, share)| format!("{name} {:.0}%", **share * 100.0));
        let steps = ["fetch", "decode", "resize", "encode"];
        let steps = steps.iter().filter_map(|step| Some((step, site.steps_ms.get(*step)?)));
        let steps = steps.map(|(step, time)| format!("{step} {time:.1} ms"));
        vec![
            Escaped(&site.site).to_string(),
            shares.collect::<Vec<_>>().join(", "),
            rate(site.made_per_second),
            format!("{} of {}", site.busy, site.workers),
            site.queued.to_string(),
            steps.collect::<Vec<_>>().join(", "),
            size(site.memory_bytes as f64),
        ]
    });
    (!sites.is_empty()).then(|| table("Images", &columns, rows))
}
