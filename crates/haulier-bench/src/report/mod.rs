//! Reports for people: one HTML page, Markdown, or text on a terminal.
//!
//! `document` is a report as data, `data` reads and embeds it, `compare` merges stored runs. `quantity`, `grid`, `bars`,
//! `charts` and `facts` decide the content; `html`, `markdown` and `terminal` only its form. `run_text` and `ab` are the
//! text of a run that has just ended, `exports` its files for other programs.

pub mod ab;
mod bars;
mod charts;
pub mod compare;
pub mod data;
pub mod document;
pub mod exports;
mod facts;
pub mod figures;
pub mod goal;
mod grid;
mod histogram;
mod html;
mod markdown;
pub mod quantity;
pub mod run_text;
#[cfg(test)]
mod samples;
pub mod terminal;

use std::io;
use std::path::Path;

pub use document::Report;

/// Writes a report in the form of the file's extension: `.json`, `.md`, else HTML.
///
/// # Errors
/// The file cannot be written.
pub fn write(report: &Report, to: &Path) -> io::Result<()> {
    let text = match to.extension().and_then(|ending| ending.to_str()) {
        Some("json") => data::to_json(report) + "\n",
        Some("md") => markdown::page(report),
        _ => html::page(report),
    };
    std::fs::write(to, text)
}
