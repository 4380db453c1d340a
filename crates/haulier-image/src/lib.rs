//! Images: what is asked for, how it is made, and the sandboxed processes that make it.
//!
//! A query becomes a [`Transform`] ([`zimg::parse`], [`native::parse`]); its [`Transform::key`] says what makes two variants
//! the same, so an answer's ETag is known before any work. [`Workers::render`] has the variant made in a process of its
//! own, where foreign bytes can do no more harm than fail. Nothing in this crate knows HTTP, stores or caches.

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
