//! What was measured, for people: one HTML page, Markdown, or text on a terminal.
//!
//! `report` is what a report is about, `data` reads and embeds it, `compare` lays stored runs beside each other. `quantity`,
//! `grid`, `bars`, `charts` and `facts` say what is to be seen of a run; `html`, `markdown` and `terminal` only how it looks.

mod bars;
mod charts;
pub mod compare;
pub mod data;
pub mod document;
mod facts;
pub mod figures;
pub mod goal;
mod grid;
mod histogram;
mod html;
mod markdown;
pub mod quantity;
#[cfg(test)]
mod samples;
pub mod terminal;

use std::io;
use std::path::Path;

pub use document::Report;

/// Writes a report as the ending of the file's name asks: `.json`, `.md`, else HTML.
///
/// # Errors
/// When the file cannot be written.
pub fn write(report: &Report, to: &Path) -> io::Result<()> {
    let text = match to.extension().and_then(|ending| ending.to_str()) {
        Some("json") => data::to_json(report) + "\n",
        Some("md") => markdown::page(report),
        _ => html::page(report),
    };
    std::fs::write(to, text)
}
