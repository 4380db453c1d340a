//! JPEG by libjpeg-turbo, if built in, with a pure Rust codec as fallback.

mod pure;
mod scans;
#[cfg(feature = "turbo")]
mod turbo;

use crate::codec::ReadOptions;
#[cfg(feature = "turbo")]
use crate::codec::{Codec, Each, Pictures};
#[cfg(feature = "turbo")]
use crate::error::ImageError;
use crate::original::Original;
use crate::original::jpeg::is_adobe;
use crate::raster::{PixelKind, Raster};

/// The codec of this build.
#[cfg(feature = "turbo")]
pub(super) struct Jpeg;
#[cfg(not(feature = "turbo"))]
pub(super) use pure::Pure as Jpeg;

#[cfg(feature = "turbo")]
impl Codec for Jpeg {
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        turbo::Turbo.profile(bytes)
    }

    fn memory(&self, original: &Original, options: &ReadOptions) -> u64 {
        turbo::Turbo.memory(original, options)
    }

    /// Each library refuses some rare files that the other reads, so both are tried.
    fn read(
        &self,
        bytes: &[u8],
        original: &Original,
        options: &ReadOptions,
        each: &mut Each<'_>,
    ) -> Result<u16, ImageError> {
        let mut begun = false;
        let result = turbo::Turbo.read(bytes, original, options, &mut |picture| {
            begun = true;
            each(picture)
        });
        match result {
            Err(ImageError::Malformed(why)) if !begun => {
                let second = pure::Pure.read(bytes, original, options, each);
                second.map_err(|error| match error {
                    ImageError::Malformed(_) => ImageError::Malformed(why),
                    other => other,
                })
            }
            result => result,
        }
    }

    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError> {
        turbo::Turbo.write(pictures, quality)
    }
}

/// The divisor of both sides while decoding: the largest of 8, 4, 2 and 1 that the reduction allows.
fn divisor(options: &ReadOptions) -> u32 {
    [8, 4, 2]
        .into_iter()
        .find(|&divisor| options.reduction >= f64::from(divisor))
        .unwrap_or(1)
}

/// Memory for the pixels, and for the coefficients of a progressive file, bytes.
fn memory(original: &Original, options: &ReadOptions) -> u64 {
    let divisor = u64::from(divisor(options));
    let side = |side: u32| u64::from(side).div_ceil(divisor);
    let pixels = side(original.width) * side(original.height) * u64::from(original.channels);
    let block = |side: u32| u64::from(side).next_multiple_of(16);
    let coefficients = block(original.width) * block(original.height) * u64::from(original.channels) * 2;
    pixels + if original.progressive { coefficients } else { 0 }
}

/// Least quality for 4:4:4, as in libvips: subsampled colours would be visible at this quality.
const FULL_COLOUR: u8 = 90;

/// Inverts the inks of a file with Adobe's marker, whose inks are stored inverted.
fn inks(mut raster: Raster, bytes: &[u8]) -> Raster {
    if raster.kind == PixelKind::Cmyk && is_adobe(bytes) {
        for ink in &mut raster.data {
            *ink = 255 - *ink;
        }
    }
    raster
}

/// Drops the opacity channel, which JPEG lacks; the background step has made the image opaque.
fn opaque(raster: &Raster) -> Raster {
    match raster.kind {
        PixelKind::GreyAlpha => raster.map(PixelKind::Grey, |pixel| [pixel[0]]),
        PixelKind::Rgba => raster.map(PixelKind::Rgb, |pixel| [pixel[0], pixel[1], pixel[2]]),
        _ => raster.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::codec::testing::{WHOLE, difference, read, still, waves};
    use crate::error::ImageError;

    fn back_ends() -> Vec<(&'static str, &'static dyn Codec)> {
        vec![
            ("pure", &pure::Pure),
            #[cfg(feature = "turbo")]
            ("turbo", &turbo::Turbo),
        ]
    }

    #[test]
    fn what_is_written_is_read_again_by_both() {
        for (writer, write) in back_ends() {
            for (reader, codec) in back_ends() {
                for kind in [PixelKind::Grey, PixelKind::Rgb] {
                    for quality in [75, 95] {
                        let raster = waves(123, 77, kind);
                        let bytes = write.write(&still(raster.clone()), quality).expect("it is written");
                        let found = read(codec, &bytes, &WHOLE).expect("it is read");
                        let difference = difference(&raster, &found.frames[0].raster);
                        assert!(difference < 3.0, "{writer} {reader} {kind:?} {quality}: {difference}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_smaller_picture_is_read_smaller() {
        let bytes = Jpeg
            .write(&still(waves(401, 203, PixelKind::Rgb)), 90)
            .expect("it is written");
        for (name, codec) in back_ends() {
            for (reduction, expected) in [(1.9, (401, 203)), (2.0, (201, 102)), (7.9, (101, 51)), (40.0, (51, 26))] {
                let options = ReadOptions { reduction, ..WHOLE };
                let raster = &read(codec, &bytes, &options).expect("it is read").frames[0].raster;
                assert_eq!((raster.width, raster.height), expected, "{name} {reduction}");
            }
        }
    }

    #[test]
    fn only_the_brightness_is_read_where_no_more_is_wanted() {
        let colour = waves(64, 64, PixelKind::Rgb);
        let bytes = Jpeg.write(&still(colour.clone()), 95).expect("it is written");
        let options = ReadOptions { grey: true, ..WHOLE };
        for (name, codec) in back_ends() {
            let raster = &read(codec, &bytes, &options).expect("it is read").frames[0].raster;
            assert_eq!(raster.kind, PixelKind::Grey, "{name}");
            assert!(difference(&crate::colour::grey(&colour), raster) < 3.0, "{name}");
        }
    }

    #[test]
    fn a_picture_cut_short_is_shown_as_far_as_it_goes_or_refused() {
        let bytes = Jpeg
            .write(&still(waves(200, 200, PixelKind::Rgb)), 90)
            .expect("it is written");
        for (name, codec) in back_ends() {
            for length in (0..bytes.len()).step_by(bytes.len() / 20) {
                match read(codec, &bytes[..length], &WHOLE) {
                    Ok(found) => assert_eq!(found.frames[0].raster.width, 200, "{name}"),
                    Err(error) => assert!(
                        matches!(error, ImageError::Malformed(_) | ImageError::Unknown),
                        "{name}: {error}"
                    ),
                }
            }
        }
    }

    #[test]
    fn the_divisor_never_makes_the_picture_too_small() {
        for (reduction, expected) in [(1.0, 1), (1.99, 1), (2.0, 2), (5.0, 4), (8.0, 8), (100.0, 8)] {
            assert_eq!(divisor(&ReadOptions { reduction, ..WHOLE }), expected);
        }
    }
}
