//! Tables: the columns know whether they hold text or numbers, and which of them a narrow page leaves out.

use std::fmt::Write;

use haulier_proto::text::Escaped;

/// A column with its title.
#[derive(Debug, Clone, Copy)]
pub(super) enum TableColumn {
    Text(&'static str),
    Number(&'static str),
    /// A number that narrow pages leave out.
    WideNumber(&'static str),
    /// A text that narrow pages leave out.
    WideText(&'static str),
}

impl TableColumn {
    fn title(self) -> &'static str {
        match self {
            Self::Text(title) | Self::Number(title) | Self::WideNumber(title) | Self::WideText(title) => title,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Text(_) => "",
            Self::Number(_) => " class=\"n\"",
            Self::WideNumber(_) => " class=\"n w\"",
            Self::WideText(_) => " class=\"w\"",
        }
    }
}

/// A table without the end tags that are optional in HTML: they would be a tenth of the page. Cells are HTML. The first
/// cell of a row names it.
pub(super) fn table(caption: &str, columns: &[TableColumn], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = format!("<table><caption>{}</caption><thead><tr>", Escaped(caption));
    for column in columns {
        let _ = write!(out, "<th scope=\"col\"{}>{}", column.class(), Escaped(column.title()));
    }
    out.push_str("<tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (number, (cell, column)) in row.iter().zip(columns).enumerate() {
            let class = column.class();
            let _ = match number {
                0 => write!(out, "<th{class}>{cell}"),
                _ => write!(out, "<td{class}>{cell}"),
            };
        }
    }
    out.push_str("</table>");
    out
}

/// The table below a chart: its legend, and the figures for people who cannot see the chart. Each row has a sample of
/// the layer, its name, and the figures as text.
pub(super) fn legend(caption: &str, rows: impl IntoIterator<Item = (String, String, [String; 3])>) -> String {
    let columns = [
        TableColumn::Text("series"),
        TableColumn::Number("now"),
        TableColumn::Number("mean"),
        TableColumn::Number("most"),
    ];
    let rows = rows.into_iter().map(|(swatch, name, figures)| {
        let name = format!("{swatch}{}", Escaped(&name));
        std::iter::once(name).chain(figures).collect()
    });
    table(caption, &columns, rows)
}
