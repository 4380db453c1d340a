//! What became of content on its way: compression.

use super::table::{Column, table};
use crate::admin::view::View;
use crate::quantity::{size, span};

pub(super) fn section(view: &View) -> String {
    let used: Vec<_> = view.codings.iter().filter(|coding| coding.taken > 0).collect();
    if used.is_empty() {
        return String::new();
    }
    let columns = [
        Column::Text("Coding"),
        Column::Number("Before"),
        Column::Number("After"),
        Column::Number("Left"),
        Column::Number("CPU time"),
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
    let table = table("Bodies coded since the start", &columns, rows);
    format!("<section id=\"content\" data-live><h2>Compression</h2>{table}</section>")
}
