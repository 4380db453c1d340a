//! The codec of each format: decoding to pixels, and encoding.

#[cfg(not(feature = "avif"))]
mod absent;
#[cfg(feature = "avif")]
mod avif;
#[allow(clippy::module_inception, reason = "the file of `Codec`")]
mod codec;
mod gif;
mod jpeg;
mod png;
mod webp;

pub(crate) use self::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::format::Format;

/// The codec of a format.
pub(crate) fn of(format: Format) -> &'static dyn Codec {
    match format {
        Format::Jpeg => &jpeg::Jpeg,
        Format::Png => &png::Png,
        Format::Gif => &gif::Gif,
        Format::WebP => &webp::WebP,
        #[cfg(feature = "avif")]
        Format::Avif => &avif::Avif,
        #[cfg(not(feature = "avif"))]
        Format::Avif => &absent::Absent,
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pictures for the tests of all codecs.

    use super::*;
    use crate::error::ImageError;
    use crate::limits::Limits;
    use crate::original::Original;
    use crate::raster::{PixelKind, Raster};

    pub(crate) const WHOLE: ReadOptions = ReadOptions {
        reduction: 1.0,
        grey: false,
        animated: false,
    };

    /// Soft waves of colour, different in every channel: similar to a photograph for a codec.
    pub(crate) fn waves(width: u32, height: u32, kind: PixelKind) -> Raster {
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

    /// Reads all pictures that the codec returns.
    pub(crate) fn read(codec: &dyn Codec, bytes: &[u8], options: &ReadOptions) -> Result<Pictures, ImageError> {
        let original = Original::read(bytes, &Limits::default())?;
        let mut frames = Vec::new();
        let loops = codec.read(bytes, &original, options, &mut |picture| {
            frames.push(picture);
            Ok(())
        })?;
        Ok(Pictures {
            frames,
            loops,
            copyright: None,
        })
    }

    /// Mean difference of two images of the same size and kind, from 0 to 255.
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
