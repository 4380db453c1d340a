//! A report on a terminal: the tables, and charts of block characters.

use std::fmt::Write;

use crate::result::{Point, Run};
use haulier_proto::text::is_unseen;

use super::bars::{self, Bars};
use super::charts;
use super::document::{Judgement, PagePart, PartContent, Report, ScriptOutcome};
use super::figures::{number, time};
use super::grid::{self, Grid, Level, levels, point};
use super::histogram::{self, TimeCounts};

/// Room for a bar, characters.
const BAR: usize = 32;
/// Room for a histogram, characters.
const HISTOGRAM: usize = 48;
/// From an eighth of a character to a whole one, for bars.
const PIECES: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// The same upward, for sparklines.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The whole text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for page in &report.pages {
        if report.pages.len() > 1 || page.plan.is_some() {
            let title = plain(&page.title);
            let _ = write!(out, "{title}\n{}\n\n", "═".repeat(title.chars().count()));
        }
        for part in &page.parts {
            write_part(&mut out, part);
        }
        for (name, why) in &page.left_out {
            let _ = writeln!(out, "left out: {} ({})", plain(name), plain(why));
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Writes one part, as soon as it was measured.
pub fn write_part(out: &mut String, part: &PagePart) {
    if !part.title.is_empty() {
        let title = plain(&part.title);
        let _ = write!(out, "{title}\n{}\n", "─".repeat(title.chars().count()));
    }
    if !part.about.trim().is_empty() {
        let _ = writeln!(out, "{}", plain(part.about.trim()));
    }
    match &part.content {
        PartContent::Run { run, show, goals } => write_run(out, run, show, goals),
        PartContent::Script { outcome } => write_outcome(out, outcome),
        PartContent::Failed { why } => {
            let _ = writeln!(out, "not measured: {}\n", plain(why));
        }
    }
}

fn write_run(out: &mut String, run: &Run, show: &[String], goals: &[Judgement]) {
    for verdict in &run.verdicts {
        let _ = writeln!(out, "{}", plain(verdict));
    }
    for warning in &run.warnings {
        let _ = writeln!(out, "! {}", plain(&warning.named(&run.targets)));
    }
    write_goals(out, goals);
    out.push('\n');
    for grid in grid::summary(run, show) {
        write_grid(out, &grid);
    }
    if let [level] = levels(run).as_slice() {
        for bars in bars::of_run(run, *level) {
            write_bars(out, &bars);
        }
        write_lines(out, run, *level);
    }
    if let Some(failures) = grid::failures(run) {
        write_grid(out, &failures);
    }
}

fn write_goals(out: &mut String, goals: &[Judgement]) {
    for one in goals {
        let word = if one.is_reached { "reached" } else { "MISSED" };
        let _ = writeln!(out, "{word}: {}; measured {}", plain(&one.goal), plain(&one.measured));
    }
}

fn write_outcome(out: &mut String, outcome: &ScriptOutcome) {
    write_goals(out, &outcome.goals);
    for sentence in &outcome.sentences {
        let _ = writeln!(out, "{}", plain(sentence));
    }
    for table in &outcome.tables {
        write_grid(out, &grid::of_script(table));
    }
}

fn write_grid(out: &mut String, grid: &Grid) {
    if !grid.title.is_empty() {
        let _ = writeln!(out, "{}", plain(&grid.title));
    }
    // Two characters after every figure are room for the mark of the best.
    let head = grid.head.iter().map(|text| format!("{}  ", plain(text)));
    let mut rows = vec![
        std::iter::once(plain(&grid.corner))
            .chain(head)
            .collect::<Vec<String>>(),
    ];
    for line in &grid.lines {
        let cells = line.cells.iter().map(|cell| match cell.mark {
            grid::Mark::Best => format!("{} *", plain(&cell.text)),
            grid::Mark::Words => plain(&cell.text),
            _ => format!("{}  ", plain(&cell.text)),
        });
        rows.push(std::iter::once(plain(&line.name)).chain(cells).collect());
    }
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|text| text.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (column, text) in row.iter().enumerate() {
            let room = " ".repeat(widths[column].saturating_sub(text.chars().count()));
            let words = grid
                .lines
                .first()
                .and_then(|line| line.cells.get(column.wrapping_sub(1)));
            let to_the_left = column == 0 || words.is_some_and(|cell| cell.mark == grid::Mark::Words);
            let _ = match to_the_left {
                true => write!(line, "{text}{room}  "),
                false => write!(line, "{room}{text}  "),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if !grid.note.is_empty() {
        let _ = writeln!(out, "{}", plain(&grid.note));
    }
    out.push('\n');
}

fn write_bars(out: &mut String, bars: &Bars) {
    let _ = writeln!(out, "{} ({})", plain(&bars.title), plain(&bars.note));
    let width = bars.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for row in &bars.rows {
        let share: f64 = row.parts.iter().map(|(_, share)| share).sum();
        let bar = bar(share, BAR);
        let _ = writeln!(out, "{:width$}  {bar:BAR$}  {}", plain(&row.name), row.text);
    }
    out.push('\n');
}

/// A bar of `room` characters for the share 1.
fn bar(share: f64, room: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * room as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(PIECES[eighths % 8 - 1]);
    }
    bar
}

/// Writes the rates of the slices and the times of each target, one line each.
fn write_lines(out: &mut String, run: &Run, level: Level) {
    let points: Vec<&Point> = (0..run.targets.len())
        .filter_map(|target| point(run, target, level))
        .collect();
    let width = run
        .targets
        .iter()
        .map(|target| target.name.chars().count())
        .max()
        .unwrap_or(0);
    if points.iter().any(|point| point.slices.len() > 1) {
        let rates = |point: &Point| {
            point
                .slices
                .iter()
                .map(|slice| slice.requests_per_second)
                .collect::<Vec<_>>()
        };
        let all: Vec<f64> = points.iter().flat_map(|point| rates(point)).collect();
        let _ = writeln!(out, "Requests a second, slice by slice");
        for point in &points {
            let line = spark(&rates(point), &all);
            let middle = number(charts::median(&rates(point)));
            let _ = writeln!(
                out,
                "{:width$}  {line}  median of the slices {middle}/s",
                plain(&run.targets[point.target].name)
            );
        }
        out.push('\n');
    }
    write_histograms(out, run, &points, width);
}

fn write_histograms(out: &mut String, run: &Run, points: &[&Point], width: usize) {
    let named = |point: &&Point| {
        Some((
            plain(&run.targets[point.target].name),
            TimeCounts::of(&point.total.latency.histogram)?,
        ))
    };
    let all: Vec<(String, TimeCounts)> = points.iter().filter_map(named).collect();
    let Some((low, high)) = histogram::range(all.iter().map(|(_, times)| times)) else {
        return;
    };
    let _ = writeln!(
        out,
        "How often each time occurred, {} to {} on a logarithmic scale",
        time(low),
        time(high)
    );
    for (name, times) in all {
        let shares = times.shares(low, high, HISTOGRAM);
        let most = shares.iter().copied().fold(0.0, f64::max);
        let line: String = shares
            .iter()
            .map(|share| if *share > 0.0 { step(*share, 0.0, most) } else { ' ' })
            .collect();
        let _ = writeln!(out, "{name:width$}  {}", line.trim_end());
    }
    out.push('\n');
}

/// A sparkline of values over the range of `all`.
fn spark(values: &[f64], all: &[f64]) -> String {
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().map(|value| step(*value, low, high)).collect()
}

fn step(value: f64, low: f64, high: f64) -> char {
    let share = if high > low { (value - low) / (high - low) } else { 0.5 };
    // The cast moves NaN to the lowest step.
    STEPS[((share * 7.0).round() as usize).min(7)]
}

/// Text without control characters.
fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if is_unseen(letter) && letter != '\n' {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53, 4), "██▏");
        assert_eq!(bar(7.0, 2), "██");
        assert_eq!(bar(f64::NAN, 2), "");
    }

    #[test]
    fn a_run_has_tables_and_lines_of_blocks() {
        let text = text(&Report::of_run(samples::pair()));
        for part in [
            "requests/s",
            "█",
            "slice by slice",
            "How often each time occurred",
            "no difference shown",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn a_name_cannot_act_on_the_terminal() {
        let mut run = samples::pair();
        run.targets[0].name = "a\u{1b}[31m".to_owned();
        assert!(!text(&Report::of_run(run)).contains('\u{1b}'));
    }

    #[test]
    fn equal_figures_stand_in_the_middle() {
        assert_eq!(spark(&[5.0, 5.0], &[5.0, 5.0]), "▅▅");
        assert_eq!(spark(&[0.0, 7.0, f64::NAN], &[0.0, 7.0]), "▁█▁");
    }
}
