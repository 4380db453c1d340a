//! One trait for all formats: decoding to pixels, and encoding.
//!
//! Pixels always come as eight bits a channel. Nothing of an original's metadata reaches a variant but its copyright,
//! where that is wanted: a writer gets pixels.

#[cfg(feature = "avif")]
mod avif;
mod gif;
mod jpeg;
mod png;
mod webp;

use crate::copyright::Copyright;
use crate::error::ImageError;
use crate::format::Format;
use crate::original::Original;
use crate::raster::Raster;

/// Options of decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wish {
    /// So many times smaller it may become while it is read, at least 1; what is left to scale is taken off already.
    pub(crate) reduction: f64,
    /// Only its brightness is wanted.
    pub(crate) grey: bool,
    /// All pictures are wanted, not only the first.
    pub(crate) animated: bool,
}

/// A picture, and how long it is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub(crate) raster: Raster,
    /// Milliseconds; 0 for a still.
    pub(crate) delay: u32,
}

/// The pictures of a variant, at least one, all of one size and kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pictures {
    pub(crate) frames: Vec<Picture>,
    /// Repetitions of an animation; 0 is for ever.
    pub(crate) loops: u16,
    /// Author and copyright, if the variant is to name them.
    pub(crate) copyright: Option<Copyright>,
}

impl Pictures {
    /// The picture of a still.
    fn first(&self) -> &Raster {
        &self.frames[0].raster
    }
}

/// Takes pictures as they come.
pub(crate) type Each<'a> = dyn FnMut(Picture) -> Result<(), ImageError> + 'a;

/// A format.
pub(crate) trait Codec: Sync {
    /// The ICC profile of an original, without decoding its pixels.
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>>;

    /// Bytes of memory that reading takes, at most.
    fn memory(&self, original: &Original, wish: &Wish) -> u64;

    /// Reads the first picture, or all of them; gives the number of loops.
    ///
    /// # Errors
    /// [`ImageError::Malformed`], and the errors of `each`.
    fn read(&self, bytes: &[u8], original: &Original, wish: &Wish, each: &mut Each<'_>) -> Result<u16, ImageError>;

    /// Writes a variant in a quality from 1 to 100, where the format has one.
    ///
    /// # Errors
    /// The encoder refuses, which happens for sizes that the format cannot say.
    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError>;
}

/// The codec of a format, which this build must read or write.
pub(crate) fn of(format: Format) -> &'static dyn Codec {
    match format {
        Format::Jpeg => &jpeg::Jpeg,
        Format::Png => &png::Png,
        Format::Gif => &gif::Gif,
        Format::WebP => &webp::WebP,
        #[cfg(feature = "avif")]
        Format::Avif => &avif::Avif,
        #[cfg(not(feature = "avif"))]
        Format::Avif => &Absent,
    }
}

/// Pixels of an original as it is decoded, bytes.
fn decoded(original: &Original) -> u64 {
    u64::from(original.width) * u64::from(original.height) * u64::from(original.channels)
}

/// The message of a library about a broken image.
pub(crate) fn malformed(error: impl std::fmt::Display) -> ImageError {
    ImageError::Malformed(error.to_string())
}

/// A format that this build knows only by name.
#[cfg(not(feature = "avif"))]
struct Absent;

#[cfg(not(feature = "avif"))]
impl Codec for Absent {
    fn profile(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn memory(&self, original: &Original, _: &Wish) -> u64 {
        decoded(original)
    }

    fn read(&self, _: &[u8], original: &Original, _: &Wish, _: &mut Each<'_>) -> Result<u16, ImageError> {
        Err(ImageError::Unsupported {
            format: original.format,
            written: false,
        })
    }

    fn write(&self, _: &Pictures, _: u8) -> Result<Vec<u8>, ImageError> {
        Err(ImageError::Unsupported {
            format: Format::Avif,
            written: true,
        })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pictures for the tests of all codecs.

    use super::*;
    use crate::limits::Limits;
    use crate::raster::Kind;

    pub(crate) const WHOLE: Wish = Wish {
        reduction: 1.0,
        grey: false,
        animated: false,
    };

    /// Soft waves of colour, different in every channel: what a photograph looks like to a codec.
    pub(crate) fn waves(width: u32, height: u32, kind: Kind) -> Raster {
        let channels = kind.channels();
        let mut data = Vec::with_capacity(width as usize * height as usize * channels);
        for y in 0..height {
            for x in 0..width {
                for channel in 0..channels {
                    let (x, y) = (f64::from(x), f64::from(y));
                    let wave = (x / (7.0 + channel as f64 * 3.0)).sin() + (y / (11.0 - channel as f64)).cos();
                    data.push((128.0 + 60.0 * wave) as u8);
                }
            }
        }
        Raster::new(width, height, kind, data).expect("it fits")
    }

    pub(crate) fn still(raster: Raster) -> Pictures {
        Pictures {
            frames: vec![Picture { raster, delay: 0 }],
            loops: 0,
            copyright: None,
        }
    }

    /// Reads all that a codec gives.
    pub(crate) fn read(codec: &dyn Codec, bytes: &[u8], wish: &Wish) -> Result<Pictures, ImageError> {
        let original = Original::read(bytes, &Limits::default())?;
        let mut frames = Vec::new();
        let loops = codec.read(bytes, &original, wish, &mut |picture| {
            frames.push(picture);
            Ok(())
        })?;
        Ok(Pictures {
            frames,
            loops,
            copyright: None,
        })
    }

    /// Mean difference of two images of the same size and kind, in steps of 255.
    pub(crate) fn difference(one: &Raster, other: &Raster) -> f64 {
        assert_eq!(
            (one.width, one.height, one.kind),
            (other.width, other.height, other.kind)
        );
        let sum: u64 = one
            .data
            .iter()
            .zip(&other.data)
            .map(|(a, b)| u64::from(a.abs_diff(*b)))
            .sum();
        sum as f64 / one.data.len() as f64
    }
}
