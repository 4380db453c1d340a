//! Reports for people: one HTML page, Markdown, or text on a terminal.
//!
//! `document` is a report as data, `data` reads and embeds it, `compare` merges stored runs. `quantity`, `grid`, `bars`,
//! `charts` and `facts` decide the content; `html`, `markdown` and `terminal` only its form.

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
