//! The image engine: queries, rendering, and the sandboxed processes that render.
//!
//! A query becomes a [`Transform`] ([`zimg::parse`], [`native::parse`]). Its [`Transform::key`] identifies the variant,
//! so the ETag is known before any work. [`Workers::render`] renders a variant in a separate process, where untrusted
//! bytes can do no more harm than a failed request. This crate knows no HTTP, stores or caches.

mod codec;
mod colour;
mod copyright;
mod error;
mod exif;
mod format;
mod geometry;
mod limits;
mod options;
mod orientation;
mod original;
mod pipeline;
mod raster;
mod step;
pub mod worker;

pub use error::{Excess, ImageError, OptionError};
pub use format::Format;
pub use limits::{AVIF_PIXELS_A_SECOND, Limits};
pub use options::{
    Background, Defaults, Flip, FormatChoice, Gravity, Hinted, Hints, Mode, Pad, Quality, Region, Request, Size,
    Transform, Unit, accept, native, zimg,
};
pub use orientation::Orientation;
pub use original::Original;
pub use pipeline::{Rendered, probe, render};
pub use worker::{OriginalSource, Workers, WorkersSettings, WorkersStatus};
