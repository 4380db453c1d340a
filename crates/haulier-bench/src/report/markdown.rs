//! A report as Markdown, to be kept in a repository and compared with earlier runs.

use std::fmt::Write;

use crate::result::Run;

use super::document::{Page, PartContent, Report, ScriptOutcome};
use super::facts;
use super::grid::{self, Grid, Mark};

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let mut out = format!("# {}\n\n", line(&report.title));
    let written = format!(
        "Written by `{}` ({}) on {}; {}.\n",
        facts::quoted(&report.command),
        report.tool,
        facts::when(&report.started),
        facts::machine_line(&report.machine)
    );
    out.push_str(&written);
    let depth = if report.pages.len() > 1 { 2 } else { 1 };
    for page in &report.pages {
        if depth > 1 {
            let _ = write!(out, "\n## {}\n", line(&page.title));
        }
        write_page(&mut out, report, page, depth + 1);
    }
    out
}

fn write_page(out: &mut String, report: &Report, page: &Page, depth: usize) {
    paragraphs(out, &page.about);
    if let Some(goals) = grid::of_goals(page) {
        table(out, &goals);
    }
    for part in &page.parts {
        heading(out, depth, &part.title);
        paragraphs(out, &part.about);
        if let Some(earlier) = facts::earlier(report, part) {
            let _ = write!(out, "\n{earlier}\n");
        }
        match &part.content {
            PartContent::Run { run, show, .. } => write_run(out, run, show),
            PartContent::Script { outcome } => write_outcome(out, outcome),
            PartContent::Failed { why } => {
                let _ = write!(out, "\n**Not measured**: {}\n", line(why));
            }
        }
    }
    list(out, "Versions", &page.versions);
    list(out, "Left out", &page.left_out);
}

fn heading(out: &mut String, depth: usize, title: &str) {
    if !title.is_empty() {
        let _ = write!(out, "\n{} {}\n", "#".repeat(depth), line(title));
    }
}

fn paragraphs(out: &mut String, text: &str) {
    if !text.trim().is_empty() {
        let _ = write!(out, "\n{}\n", text.trim());
    }
}

fn write_run(out: &mut String, run: &Run, show: &[String]) {
    let _ = write!(out, "\n`{}`\n", facts::quoted(&run.command));
    sentences(out, &run.verdicts);
    if !run.warnings.is_empty() {
        out.push('\n');
        for warning in &run.warnings {
            let _ = writeln!(out, "- **Note** {}", line(&warning.named(&run.targets)));
        }
    }
    for grid in grid::summary(run, show).iter().chain(&grid::failures(run)) {
        table(out, grid);
    }
}

fn write_outcome(out: &mut String, outcome: &ScriptOutcome) {
    sentences(out, &outcome.sentences);
    for one in &outcome.tables {
        table(out, &grid::of_script(one));
    }
}

fn sentences(out: &mut String, sentences: &[String]) {
    if !sentences.is_empty() {
        out.push('\n');
    }
    for sentence in sentences {
        let _ = writeln!(out, "- {}", line(sentence));
    }
}

/// Writes a table with aligned columns, so that it reads well as text, too.
fn table(out: &mut String, grid: &Grid) {
    if !grid.title.is_empty() {
        let _ = write!(out, "\n**{}**\n", line(&grid.title));
    }
    let mut rows = vec![
        std::iter::once(&grid.corner)
            .chain(&grid.head)
            .map(|text| cell(text))
            .collect::<Vec<_>>(),
    ];
    for one in &grid.lines {
        let figures = one.cells.iter().map(|shown| match shown.mark {
            Mark::Best | Mark::Bad => format!("**{}**", cell(&shown.text)),
            _ => cell(&shown.text),
        });
        rows.push(std::iter::once(cell(&one.name)).chain(figures).collect());
    }
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| width(column).unwrap_or(0).max(3))
        .collect();
    let to_the_left = |column: usize| column == 0 || grid.has_words(column - 1);
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| match column {
            _ if to_the_left(column) => "-".repeat(*width),
            _ => format!("{}:", "-".repeat(width - 1)),
        })
        .collect();
    rows.insert(1, rule);
    out.push('\n');
    for row in rows {
        out.push('|');
        for (column, width) in widths.iter().enumerate() {
            let text = row.get(column).map_or("", String::as_str);
            let room = " ".repeat(width.saturating_sub(text.chars().count()));
            let _ = match column {
                _ if to_the_left(column) => write!(out, " {text}{room} |"),
                _ => write!(out, " {room}{text} |"),
            };
        }
        out.push('\n');
    }
    paragraphs(out, &grid.note);
}

fn list(out: &mut String, title: &str, pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let _ = write!(out, "\n{title}:\n\n");
    for (name, text) in pairs {
        let _ = writeln!(out, "- {}: {}", line(name), line(text));
    }
}

/// Text within a cell.
fn cell(text: &str) -> String {
    line(text).replace('|', "\\|")
}

/// The text in one line.
fn line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn a_run_is_a_table_whose_columns_line_up() {
        let text = page(&Report::of_run(samples::pair()));
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 8, "{text}");
        let widths: Vec<usize> = rows.iter().map(|row| row.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert!(text.contains("no difference shown"), "{text}");
    }

    #[test]
    fn names_cannot_break_a_table() {
        let mut run = samples::pair();
        run.targets[0].name = "a|b\n<c>".to_owned();
        let text = page(&Report::of_run(run));
        assert!(text.contains("a\\|b \\<c>"), "{text}");
    }
}
