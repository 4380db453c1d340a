//! Tables before they are HTML, Markdown or text: names, texts, and marks.

use crate::result::{Comparison, Metric, Point, Run, Target, Verdict, WarningKind};

use super::document::{Best, Cell, Judgement, Page, PagePart, ReportTable, Unit};
use super::figures::{bytes, count, number, percent, ratio, time};
use super::goal::first_to_other;
use super::quantity::{self, FAILED, MEDIAN, P99, QUANTITIES, Quantity, RATE, SERVER_CPU, TableColumn};

/// Most targets as columns of a table; more become lines.
const MOST_COLUMNS: usize = 4;
/// Values that differ by a smaller share count as equal.
const NEAR: f64 = 0.01;

/// Longest text in a script's table that still counts as a figure.
const LONGEST_FIGURE: usize = 24;

/// A table of texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Grid {
    pub(crate) title: String,
    /// Heading of the column with the names.
    pub(crate) corner: String,
    pub(crate) head: Vec<String>,
    pub(crate) lines: Vec<GridLine>,
    pub(crate) note: String,
    /// True if the columns are the targets of a run, in their order.
    pub(crate) targets_across: bool,
    /// True if the lines are the targets of a run, in their order.
    pub(crate) targets_down: bool,
    /// True if the last column is a text, which moves to a line of its own on a narrow screen.
    pub(crate) ends_in_words: bool,
}

/// A line of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GridLine {
    pub(crate) name: String,
    pub(crate) cells: Vec<GridCell>,
}

/// A cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GridCell {
    pub(crate) text: String,
    pub(crate) mark: Mark,
}

/// Emphasis of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    None,
    /// The best figure, by more than chance.
    Best,
    /// A failure.
    Bad,
    /// A doubtful figure: the generator was the limit.
    Doubtful,
    /// A text, not a figure.
    Words,
}

impl Grid {
    /// True if a column has texts. The names are not counted as a column.
    pub(crate) fn has_words(&self, column: usize) -> bool {
        let mut cells = self.lines.iter().filter_map(|line| line.cells.get(column));
        cells.any(|cell| cell.mark == Mark::Words)
    }
}

impl GridCell {
    fn plain(text: String) -> Self {
        Self { text, mark: Mark::None }
    }

    fn words(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            mark: Mark::Words,
        }
    }
}

/// One load of a run: connections, and in an open loop requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Level {
    pub(crate) connections: u32,
    pub(crate) rate: Option<f64>,
}

impl Level {
    pub(crate) fn of(point: &Point) -> Self {
        Self {
            connections: point.connections,
            rate: point.rate,
        }
    }

    /// `100 connections`, `5,000/s`
    pub(crate) fn words(self) -> String {
        match (self.rate, self.connections) {
            (Some(rate), _) => format!("{}/s", number(rate)),
            (None, 1) => "1 connection".to_owned(),
            (None, connections) => format!("{} connections", count(u64::from(connections))),
        }
    }
}

/// The loads of a run, in the order of the command line.
pub(crate) fn levels(run: &Run) -> Vec<Level> {
    let mut levels = Vec::new();
    for point in &run.points {
        let level = Level::of(point);
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    levels
}

/// The point of a target at a level.
pub(crate) fn point(run: &Run, target: usize, level: Level) -> Option<&Point> {
    run.points
        .iter()
        .find(|point| point.target == target && Level::of(point) == level)
}

/// The main tables: the columns that `show` names. Without any, all figures at one level, or the main ones over several.
pub(crate) fn summary(run: &Run, show: &[String]) -> Vec<Grid> {
    let mut grids = match (levels(run).as_slice(), run.targets.len()) {
        ([], _) => Vec::new(),
        (levels, _) if !show.is_empty() => vec![chosen(run, levels, show)],
        ([level], ..=MOST_COLUMNS) => vec![metrics_down(run, *level)],
        ([level], _) => vec![targets_down(run, *level, false)],
        (levels, 1) => vec![levels_of_one(run, levels)],
        (levels, _) => levels_of_several(run, levels),
    };
    if let (Some(last), Some(definition)) = (grids.last_mut(), quantity::definition(run)) {
        last.note = definition.to_owned();
    }
    grids
}

/// The minor quantities of a run with one level.
pub(crate) fn further(run: &Run) -> Option<Grid> {
    match levels(run).as_slice() {
        [level] => Some(targets_down(run, *level, true)).filter(|grid| !grid.head.is_empty()),
        _ => None,
    }
}

fn metrics_down(run: &Run, level: Level) -> Grid {
    let points: Vec<Option<&Point>> = (0..run.targets.len()).map(|target| point(run, target, level)).collect();
    let pair = run.targets.len() == 2;
    let mut head = names(&run.targets);
    if pair {
        head.push("second against first".to_owned());
    }
    let mut lines = Vec::new();
    for quantity in QUANTITIES.iter().filter(|quantity| !quantity.minor) {
        let Some(mut cells) = figures(run, quantity, &points, level) else {
            continue;
        };
        if pair {
            let words = comparison(run, quantity.metric, 0, 1, level).map_or("", |found| found.words.as_str());
            cells.push(GridCell::words(words));
        }
        lines.push(GridLine {
            name: quantity.name.to_owned(),
            cells,
        });
    }
    lines.extend(encodings(run, pair));
    Grid {
        corner: level.words(),
        head,
        lines,
        targets_across: true,
        ends_in_words: pair,
        ..Grid::default()
    }
}

/// Content coding of each target, if one of them used any.
fn encodings(run: &Run, pair: bool) -> Option<GridLine> {
    let of = |target: &Target| {
        target
            .answer
            .as_ref()
            .map_or("–".to_owned(), |answer| answer.encoding.clone())
    };
    let encodings: Vec<String> = run.targets.iter().map(of).collect();
    if encodings
        .iter()
        .all(|encoding| encoding == "identity" || encoding == "–")
    {
        return None;
    }
    let mut cells: Vec<GridCell> = encodings.into_iter().map(GridCell::plain).collect();
    if pair {
        cells.push(GridCell::words(""));
    }
    Some(GridLine {
        name: "encoding".to_owned(),
        cells,
    })
}

fn targets_down(run: &Run, level: Level, minor: bool) -> Grid {
    let points: Vec<Option<&Point>> = (0..run.targets.len()).map(|target| point(run, target, level)).collect();
    let mut lines: Vec<GridLine> = names(&run.targets).into_iter().map(named_line).collect();
    let mut head = Vec::new();
    for quantity in QUANTITIES.iter().filter(|quantity| quantity.minor == minor) {
        let Some(cells) = figures(run, quantity, &points, level) else {
            continue;
        };
        head.push(quantity.name.to_owned());
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.cells.push(cell);
        }
    }
    Grid {
        corner: level.words(),
        head,
        lines,
        targets_down: true,
        ..Grid::default()
    }
}

/// The columns that a plan chose: a line for each target, level after level.
fn chosen(run: &Run, levels: &[Level], show: &[String]) -> Grid {
    let columns: Vec<TableColumn> = show.iter().filter_map(|name| TableColumn::find(name)).collect();
    let mut lines = Vec::new();
    for level in levels {
        let points: Vec<Option<&Point>> = (0..run.targets.len())
            .map(|target| point(run, target, *level))
            .collect();
        let columns: Vec<Vec<GridCell>> = columns
            .iter()
            .map(|column| match column {
                TableColumn::Figure(quantity) => figures(run, quantity, &points, *level)
                    .unwrap_or_else(|| vec![GridCell::plain("–".to_owned()); points.len()]),
                TableColumn::Ratio(_, metric) => ratios(run, *metric, *level),
            })
            .collect();
        for (place, target) in run.targets.iter().enumerate() {
            let name = match levels.len() {
                1 => target.name.clone(),
                _ => format!("{}, {}", target.name, level.words()),
            };
            let cells = columns.iter().map(|cells| cells[place].clone()).collect();
            lines.push(GridLine { name, cells });
        }
    }
    let first = run.targets.first().map_or("", |target| target.name.as_str());
    let heading = |column: &TableColumn| match column {
        TableColumn::Figure(quantity) => quantity.name.to_owned(),
        TableColumn::Ratio(quantity, _) => format!("{}, {first} : it", quantity.name),
    };
    Grid {
        corner: match levels {
            [level] => level.words(),
            _ => String::new(),
        },
        head: columns.iter().map(heading).collect(),
        lines,
        targets_down: levels.len() == 1,
        ..Grid::default()
    }
}

/// The first target's figure divided by that of each other.
fn ratios(run: &Run, metric: Metric, level: Level) -> Vec<GridCell> {
    let of = |place: usize| first_to_other(run, metric, place, level);
    let words = |found: Option<f64>| GridCell::plain(found.map_or("–".to_owned(), number));
    (0..run.targets.len()).map(|place| words(of(place))).collect()
}

/// The goals of a page, each with the title of its part.
pub(crate) fn of_goals(page: &Page) -> Option<Grid> {
    let of_part = |part: &'_ PagePart| -> Vec<GridLine> {
        let line = |one: &Judgement| GridLine {
            name: part.title.clone(),
            cells: vec![
                GridCell::words(&one.goal),
                GridCell::plain(one.measured.clone()),
                GridCell {
                    text: if one.is_reached { "reached" } else { "MISSED" }.to_owned(),
                    mark: if one.is_reached { Mark::None } else { Mark::Bad },
                },
            ],
        };
        part.goals().iter().map(line).collect()
    };
    let lines: Vec<GridLine> = page.parts.iter().flat_map(of_part).collect();
    (!lines.is_empty()).then(|| Grid {
        title: "Goals".to_owned(),
        head: ["goal", "measured", "outcome"].map(str::to_owned).to_vec(),
        lines,
        ..Grid::default()
    })
}

fn levels_of_one(run: &Run, levels: &[Level]) -> Grid {
    let mut lines: Vec<GridLine> = levels.iter().map(|level| named_line(level.words())).collect();
    let points: Vec<Option<&Point>> = levels.iter().map(|level| point(run, 0, *level)).collect();
    let mut head = Vec::new();
    for quantity in QUANTITIES.iter().filter(|quantity| !quantity.minor) {
        if !quantity.is_known(&points) {
            continue;
        }
        head.push(quantity.name.to_owned());
        for (line, point) in lines.iter_mut().zip(&points) {
            line.cells.push(shown(quantity, *point, false));
        }
    }
    Grid {
        corner: run.targets[0].name.clone(),
        head,
        lines,
        ..Grid::default()
    }
}

/// The table of a sweep: a line for each level, a column for each target, one table for each quantity.
fn levels_of_several(run: &Run, levels: &[Level]) -> Vec<Grid> {
    let quantities = [&RATE, &MEDIAN, &P99, &SERVER_CPU, &FAILED];
    let grids = quantities.into_iter().filter_map(|quantity| {
        let mut any = false;
        let lines = levels.iter().map(|level| {
            let points: Vec<_> = (0..run.targets.len())
                .map(|target| point(run, target, *level))
                .collect();
            let cells = figures(run, quantity, &points, *level);
            any |= cells.is_some();
            GridLine {
                name: level.words(),
                cells: cells.unwrap_or_else(|| vec![GridCell::plain("–".to_owned()); run.targets.len()]),
            }
        });
        let lines: Vec<GridLine> = lines.collect();
        any.then(|| Grid {
            title: quantity.name.to_owned(),
            head: names(&run.targets),
            lines,
            targets_across: true,
            ..Grid::default()
        })
    });
    grids.collect()
}

/// A cell for each target; `None` if no target has the figure.
fn figures(run: &Run, quantity: &Quantity, points: &[Option<&Point>], level: Level) -> Option<Vec<GridCell>> {
    if !quantity.is_known(points) {
        return None;
    }
    let values: Vec<Option<f64>> = points.iter().map(|point| point.and_then(quantity.of)).collect();
    let best = best(&values, quantity.best).filter(|&best| {
        // A mark must not contradict the verdict of the comparison.
        let doubted = |other: usize| {
            let found = comparison(run, quantity.metric, best, other, level);
            found.is_some_and(|found| !matches!(found.verdict, Verdict::Better | Verdict::Worse))
        };
        !(0..values.len()).any(|other| other != best && doubted(other))
    });
    let limited = |target: usize| {
        let mut warnings = run.warnings.iter();
        quantity.metric == Some(Metric::RequestsPerSecond)
            && warnings.any(|warning| warning.kind == WarningKind::GeneratorLimited && warning.target == Some(target))
    };
    let cells = points.iter().enumerate().map(|(target, point)| {
        let mut cell = shown(quantity, *point, best == Some(target));
        if limited(target) {
            cell.mark = Mark::Doubtful;
        }
        cell
    });
    Some(cells.collect())
}

fn shown(quantity: &Quantity, point: Option<&Point>, is_best: bool) -> GridCell {
    let failed = quantity.name == FAILED.name && point.and_then(quantity.of).is_some_and(|count| count > 0.0);
    GridCell {
        text: quantity.text(point),
        mark: match (failed, is_best) {
            (true, _) => Mark::Bad,
            (false, true) => Mark::Best,
            (false, false) => Mark::None,
        },
    }
}

/// Index of the best value, if it is ahead of all others.
fn best(values: &[Option<f64>], best: Best) -> Option<usize> {
    let goodness = |value: f64| match best {
        Best::Most => Some(value),
        Best::Least => Some(-value),
        Best::None => None,
    };
    let mut known: Vec<(usize, f64, f64)> = Vec::new();
    for (place, value) in values.iter().enumerate() {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            known.push((place, goodness(value)?, value));
        }
    }
    known.sort_by(|one, other| other.1.total_cmp(&one.1));
    let [(place, _, first), (_, _, second), ..] = known.as_slice() else {
        return None;
    };
    let scale = first.abs().max(second.abs());
    ((first - second).abs() > NEAR * scale).then_some(*place)
}

fn comparison(run: &Run, metric: Option<Metric>, one: usize, other: usize, level: Level) -> Option<&Comparison> {
    let metric = metric?;
    run.comparisons.iter().find(|found| {
        let same = (found.connections, found.rate) == (level.connections, level.rate);
        let between = (found.base, found.other) == (one, other) || (found.base, found.other) == (other, one);
        found.metric == metric && same && between
    })
}

/// Every percentile of every target, and with two targets the ratio.
pub(crate) fn percentiles(run: &Run, level: Level) -> Option<Grid> {
    let points: Vec<&Point> = (0..run.targets.len())
        .filter_map(|target| point(run, target, level))
        .collect();
    let pair = points.len() == 2;
    let mut head: Vec<String> = points
        .iter()
        .map(|point| run.targets[point.target].name.clone())
        .collect();
    if pair {
        head.push("ratio".to_owned());
    }
    let first = points.first()?;
    let mut lines = Vec::new();
    for (percent, _) in &first.total.latency.percentiles {
        let values: Vec<Option<f64>> = points
            .iter()
            .map(|point| quantity::percentile(&point.total.latency, *percent))
            .collect();
        let mut cells: Vec<GridCell> = values
            .iter()
            .map(|value| GridCell::plain(value.map_or("–".to_owned(), time)))
            .collect();
        if let (true, [Some(base), Some(other)]) = (pair, values.as_slice()) {
            cells.push(GridCell::plain(if *base > 0.0 {
                ratio(other / base)
            } else {
                "–".to_owned()
            }));
        }
        let name = if *percent < 100.0 {
            format!("{percent} %")
        } else {
            "longest".to_owned()
        };
        lines.push(GridLine { name, cells });
    }
    (!lines.is_empty()).then(|| Grid {
        corner: "within".to_owned(),
        head,
        lines,
        targets_across: true,
        ..Grid::default()
    })
}

/// Rates of each slice.
pub(crate) fn slices(run: &Run, level: Level) -> Grid {
    let points: Vec<&Point> = (0..run.targets.len())
        .filter_map(|target| point(run, target, level))
        .collect();
    let rounds = points.iter().map(|point| point.slices.len()).max().unwrap_or(0);
    let line = |round: usize| GridLine {
        name: format!("{}", round + 1),
        cells: points
            .iter()
            .map(|point| point.slices.get(round))
            .map(|slice| GridCell::plain(slice.map_or("–".to_owned(), |slice| number(slice.requests_per_second))))
            .collect(),
    };
    Grid {
        corner: "slice".to_owned(),
        head: points
            .iter()
            .map(|point| run.targets[point.target].name.clone())
            .collect(),
        lines: (0..rounds).map(line).collect(),
        note: "requests a second".to_owned(),
        targets_across: true,
        ..Grid::default()
    }
}

/// Failures by class, for targets that had any.
pub(crate) fn failures(run: &Run) -> Option<Grid> {
    let failed: Vec<&Point> = run
        .points
        .iter()
        .filter(|point| point.total.failures.all() > 0)
        .collect();
    let first = failed.first()?;
    let classes = first.total.failures.by_class().map(|(name, _)| name);
    let occurs = |class: &usize| failed.iter().any(|point| point.total.failures.by_class()[*class].1 > 0);
    let classes: Vec<(usize, &str)> = classes
        .into_iter()
        .enumerate()
        .filter(|(class, _)| occurs(class))
        .collect();
    let several = levels(run).len() > 1;
    let lines = failed.iter().map(|point| {
        let name = &run.targets[point.target].name;
        GridLine {
            name: match several {
                true => format!("{name}, {}", Level::of(point).words()),
                false => name.clone(),
            },
            cells: classes
                .iter()
                .map(|(class, _)| point.total.failures.by_class()[*class].1)
                .map(|failed| GridCell {
                    text: count(failed),
                    mark: if failed > 0 { Mark::Bad } else { Mark::None },
                })
                .collect(),
        }
    });
    Some(Grid {
        head: classes.iter().map(|(_, name)| (*name).to_owned()).collect(),
        lines: lines.collect(),
        ..Grid::default()
    })
}

/// Answers of the targets before the run.
pub(crate) fn answers(run: &Run) -> Grid {
    let lines = run.targets.iter().map(|target| {
        let cells = match &target.answer {
            None => vec![GridCell::words("no answer")],
            Some(answer) => {
                let length = match answer.decoded_bytes == answer.body_bytes {
                    true => count(answer.body_bytes),
                    false => format!("{} ({} decoded)", count(answer.body_bytes), count(answer.decoded_bytes)),
                };
                let hash: String = answer.sha256.chars().take(8).collect();
                let texts = [
                    answer.status.to_string(),
                    length,
                    answer.encoding.clone(),
                    format!("{hash}…"),
                ];
                texts.into_iter().map(GridCell::plain).collect()
            }
        };
        GridLine {
            name: target.name.clone(),
            cells,
        }
    });
    Grid {
        corner: "before the run".to_owned(),
        head: ["status", "bytes", "encoding", "SHA-256"].map(str::to_owned).to_vec(),
        lines: lines.collect(),
        targets_down: true,
        ..Grid::default()
    }
}

/// A table of a script.
pub(crate) fn of_script(table: &ReportTable) -> Grid {
    let best_of = |column: usize| {
        let values: Vec<Option<f64>> = table
            .rows
            .iter()
            .map(|row| match row.cells.get(column) {
                Some(Cell::Number(value)) => Some(*value),
                _ => None,
            })
            .collect();
        table.columns.get(column).and_then(|head| best(&values, head.best))
    };
    let marked: Vec<Option<usize>> = (0..table.columns.len()).map(best_of).collect();
    let worded: Vec<bool> = (0..table.columns.len())
        .map(|column| is_worded(table, column))
        .collect();
    let cell = |row: usize, column: usize| match table.rows[row].cells.get(column) {
        Some(Cell::Number(value)) => GridCell {
            text: of_unit(*value, table.columns[column].unit),
            mark: if marked[column] == Some(row) {
                Mark::Best
            } else {
                Mark::None
            },
        },
        Some(Cell::Text(text)) => GridCell {
            text: text.clone(),
            mark: if is_alarm(text) {
                Mark::Bad
            } else if worded[column] {
                Mark::Words
            } else {
                Mark::None
            },
        },
        Some(Cell::Nothing) | None => GridCell::plain("–".to_owned()),
    };
    let line = |row: usize| GridLine {
        name: table.rows[row].name.clone(),
        cells: (0..table.columns.len()).map(|column| cell(row, column)).collect(),
    };
    Grid {
        title: table.title.clone(),
        head: table.columns.iter().map(|column| column.name.clone()).collect(),
        lines: (0..table.rows.len()).map(line).collect(),
        note: table.note.clone(),
        ..Grid::default()
    }
}

/// True if a column holds texts, which are aligned to the left, and no figures.
fn is_worded(table: &ReportTable, column: usize) -> bool {
    let cells = || table.rows.iter().filter_map(|row| row.cells.get(column));
    let longest = cells().map(|cell| match cell {
        Cell::Text(text) => text.chars().count(),
        Cell::Number(_) | Cell::Nothing => 0,
    });
    longest.max().unwrap_or(0) > LONGEST_FIGURE && !cells().any(|cell| matches!(cell, Cell::Number(_)))
}

/// True for a text in capitals, which reports a failure, but not for an abbreviation.
fn is_alarm(text: &str) -> bool {
    text.chars().filter(|letter| letter.is_alphabetic()).count() > 4 && !text.contains(char::is_lowercase)
}

/// A number of a script in the unit of its column.
fn of_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Number => number(value),
        Unit::Time => time(value),
        Unit::Bytes => bytes(value),
        Unit::Share => percent(value),
    }
}

fn names(targets: &[Target]) -> Vec<String> {
    targets.iter().map(|target| target.name.clone()).collect()
}

fn named_line(name: String) -> GridLine {
    GridLine {
        name,
        cells: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::{ReportColumn, Row};
    use super::*;

    fn of_cells(cells: &[Cell]) -> Grid {
        let column = |name: &str| ReportColumn {
            name: name.to_owned(),
            ..ReportColumn::default()
        };
        of_script(&ReportTable {
            columns: vec![column("a"), column("b")],
            rows: cells
                .chunks(2)
                .map(|cells| Row {
                    name: "x".to_owned(),
                    cells: cells.to_vec(),
                })
                .collect(),
            ..ReportTable::default()
        })
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[test]
    fn words_are_told_from_figures_by_their_length() {
        let long = text("314 µs, lighttpd with X-Sendfile");
        let grid = of_cells(&[long.clone(), text("1.2 ×"), text("5 µs"), text("–")]);
        assert_eq!((grid.has_words(0), grid.has_words(1)), (true, false));
        let with_a_figure = of_cells(&[long, Cell::Nothing, Cell::Number(3.0), Cell::Nothing]);
        assert!(!with_a_figure.has_words(0), "figures stand at the right");
    }

    #[test]
    fn capitals_are_marked_unless_they_abbreviate() {
        let grid = of_cells(&[text("WRONG FILE"), text("JPEG"), text("MISSED"), text("right")]);
        let marks = grid.lines.iter().flat_map(|line| &line.cells).map(|cell| cell.mark);
        assert_eq!(
            marks.collect::<Vec<_>>(),
            [Mark::Bad, Mark::None, Mark::Bad, Mark::None]
        );
    }
}
