//! JPEG in safe Rust, by jpeg-decoder, which can reduce pictures in the inverse transform, and jpeg-encoder.

use std::borrow::Cow;
use std::io::Cursor;

use jpeg_decoder::{Decoder, PixelFormat};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::codec::jpeg::{FULL_COLOUR, divisor, inks, memory, opaque, scans};
use crate::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::colour::grey;
use crate::copyright;
use crate::error::{ImageError, malformed};
use crate::original::{Original, jpeg};
use crate::raster::{PixelKind, Raster};

/// The codec that every build has.
pub(in crate::codec) struct Pure;

impl Codec for Pure {
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        jpeg::profile(bytes)
    }

    fn memory(&self, original: &Original, options: &ReadOptions) -> u64 {
        memory(original, options)
    }

    fn read(
        &self,
        bytes: &[u8],
        original: &Original,
        options: &ReadOptions,
        each: &mut Each<'_>,
    ) -> Result<u16, ImageError> {
        let divisor = divisor(options);
        let shorter = match divisor {
            8 if original.progressive => scans::brightest(bytes, options.grey),
            _ => Cow::Borrowed(bytes),
        };
        let mut decoder = Decoder::new(Cursor::new(&shorter));
        decoder.read_info().map_err(malformed)?;
        let side = |side: u32| u16::try_from(side.div_ceil(divisor)).map_err(malformed);
        let (width, height) = decoder
            .scale(side(original.width)?, side(original.height)?)
            .map_err(malformed)?;
        let data = decoder.decode().map_err(malformed)?;
        let format = decoder.info().ok_or_else(|| malformed("no header"))?.pixel_format;
        let (kind, data) = match format {
            PixelFormat::L8 => (PixelKind::Grey, data),
            // The high byte of each sample, which is in native byte order.
            PixelFormat::L16 => (
                PixelKind::Grey,
                data.chunks_exact(2)
                    .map(|pair| pair[usize::from(cfg!(target_endian = "little"))])
                    .collect(),
            ),
            PixelFormat::RGB24 => (PixelKind::Rgb, data),
            PixelFormat::CMYK32 => (PixelKind::Cmyk, data),
        };
        let raster = Raster::new(u32::from(width), u32::from(height), kind, data)?;
        let raster = inks(raster, bytes);
        let raster = if options.grey && kind == PixelKind::Rgb {
            grey(&raster)
        } else {
            raster
        };
        each(Picture { raster, delay: 0 })?;
        Ok(0)
    }

    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError> {
        let raster = opaque(pictures.first());
        let mut bytes = Vec::new();
        // No optimised tables: with them this encoder writes a scan per component, which some decoders misread.
        let mut encoder = Encoder::new(&mut bytes, quality);
        encoder.set_sampling_factor(if quality >= FULL_COLOUR {
            SamplingFactor::F_1_1
        } else {
            SamplingFactor::F_2_2
        });
        let side = |side: u32| u16::try_from(side).map_err(malformed);
        let kind = if raster.kind == PixelKind::Grey {
            ColorType::Luma
        } else {
            ColorType::Rgb
        };
        encoder
            .encode(&raster.data, side(raster.width)?, side(raster.height)?, kind)
            .map_err(malformed)?;
        Ok(copyright::into_jpeg(bytes, pictures.copyright.as_ref()))
    }
}
