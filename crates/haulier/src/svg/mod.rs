//! Charts as SVG, drawn by pure functions: the dashboard and the bench report share them.
//!
//! A [`Chart`] is two axes and layers of shapes. What it draws stretches to the width it gets while its text keeps its
//! size, so one drawing fits a desk, a phone and paper; colours are classes that [`STYLE`] gives values for light, dark
//! and print. Why our own: see "Charts" in ARCHITECTURE.md.

mod axis;
mod chart;
mod layer;
mod path;

pub(crate) use axis::Axis;
pub(crate) use chart::Chart;
pub(crate) use layer::{Dash, Ink, Layer, stacked, swatch};

/// The style sheet of a page with charts. It has no braces or quotes that HTML would need escaped.
pub(crate) const STYLE: &str = include_str!("style.css");
