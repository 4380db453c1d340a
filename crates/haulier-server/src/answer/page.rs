//! The frame of generated pages: one small document without external resources, light and dark.

use std::fmt::Write;

use haulier_proto::text::Escaped;

/// Begins a document. Further text goes into its `main` element.
pub(crate) fn begin(title: &str) -> String {
    let mut page = String::with_capacity(1024);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str(
        "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\"><title>",
    );
    escape(&mut page, title);
    page.push_str("</title><style>");
    page.push_str(STYLE);
    page.push_str("</style></head><body><main>\n");
    page
}

/// Ends a document.
pub(crate) fn end(page: &mut String) {
    page.push_str("</main></body></html>\n");
}

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;margin:0}\
main{max-width:50em;margin:12vh auto 4em;padding:0 1.5em}\
h1{font-size:1.6em;font-weight:600;margin:0 0 .5em}\
table{border-collapse:collapse;width:100%}\
td{padding:.15em 1em .15em 0}\
td+td{text-align:right;white-space:nowrap;opacity:.75;font-variant-numeric:tabular-nums}\
pre{overflow:auto;padding:1em;border:1px solid;border-radius:.3em;white-space:pre-wrap}\
small{opacity:.7}";

/// Appends text, escaped for elements and quoted attributes.
pub(crate) fn escape(page: &mut String, text: &str) {
    let _ = write!(page, "{}", Escaped(text));
}

/// Appends an element with this text.
pub(crate) fn element(page: &mut String, name: &str, text: &str) {
    let _ = write!(page, "<{name}>");
    escape(page, text);
    let _ = writeln!(page, "</{name}>");
}
