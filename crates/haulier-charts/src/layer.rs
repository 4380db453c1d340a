//! Layers of a chart: lines, areas, bars, dots and marks, each in a colour of the style sheet.

use std::fmt::Write;

use super::axis::Axis;
use super::path::{self, FINE, Point, WIDTH};
use haulier_proto::text::Escaped;

/// A colour by its part. The first eight can be told apart without seeing colours well; [`Dash`] helps where they
/// meet in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    One,
    Two,
    Three,
    Four,
    Five,
    Six,
    Seven,
    /// Failure, and nothing else.
    Bad,
    /// Background: limits, other runs.
    Muted,
}

impl Ink {
    /// The colours of things in a row, [`Ink::Bad`] and [`Ink::Muted`] not among them.
    pub const ROW: [Self; 7] = [
        Self::One,
        Self::Two,
        Self::Three,
        Self::Four,
        Self::Five,
        Self::Six,
        Self::Seven,
    ];

    /// Its class in [`STYLE`](crate::STYLE).
    pub fn class(self) -> &'static str {
        match self {
            Self::One => "k1",
            Self::Two => "k2",
            Self::Three => "k3",
            Self::Four => "k4",
            Self::Five => "k5",
            Self::Six => "k6",
            Self::Seven => "k7",
            Self::Bad => "kb",
            Self::Muted => "km",
        }
    }
}

/// Dashes of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dash {
    #[default]
    None,
    Long,
    Short,
}

impl Dash {
    fn class(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Long => " dl",
            Self::Short => " ds",
        }
    }
}

/// One thing in a chart. Values without a place on an axis (NaN, infinities) interrupt lines and leave out the rest.
#[derive(Debug, Clone)]
pub struct Layer {
    shape: LayerShape,
    ink: Ink,
    dash: Dash,
    /// Tooltip.
    tip: Option<String>,
}

#[derive(Debug, Clone)]
enum LayerShape {
    Line(Vec<(f64, f64)>),
    Steps(Vec<(f64, f64)>),
    Area(Vec<(f64, f64)>),
    Band(Vec<(f64, f64, f64)>),
    Bars(Vec<(f64, f64, f64)>),
    Dots(Vec<(f64, f64)>),
    Marks(Vec<(f64, String)>),
    Rule(f64),
}

impl Layer {
    fn new(ink: Ink, shape: LayerShape) -> Self {
        Self {
            shape,
            ink,
            dash: Dash::None,
            tip: None,
        }
    }

    /// A line through `(x, y)`.
    pub fn line(ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Line(points))
    }

    /// Stairs: each y holds until the next x.
    pub fn steps(ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Steps(points))
    }

    /// The area below the line through `(x, y)`.
    pub fn area(ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Area(points))
    }

    /// The area between two lines: `(x, low, high)`.
    pub fn band(ink: Ink, points: Vec<(f64, f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Band(points))
    }

    /// Bars from one x to another: `(from, to, y)`.
    pub fn bars(ink: Ink, bars: Vec<(f64, f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Bars(bars))
    }

    /// A dot at each `(x, y)`.
    pub fn dots(ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self::new(ink, LayerShape::Dots(points))
    }

    /// Vertical lines over the whole height, for events: `(x, name)`.
    pub fn marks(ink: Ink, marks: Vec<(f64, String)>) -> Self {
        Self::new(ink, LayerShape::Marks(marks))
    }

    /// A horizontal line over the whole width, for a limit.
    pub fn rule(ink: Ink, y: f64) -> Self {
        Self::new(ink, LayerShape::Rule(y))
    }

    /// With a broken line.
    pub fn dashed(mut self, dash: Dash) -> Self {
        self.dash = dash;
        self
    }

    /// With a tooltip.
    pub fn tip(mut self, tip: impl Into<String>) -> Self {
        self.tip = Some(tip.into());
        self
    }

    /// True if it shows data, unlike rules and marks.
    pub(super) fn has_data(&self, x: &Axis, y: &Axis) -> bool {
        let has = |points: &[(f64, f64)]| {
            points
                .iter()
                .any(|point| x.place(point.0).and(y.place(point.1)).is_some())
        };
        let has3 = |points: &[(f64, f64, f64)]| points.iter().any(|point| y.place(point.2).is_some());
        match &self.shape {
            LayerShape::Line(points)
            | LayerShape::Steps(points)
            | LayerShape::Area(points)
            | LayerShape::Dots(points) => has(points),
            LayerShape::Band(points) | LayerShape::Bars(points) => has3(points),
            LayerShape::Marks(_) | LayerShape::Rule(_) => false,
        }
    }

    /// Writes shapes that are stretched with the plot, in path units; `height` in pixels.
    pub(super) fn write_stretched(&self, out: &mut String, x: &Axis, y: &Axis, height: u32) {
        let grid = Grid { x, y, height };
        let (kind, data) = match &self.shape {
            LayerShape::Line(points) => ("line", path::line(grid.points(points))),
            LayerShape::Steps(points) => ("line", path::steps(grid.points(points))),
            LayerShape::Area(points) => {
                let low = y.low();
                ("area", path::band(points.iter().map(|&(x, y)| grid.span((x, low, y)))))
            }
            LayerShape::Band(points) => ("band", path::band(points.iter().map(|&span| grid.span(span)))),
            LayerShape::Bars(bars) => {
                let bars = bars
                    .iter()
                    .filter_map(|&(from, to, y)| Some((grid.x(from)?, grid.x(to)?, grid.y(y)?)));
                ("area", path::boxes(bars, grid.floor()))
            }
            LayerShape::Dots(_) | LayerShape::Marks(_) | LayerShape::Rule(_) => return,
        };
        if !data.is_empty() {
            let (ink, dash) = (self.ink.class(), self.dash.class());
            let _ = write!(out, "<path class=\"{kind} {ink}{dash}\" d=\"{data}\"");
            self.close(out, "path");
        }
    }

    /// Writes shapes that do not depend on the width of the plot; positions along x are percentages.
    pub(super) fn write_fixed(&self, out: &mut String, x: &Axis, y: &Axis, height: u32) {
        let ink = self.ink.class();
        let across = |value: f64| x.place(value).map(percent);
        let down = |value: f64| y.place(value).map(|place| pixels(place, height));
        match &self.shape {
            LayerShape::Dots(points) => {
                for (x, y) in points.iter().filter_map(|&(x, y)| Some((across(x)?, down(y)?))) {
                    let _ = write!(out, "<circle class=\"dot {ink}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"");
                    self.close(out, "circle");
                }
            }
            LayerShape::Marks(marks) => {
                for (x, what) in marks.iter().filter_map(|(x, what)| Some((across(*x)?, what))) {
                    let _ = write!(
                        out,
                        "<line class=\"mark {ink}\" x1=\"{x}\" x2=\"{x}\" y2=\"{height}\"><title>{}</title></line>",
                        Escaped(what)
                    );
                }
            }
            LayerShape::Rule(value) => {
                if let Some(y) = down(*value) {
                    let dash = self.dash.class();
                    let _ = write!(
                        out,
                        "<line class=\"rule {ink}{dash}\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\""
                    );
                    self.close(out, "line");
                }
            }
            _ => {}
        }
    }

    /// Ends an open tag, with the tip inside if there is one.
    fn close(&self, out: &mut String, tag: &str) {
        let _ = match &self.tip {
            Some(tip) => write!(out, "><title>{}</title></{tag}>", Escaped(tip)),
            None => write!(out, "/>"),
        };
    }
}

/// Path units of values.
#[derive(Clone, Copy)]
struct Grid<'a> {
    x: &'a Axis,
    y: &'a Axis,
    height: u32,
}

impl Grid<'_> {
    fn x(self, value: f64) -> Option<i64> {
        self.x.place(value).map(|place| (place * WIDTH as f64).round() as i64)
    }

    fn y(self, value: f64) -> Option<i64> {
        let floor = self.floor() as f64;
        self.y.place(value).map(|place| (floor - place * floor).round() as i64)
    }

    fn floor(self) -> i64 {
        i64::from(self.height * FINE)
    }

    fn points(self, points: &[(f64, f64)]) -> impl Iterator<Item = Option<Point>> {
        points.iter().map(move |&(x, y)| Some((self.x(x)?, self.y(y)?)))
    }

    /// `(x, low, high)` as [`path::band`] wants it.
    fn span(self, (x, low, high): (f64, f64, f64)) -> Option<(i64, i64, i64)> {
        Some((self.x(x)?, self.y(high)?, self.y(low)?))
    }
}

/// A share as a percentage with at most two decimals.
pub(super) fn percent(place: f64) -> String {
    format!("{}%", (place * 10_000.0).round() / 100.0)
}

/// A place on the y axis in pixels from the top, with at most one decimal.
pub(super) fn pixels(place: f64, height: u32) -> f64 {
    let height = f64::from(height);
    ((height - place * height) * 10.0).round() / 10.0
}

/// The tops of stacked series, to be drawn from the last to the first. All have the same x; NaN and infinities count
/// as 0.
pub fn stacked(series: &[Vec<(f64, f64)>]) -> Vec<Vec<(f64, f64)>> {
    let mut tops: Vec<Vec<(f64, f64)>> = Vec::with_capacity(series.len());
    for points in series {
        let top = points.iter().enumerate().map(|(number, &(x, y))| {
            let below = tops.last().and_then(|below| below.get(number)).map_or(0.0, |&(_, y)| y);
            (x, below + if y.is_finite() { y } else { 0.0 })
        });
        let top = top.collect();
        tops.push(top);
    }
    tops
}

/// A sample of a layer for the legend beside a chart: a box, or a line with its dashes.
pub fn swatch(ink: Ink, dash: Option<Dash>) -> String {
    let ink = ink.class();
    let inside = match dash {
        None => format!("<rect class=\"area {ink}\" y=\"1\" width=\"12\" height=\"10\" rx=\"2\"/>"),
        Some(dash) => format!("<path class=\"line {ink}{}\" d=\"M0 6h18\"/>", dash.class()),
    };
    let width = if dash.is_some() { 18 } else { 12 };
    format!("<svg class=\"swatch\" width=\"{width}\" height=\"12\" aria-hidden=\"true\">{inside}</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_stand_on_one_another_and_gaps_count_as_nothing() {
        let series = [
            vec![(0.0, 1.0), (1.0, 2.0)],
            vec![(0.0, f64::NAN), (1.0, 3.0)],
            vec![(0.0, 4.0), (1.0, 0.5)],
        ];
        let tops = stacked(&series);
        assert_eq!(tops[1], [(0.0, 1.0), (1.0, 5.0)]);
        assert_eq!(tops[2], [(0.0, 5.0), (1.0, 5.5)]);
        assert!(stacked(&[]).is_empty());
    }

    #[test]
    fn a_swatch_looks_like_its_layer() {
        assert!(swatch(Ink::Bad, None).contains("class=\"area kb\""));
        assert!(swatch(Ink::Two, Some(Dash::Short)).contains("class=\"line k2 ds\""));
    }

    #[test]
    fn every_ink_and_dash_has_its_rule_in_the_style_sheet() {
        for ink in Ink::ROW.into_iter().chain([Ink::Bad, Ink::Muted]) {
            assert!(crate::STYLE.contains(&format!(".{}{{", ink.class())), "{ink:?}");
        }
        for dash in [Dash::Long, Dash::Short] {
            assert!(
                crate::STYLE.contains(&format!(".{}{{", dash.class().trim())),
                "{dash:?}"
            );
        }
    }
}
