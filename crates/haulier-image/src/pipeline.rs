//! Renders a variant: decode the original, apply the steps, encode.

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

/// The decoder leaves the picture at least this many times larger than the answer. It averages blocks, and scaling too
/// few of them makes the picture soft.
const SPARE: f64 = 2.0;
/// Up to this quality a progressive picture is decoded at an eighth if that suffices: the DC scans are a tenth of the
/// file, and the others are skipped.
const COARSE: u8 = 80;
/// The largest reduction of a decoder.
const EIGHTH: f64 = 8.0;

/// A variant.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The encoded image.
    pub bytes: Bytes,
    /// Its format.
    pub format: Format,
    /// Width, pixels.
    pub width: u32,
    /// Height, pixels.
    pub height: u32,
    /// Pictures in it; 1 for a still.
    pub frames: u32,
    /// Durations of the stages.
    pub times: RenderTimes,
}

/// Durations of the stages, without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderTimes {
    /// Decoding the original.
    pub read: Duration,
    /// The steps, scaling included.
    pub steps: Duration,
    /// Encoding the variant.
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

/// Reads the properties of an image in this process; for trusted bytes.
///
/// # Errors
/// See [`Original::read`].
pub fn probe(bytes: &[u8], limits: &Limits) -> Result<Original, ImageError> {
    Original::read(bytes, limits)
}

/// Renders a variant in this process; for trusted bytes. [`crate::Workers::render`] is for all others.
///
/// # Errors
/// Every [`ImageError`] of the image itself.
pub fn render(bytes: &[u8], transform: &Transform, limits: &Limits) -> Result<Rendered, ImageError> {
    render_with(bytes, transform, limits, &mut |_| Ok(()))
}

/// As [`render`]; before decoding, `grant` is asked for the memory of all pixels.
pub(crate) fn render_with(
    bytes: &[u8],
    transform: &Transform,
    limits: &Limits,
    grant: &mut dyn FnMut(u64) -> Result<(), ImageError>,
) -> Result<Rendered, ImageError> {
    let plan = RenderPlan::new(bytes, transform, limits)?;
    grant(plan.memory)?;
    let (pictures, mut times) = plan.decode(bytes, transform, limits)?;
    let began = Instant::now();
    let bytes = write(plan.format, &pictures, plan.quality, transform.bytes)?;
    times.write = began.elapsed();
    let first = &pictures.frames[0].raster;
    Ok(Rendered {
        bytes: bytes.into(),
        format: plan.format,
        width: first.width,
        height: first.height,
        frames: pictures.frames.len() as u32,
        times,
    })
}

/// Everything about a variant that follows from the header of its original, checked against the limits.
struct RenderPlan {
    original: Original,
    profile: Option<Profile>,
    format: Format,
    quality: u8,
    options: ReadOptions,
    /// Most memory for the pixels of all stages together, bytes.
    memory: u64,
}

impl RenderPlan {
    fn new(bytes: &[u8], transform: &Transform, limits: &Limits) -> Result<Self, ImageError> {
        let original = Original::read(bytes, limits)?;
        let format = format_of(transform, &original)?;
        if !original.format.is_read() {
            return Err(ImageError::Unsupported {
                format: original.format,
                written: false,
            });
        }
        let animated = is_animated(transform, &original, format)?;
        if animated {
            limits.check_frames(original.frames, original.width, original.height)?;
        }
        let profile = codec::of(original.format).profile(bytes);
        let profile = profile.and_then(|bytes| Profile::read(&bytes));
        let fitting = fit(transform, &original)?;
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
        Ok(Self {
            original,
            profile,
            format,
            quality,
            options,
            memory,
        })
    }

    /// Decodes the original, and applies the steps to each picture as soon as it is decoded.
    fn decode(
        &self,
        bytes: &[u8],
        transform: &Transform,
        limits: &Limits,
    ) -> Result<(Pictures, RenderTimes), ImageError> {
        let began = Instant::now();
        let mut times = RenderTimes::default();
        let mut scale_plan: Option<ScalePlan> = None;
        let mut frames = Vec::new();
        let reader = codec::of(self.original.format);
        let loops = reader.read(bytes, &self.original, &self.options, &mut |picture: Picture| {
            let began = Instant::now();
            let mut frame = Frame {
                raster: picture.raster,
                transform,
                original: &self.original,
                profile: self.profile.as_ref(),
                limits,
                format: self.format,
                plan: &mut scale_plan,
            };
            step::all(&mut frame)?;
            frames.push(Picture {
                raster: frame.raster,
                delay: picture.delay,
            });
            times.steps += began.elapsed();
            Ok(())
        })?;
        times.read = began.elapsed().saturating_sub(times.steps);
        if frames.is_empty() {
            return Err(ImageError::Malformed("an image without a picture".into()));
        }
        let copyright = transform.copyright.then(|| Copyright::of(bytes, self.original.format));
        let pictures = Pictures {
            frames,
            loops,
            copyright: copyright.flatten(),
        };
        Ok((pictures, times))
    }
}

/// True if the variant is an animation.
///
/// # Errors
/// The animation must be kept, and the format holds only one picture.
fn is_animated(transform: &Transform, original: &Original, format: Format) -> Result<bool, ImageError> {
    let animated = original.frames > 1 && !transform.still && format.is_animated();
    if transform.moving && original.frames > 1 && !animated {
        return Err(ImageError::Animated { format });
    }
    Ok(animated)
}

/// The fitting of the variant, as far as it is known before decoding.
fn fit(transform: &Transform, original: &Original) -> Result<Fitting, ImageError> {
    let whole = Area::whole(original.upright());
    let area = match transform.region {
        // With a trimmed border the region is known only after decoding.
        Some(region) if transform.trim.is_none() => whole.cut(region)?,
        _ => whole,
    };
    Ok(Fitting::of(area.width, area.height, transform))
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

/// Encodes a variant, in the highest quality of at most `most` bytes, or in the lowest if none fits.
fn write(format: Format, pictures: &Pictures, quality: u8, most: u32) -> Result<Vec<u8>, ImageError> {
    let codec = codec::of(format);
    let fits = |bytes: &Vec<u8>| most == 0 || bytes.len() as u64 <= u64::from(most);
    let first = codec.write(pictures, quality)?;
    let has_quality = matches!(format, Format::Jpeg | Format::WebP | Format::Avif);
    if fits(&first) || !has_quality || quality == 1 {
        return Ok(first);
    }
    let mut best = codec.write(pictures, 1)?;
    // The highest quality known to fit, and the lowest known not to.
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

/// The factor by which the decoder may reduce the picture. A border is searched at full size.
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

/// Most memory for the pixels of all stages together, bytes.
fn memory(original: &Original, fitting: &Fitting, options: &ReadOptions) -> u64 {
    let pixels = u64::from(original.width) * u64::from(original.height);
    let output = u64::from(fitting.canvas.0) * u64::from(fitting.canvas.1) * 4;
    let decoded = codec::of(original.format).memory(original, options);
    if options.animated {
        // Two canvases of the decoder, and every frame of the answer.
        return 2 * pixels * 4 + output * (u64::from(original.frames) + 2);
    }
    // Two passes of scaling, and one more for a step.
    decoded + 3 * output
}
