//! Charts as SVG, drawn by pure functions: the dashboard and the bench report share them.
//!
//! A [`Chart`] is two axes and layers of shapes. What it draws stretches to the width it gets while its text keeps its
//! size, so one drawing fits a desk, a phone and paper; colours are classes that [`STYLE`] gives values for light, dark
//! and print. README.md says why haulier has its own.

mod axis;
mod chart;
mod layer;
mod path;

pub use axis::Axis;
pub use chart::Chart;
pub use layer::{Dash, Ink, Layer, stacked, swatch};

/// The style sheet of a page with charts. It has no braces or quotes that HTML would need escaped.
pub const STYLE: &str = include_str!("style.css");

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
