//! From the bytes of an original to the bytes of a variant: read, the steps, write.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::codec::{self, Picture, Pictures, ReadOptions};
use crate::colour::Profile;
use crate::copyright::Copyright;
use crate::error::ImageError;
use crate::format::Format;
use crate::geometry::{Area, Fitting};
use crate::limits::Limits;
use crate::options::{FormatChoice, Transform};
use crate::original::Original;
use crate::step;
use crate::step::frame::{Frame, ScalePlan};

/// A decoder leaves the picture at least this many times larger than the answer: it averages blocks, and a filter on
/// too few of them makes the picture soft.
const SPARE: f64 = 2.0;
/// Up to this quality a progressive picture is read at an eighth wherever that is enough: its means are a tenth of the
/// file, and all the rest need not be decoded.
const COARSE: u8 = 80;
/// The smallest a decoder makes a picture.
const EIGHTH: f64 = 8.0;

/// A variant.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The file.
    pub bytes: Bytes,
    /// Its format.
    pub format: Format,
    /// Width, pixels.
    pub width: u32,
    /// Height, pixels.
    pub height: u32,
    /// Pictures in it; 1 for a still.
    pub frames: u32,
    /// Times of the parts.
    pub times: RenderTimes,
}

/// Times of the parts of the work, without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderTimes {
    /// Reading the original.
    pub read: Duration,
    /// The steps: scaling and all others.
    pub steps: Duration,
    /// Writing the variant.
    pub write: Duration,
}

impl RenderTimes {
    pub(crate) fn micros(&self) -> [u64; 3] {
        [self.read, self.steps, self.write].map(|time| time.as_micros() as u64)
    }

    pub(crate) fn of_micros([read, steps, write]: [u64; 3]) -> Self {
        Self {
            read: Duration::from_micros(read),
            steps: Duration::from_micros(steps),
            write: Duration::from_micros(write),
        }
    }
}

/// Says what an image is, in this process: for bytes that are trusted.
///
/// # Errors
/// See [`Original::read`].
pub fn probe(bytes: &[u8], limits: &Limits) -> Result<Original, ImageError> {
    Original::read(bytes, limits)
}

/// Makes a variant, in this process: for bytes that are trusted. [`crate::Workers::render`] is for all others.
///
/// # Errors
/// Every [`ImageError`] of the image itself.
pub fn render(bytes: &[u8], transform: &Transform, limits: &Limits) -> Result<Rendered, ImageError> {
    render_with(bytes, transform, limits, &mut |_| Ok(()))
}

/// As [`render`]; `grant` is asked, before anything is decoded, for the memory of all pixels.
pub(crate) fn render_with(
    bytes: &[u8],
    transform: &Transform,
    limits: &Limits,
    grant: &mut dyn FnMut(u64) -> Result<(), ImageError>,
) -> Result<Rendered, ImageError> {
    let original = Original::read(bytes, limits)?;
    let format = format_of(transform, &original)?;
    if !original.format.is_read() {
        return Err(ImageError::Unsupported {
            format: original.format,
            written: false,
        });
    }
    let animated = original.frames > 1 && !transform.still && format.is_animated();
    if transform.moving && original.frames > 1 && !animated {
        return Err(ImageError::Animated { format });
    }
    if animated {
        limits.check_frames(original.frames, original.width, original.height)?;
    }
    let reader = codec::of(original.format);
    let profile = reader.profile(bytes).and_then(|bytes| Profile::read(&bytes));
    let area = match transform.region {
        // A border that is cut off first moves the region.
        Some(region) if transform.trim.is_none() => Area::whole(original.upright()).cut(region)?,
        _ => Area::whole(original.upright()),
    };
    let fitting = Fitting::of(area.width, area.height, transform);
    let quality = transform.quality.of(original.quality);
    let options = ReadOptions {
        reduction: reduction(&original, &fitting, transform, quality),
        grey: transform.grey && profile.as_ref().is_none_or(Profile::is_srgb),
        animated,
    };
    let memory = memory(&original, &fitting, &options);
    limits.check_memory(memory)?;
    limits.check_output(fitting.canvas.0, fitting.canvas.1)?;
    if format == Format::Avif {
        limits.check_avif(fitting.canvas, fitting.seen)?;
    }
    grant(memory)?;

    let started = Instant::now();
    let mut stepping = Duration::ZERO;
    let mut plan: Option<ScalePlan> = None;
    let mut frames = Vec::new();
    let loops = reader.read(bytes, &original, &options, &mut |picture: Picture| {
        let began = Instant::now();
        let mut frame = Frame {
            raster: picture.raster,
            transform,
            original: &original,
            profile: profile.as_ref(),
            limits,
            format,
            plan: &mut plan,
        };
        step::all(&mut frame)?;
        frames.push(Picture {
            raster: frame.raster,
            delay: picture.delay,
        });
        stepping += began.elapsed();
        Ok(())
    })?;
    let read = started.elapsed().saturating_sub(stepping);
    let first = frames
        .first()
        .ok_or_else(|| ImageError::Malformed("an image without a picture".into()))?;
    let (width, height) = (first.raster.width, first.raster.height);
    let pictures = Pictures {
        frames,
        loops,
        copyright: transform
            .copyright
            .then(|| Copyright::of(bytes, original.format))
            .flatten(),
    };
    let began = Instant::now();
    let bytes = write(format, &pictures, quality, transform.bytes)?;
    Ok(Rendered {
        bytes: bytes.into(),
        format,
        width,
        height,
        frames: pictures.frames.len() as u32,
        times: RenderTimes {
            read,
            steps: stepping,
            write: began.elapsed(),
        },
    })
}

fn format_of(transform: &Transform, original: &Original) -> Result<Format, ImageError> {
    let format = match transform.format {
        FormatChoice::As(format) => format,
        FormatChoice::Keep if original.format.is_written() => original.format,
        FormatChoice::Keep | FormatChoice::Auto => Format::Jpeg,
    };
    if format.is_written() {
        Ok(format)
    } else {
        Err(ImageError::Unsupported { format, written: true })
    }
}

/// Writes a variant. One that is longer than `most` bytes is written again, as exactly as fits; what cannot be made to
/// fit is as short as it gets.
fn write(format: Format, pictures: &Pictures, quality: u8, most: u32) -> Result<Vec<u8>, ImageError> {
    let codec = codec::of(format);
    let fits = |bytes: &Vec<u8>| most == 0 || bytes.len() as u64 <= u64::from(most);
    let first = codec.write(pictures, quality)?;
    let has_quality = matches!(format, Format::Jpeg | Format::WebP | Format::Avif);
    if fits(&first) || !has_quality || quality == 1 {
        return Ok(first);
    }
    let mut best = codec.write(pictures, 1)?;
    // The largest size known to fit, and the smallest known not to.
    let (mut low, mut high) = (1, quality);
    while fits(&best) && high - low > 1 {
        let middle = low + (high - low) / 2;
        let bytes = codec.write(pictures, middle)?;
        if fits(&bytes) {
            (low, best) = (middle, bytes);
        } else {
            high = middle;
        }
    }
    Ok(best)
}

/// The factor by which a decoder may shrink the picture. A border is searched at full size.
fn reduction(original: &Original, fitting: &Fitting, transform: &Transform, quality: u8) -> f64 {
    if transform.trim.is_some() {
        return 1.0;
    }
    let reduction = fitting.reduction();
    if original.progressive && quality <= COARSE && reduction >= EIGHTH {
        return reduction;
    }
    (reduction / SPARE).max(1.0)
}

/// Bytes that the pixels of all stages take together, at most.
fn memory(original: &Original, fitting: &Fitting, options: &ReadOptions) -> u64 {
    let pixels = u64::from(original.width) * u64::from(original.height);
    let output = u64::from(fitting.canvas.0) * u64::from(fitting.canvas.1) * 4;
    let decoded = codec::of(original.format).memory(original, options);
    if options.animated {
        // Two canvases of the reader, and every frame of the answer.
        return 2 * pixels * 4 + output * (u64::from(original.frames) + 2);
    }
    // Scaled in two passes, and one more for a step.
    decoded + 3 * output
}
