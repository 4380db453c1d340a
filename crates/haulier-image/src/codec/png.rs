//! PNG, by the `png` crate, which expands palettes, depths and interlacing while reading.

use std::io::Cursor;

use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Limits, Transformations, chunk};

use crate::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::error::{ImageError, malformed};
use crate::original::Original;
use crate::raster::{PixelKind, Raster};

/// Most memory for everything but pixels, bytes; a larger profile is refused.
const ANCILLARY: usize = 8 << 20;

/// The codec.
pub(super) struct Png;

impl Codec for Png {
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut decoder = decoder(bytes);
        decoder.set_ignore_text_chunk(true);
        let reader = decoder.read_info().ok()?;
        reader.info().icc_profile.as_ref().map(|profile| profile.to_vec())
    }

    fn memory(&self, original: &Original, _: &ReadOptions) -> u64 {
        original.decoded_size() + ANCILLARY as u64
    }

    fn read(&self, bytes: &[u8], _: &Original, _: &ReadOptions, each: &mut Each<'_>) -> Result<u16, ImageError> {
        let mut decoder = decoder(bytes);
        decoder.set_ignore_text_chunk(true);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        let mut reader = decoder.read_info().map_err(malformed)?;
        let kind = match reader.output_color_type() {
            (ColorType::Grayscale, BitDepth::Eight) => PixelKind::Grey,
            (ColorType::GrayscaleAlpha, BitDepth::Eight) => PixelKind::GreyAlpha,
            (ColorType::Rgb, BitDepth::Eight) => PixelKind::Rgb,
            (ColorType::Rgba, BitDepth::Eight) => PixelKind::Rgba,
            other => return Err(malformed(format!("{other:?}"))),
        };
        let (width, height) = reader.info().size();
        let mut data = vec![0; width as usize * height as usize * kind.channels()];
        // An animated PNG begins with the picture for decoders without animations.
        reader.next_frame(&mut data).map_err(malformed)?;
        each(Picture {
            raster: Raster::new(width, height, kind, data)?,
            delay: 0,
        })?;
        Ok(0)
    }

    fn write(&self, pictures: &Pictures, _: u8) -> Result<Vec<u8>, ImageError> {
        let raster = pictures.first();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, raster.width, raster.height);
        encoder.set_color(match raster.kind {
            PixelKind::Grey => ColorType::Grayscale,
            PixelKind::GreyAlpha => ColorType::GrayscaleAlpha,
            PixelKind::Rgb => ColorType::Rgb,
            PixelKind::Rgba => ColorType::Rgba,
            PixelKind::Cmyk => return Err(malformed("inks in a PNG")),
        });
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Balanced);
        let mut writer = encoder.write_header().map_err(malformed)?;
        if let Some(copyright) = &pictures.copyright {
            let exif = writer.write_chunk(chunk::eXIf, &copyright.exif());
            exif.map_err(malformed)?;
        }
        writer.write_image_data(&raster.data).map_err(malformed)?;
        writer.finish().map_err(malformed)?;
        Ok(bytes)
    }
}

fn decoder(bytes: &[u8]) -> Decoder<Cursor<&[u8]>> {
    Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: ANCILLARY })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{WHOLE, read, still, waves};

    #[test]
    fn every_kind_survives_to_the_bit() {
        for kind in [PixelKind::Grey, PixelKind::GreyAlpha, PixelKind::Rgb, PixelKind::Rgba] {
            let raster = waves(61, 43, kind);
            let bytes = Png.write(&still(raster.clone()), 1).expect("it is written");
            assert_eq!(read(&Png, &bytes, &WHOLE).expect("it is read").frames[0].raster, raster);
        }
    }

    fn encoded(
        colour: ColorType,
        depth: BitDepth,
        data: &[u8],
        more: impl Fn(&mut Encoder<'_, &mut Vec<u8>>),
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        more(&mut encoder);
        let mut writer = encoder.write_header().expect("a header");
        writer.write_image_data(data).expect("pixels");
        writer.finish().expect("an end");
        bytes
    }

    #[test]
    fn sixteen_bits_become_eight() {
        let bytes = encoded(
            ColorType::Rgb,
            BitDepth::Sixteen,
            &[255, 0, 128, 7, 1, 9, 0, 0, 0, 0, 0, 0],
            |_| {},
        );
        let raster = &read(&Png, &bytes, &WHOLE).expect("it is read").frames[0].raster;
        assert_eq!((raster.kind, raster.pixel(0, 0)), (PixelKind::Rgb, &[255, 128, 1][..]));
    }

    #[test]
    fn a_palette_with_transparency_becomes_colours() {
        let bytes = encoded(ColorType::Indexed, BitDepth::One, &[0b0100_0000], |encoder| {
            encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
            encoder.set_trns(vec![0]);
        });
        let raster = &read(&Png, &bytes, &WHOLE).expect("it is read").frames[0].raster;
        assert_eq!(
            (raster.kind, &raster.data[..]),
            (PixelKind::Rgba, &[1, 2, 3, 0, 4, 5, 6, 255][..])
        );
    }

    #[test]
    fn the_profile_is_found() {
        let profile = vec![7; 3000];
        let bytes = encoded(ColorType::Grayscale, BitDepth::Eight, &[1, 2], |_| {});
        assert_eq!(Png.profile(&bytes), None);
        let mut info = png::Info::with_size(2, 1);
        info.color_type = ColorType::Grayscale;
        info.bit_depth = BitDepth::Eight;
        info.icc_profile = Some(profile.clone().into());
        let mut bytes = Vec::new();
        let encoder = Encoder::with_info(&mut bytes, info).expect("an encoder");
        encoder
            .write_header()
            .expect("a header")
            .write_image_data(&[1, 2])
            .expect("pixels");
        assert_eq!(Png.profile(&bytes), Some(profile));
    }
}
