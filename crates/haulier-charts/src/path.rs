//! Path data: points become short relative commands.
//!
//! Coordinates are whole numbers in a space of [`WIDTH`] by four for each pixel of height, finer than any screen. Whole
//! numbers and relative commands keep a series of hundreds of points at about a kilobyte.

use std::fmt::Write;

/// Units from the left to the right end of a plot.
pub(super) const WIDTH: i64 = 4000;
/// Units to a pixel of height.
pub(super) const FINE: u32 = 4;

/// A point in path units, y downwards.
pub(super) type Point = (i64, i64);

/// A line through points; a `None` interrupts it. A single point becomes a dot (with round line ends).
pub(super) fn line(points: impl IntoIterator<Item = Option<Point>>) -> String {
    let mut data = String::new();
    for run in runs(points) {
        begin(&mut data, run[0]);
        through(&mut data, &run);
        if run.len() == 1 {
            data.push_str("h0");
        }
    }
    data
}

/// The same as stairs: each value holds until the next.
pub(super) fn steps(points: impl IntoIterator<Item = Option<Point>>) -> String {
    let mut data = String::new();
    for run in runs(points) {
        begin(&mut data, run[0]);
        for pair in run.windows(2) {
            let _ = write!(data, "h{}v{}", pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        }
        if run.len() == 1 {
            data.push_str("h0");
        }
    }
    data
}

/// The area between two lines over the same places, as `(x, high, low)`; a `None` interrupts it.
pub(super) fn band(points: impl IntoIterator<Item = Option<(i64, i64, i64)>>) -> String {
    let mut data = String::new();
    for mut run in runs(points) {
        if let [(x, high, low)] = run[..] {
            // A single point has no extent: a sliver shows it.
            run = vec![((x - SLIVER).max(0), high, low), ((x + SLIVER).min(WIDTH), high, low)];
        }
        let there: Vec<Point> = run.iter().map(|&(x, high, _)| (x, high)).collect();
        let back: Vec<Point> = run.iter().rev().map(|&(x, _, low)| (x, low)).collect();
        begin(&mut data, there[0]);
        through(&mut data, &there);
        let (from, to) = (there[there.len() - 1], back[0]);
        let _ = write!(data, "l{} {}", to.0 - from.0, to.1 - from.1);
        through(&mut data, &back);
        data.push('z');
    }
    data
}

/// Half the width of a single point.
const SLIVER: i64 = 6;

/// Boxes from `x0` to `x1`, as high as `top` and down to `base`.
pub(super) fn boxes(bars: impl IntoIterator<Item = (i64, i64, i64)>, base: i64) -> String {
    let mut data = String::new();
    for (x0, x1, top) in bars {
        let _ = write!(data, "M{x0} {base}V{top}H{x1}V{base}z");
    }
    data
}

fn begin(data: &mut String, (x, y): Point) {
    let _ = write!(data, "M{x} {y}");
}

/// From the first point, where the pen is, to the last. Points on a level line between two others are left out.
fn through(data: &mut String, points: &[Point]) {
    let mut at = points[0];
    let mut command = ' ';
    for (number, &point) in points.iter().enumerate().skip(1) {
        let level = point.1 == at.1 && points.get(number + 1).is_some_and(|next| next.1 == at.1);
        if level {
            continue;
        }
        let (dx, dy) = (point.0 - at.0, point.1 - at.1);
        let next = if dy == 0 { 'h' } else { 'l' };
        if next != command {
            data.push(next);
            command = next;
        } else if dx >= 0 {
            data.push(' '); // a minus sign separates by itself
        }
        let _ = match (next, dy < 0) {
            ('h', _) => write!(data, "{dx}"),
            (_, true) => write!(data, "{dx}{dy}"),
            (_, false) => write!(data, "{dx} {dy}"),
        };
        at = point;
    }
}

/// The pieces between interruptions; none of them is empty.
fn runs<T>(points: impl IntoIterator<Item = Option<T>>) -> Vec<Vec<T>> {
    let mut runs = vec![Vec::new()];
    for point in points {
        match point {
            Some(point) => runs.last_mut().expect("there is always one").push(point),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_relative_and_leaves_level_stretches_out() {
        let points = [(0, 50), (10, 50), (20, 50), (30, 50), (40, 20), (50, 60), (60, 70)];
        assert_eq!(line(points.map(Some)), "M0 50h30l10-30 10 40 10 10");
        assert_eq!(line([Some((0, 1)), Some((5, 1)), Some((3, 9))]), "M0 1h5l-2 8");
    }

    #[test]
    fn a_gap_interrupts_and_a_lone_point_stays_visible() {
        let points = [None, Some((0, 5)), Some((1, 6)), None, None, Some((3, 3)), None];
        assert_eq!(line(points), "M0 5l1 1M3 3h0");
        assert_eq!(steps(points), "M0 5h1v1M3 3h0");
        assert_eq!(line([]), "");
    }

    #[test]
    fn a_band_goes_there_above_and_back_below() {
        let points = [Some((0, 10, 90)), Some((100, 20, 90)), Some((200, 30, 90))];
        assert_eq!(band(points), "M0 10l100 10 100 10l0 60h-200z");
        assert_eq!(band([Some((500, 10, 90))]), "M494 10h12l0 80h-12z");
        assert_eq!(band([None]), "");
    }

    #[test]
    fn boxes_stand_on_their_base() {
        assert_eq!(
            boxes([(0, 10, 40), (10, 20, 90)], 90),
            "M0 90V40H10V90zM10 90V90H20V90z"
        );
    }
}
