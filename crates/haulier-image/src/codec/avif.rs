//! AVIF, by ravif: written only.

use ravif::{Encoder, Img};
use rgb::{FromSlice, RGB8, RGBA8};

use crate::codec::{Codec, Each, Pictures, ReadOptions};
use crate::error::{ImageError, malformed};
use crate::format::Format;
use crate::original::Original;
use crate::raster::PixelKind;

/// Speed of the encoder, from 1 (slow) to 10: a request must not take seconds.
const SPEED: u8 = 9;
/// Difference of the quality numbers at which AVIF looks as good as JPEG.
const EQUAL: u8 = 10;

/// The codec.
pub(super) struct Avif;

impl Codec for Avif {
    fn profile(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn memory(&self, original: &Original, _: &ReadOptions) -> u64 {
        original.decoded_size()
    }

    fn read(&self, _: &[u8], _: &Original, _: &ReadOptions, _: &mut Each<'_>) -> Result<u16, ImageError> {
        Err(ImageError::Unsupported {
            format: Format::Avif,
            written: false,
        })
    }

    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError> {
        let raster = pictures.first().clone().in_colour();
        let (width, height) = (raster.width as usize, raster.height as usize);
        let quality = f32::from(quality.saturating_sub(EQUAL).max(1));
        // One thread: the sandbox forbids others.
        let encoder = Encoder::new()
            .with_quality(quality)
            .with_alpha_quality(quality)
            .with_speed(SPEED)
            .with_num_threads(Some(1));
        let encoder = match &pictures.copyright {
            Some(copyright) => encoder.with_exif(copyright.exif()),
            None => encoder,
        };
        let encoded = match raster.kind {
            PixelKind::Rgba => {
                let pixels: &[RGBA8] = raster.data.as_rgba();
                encoder.encode_rgba(Img::new(pixels, width, height))
            }
            PixelKind::Rgb => {
                let pixels: &[RGB8] = raster.data.as_rgb();
                encoder.encode_rgb(Img::new(pixels, width, height))
            }
            _ => return Err(malformed("inks in an AVIF")),
        };
        Ok(encoded.map_err(malformed)?.avif_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{still, waves};
    use crate::limits::Limits;

    #[test]
    fn what_is_written_is_an_avif_of_the_size() {
        for kind in [PixelKind::Rgb, PixelKind::Rgba, PixelKind::Grey] {
            let bytes = Avif.write(&still(waves(64, 48, kind)), 75).expect("it is written");
            let original = Original::read(&bytes, &Limits::default()).expect("a header");
            assert_eq!(
                (original.format, original.width, original.height),
                (Format::Avif, 64, 48)
            );
            assert_eq!(original.alpha, kind == PixelKind::Rgba);
        }
    }
}
