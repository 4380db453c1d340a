//! WebP, by libwebp: lossy, with transparency, and animated.
#![allow(unsafe_code)] // the API of libwebp, a C library

use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use libwebp_sys as sys;

use crate::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::copyright;
use crate::error::{ImageError, malformed};
use crate::original::{Original, webp};
use crate::raster::{PixelKind, Raster};

/// Effort of the encoder, 0 to 6: 2 takes half the time of 4 and 3 % more bytes.
const METHOD: i32 = 2;
/// Longest side of a WebP, pixels (RFC 9649 §2.5).
const LONGEST: u32 = 16_383;

/// The ABI version of these bindings, which the library checks.
const MUX_VERSION: i32 = sys::WEBP_MUX_ABI_VERSION as i32;

/// The codec.
pub(super) struct WebP;

impl Codec for WebP {
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        webp::profile(bytes)
    }

    /// Besides the pixels, the decoder holds lossy pictures in YUV, and lossless ones in 32 bits per pixel.
    fn memory(&self, original: &Original, _: &ReadOptions) -> u64 {
        original.decoded_size() + u64::from(original.width) * u64::from(original.height) * 4
    }

    fn read(
        &self,
        bytes: &[u8],
        original: &Original,
        options: &ReadOptions,
        each: &mut Each<'_>,
    ) -> Result<u16, ImageError> {
        if original.frames > 1 || is_animation(bytes) {
            return read_animation(bytes, original, options, each);
        }
        each(Picture {
            raster: read_still(bytes, original, options)?,
            delay: 0,
        })?;
        Ok(0)
    }

    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError> {
        let first = pictures.first();
        if first.width.max(first.height) > LONGEST {
            return Err(malformed("too large for a WebP"));
        }
        let config = config(quality)?;
        let bytes = match pictures.frames.len() {
            1 => write_still(first, &config)?,
            _ => write_animation(pictures, &config)?,
        };
        let copyright = pictures.copyright.as_ref();
        Ok(copyright::into_webp(bytes, copyright, (first.width, first.height)))
    }
}

fn write_still(raster: &Raster, config: &sys::WebPConfig) -> Result<Vec<u8>, ImageError> {
    let mut picture = Image::of(raster)?;
    let mut writer = Writer::new();
    picture.0.writer = Some(sys::WebPMemoryWrite);
    picture.0.custom_ptr = (&raw mut writer.0).cast();
    // SAFETY: configuration and picture are initialised, and the writer the picture points to outlives the call.
    let done = unsafe { sys::WebPEncode(config, &raw mut picture.0) };
    if done == 0 {
        return Err(malformed(format!("{:?}", picture.0.error_code)));
    }
    Ok(writer.bytes())
}

fn config(quality: u8) -> Result<sys::WebPConfig, ImageError> {
    let mut config = sys::WebPConfig::new().map_err(|()| malformed("libwebp is of another version"))?;
    config.quality = f32::from(quality);
    config.method = METHOD;
    Ok(config)
}

/// True if the VP8X chunk has the animation flag (RFC 9649 §2.7).
fn is_animation(bytes: &[u8]) -> bool {
    bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & 2 != 0)
}

/// Reads a still. The decoder itself scales it down.
fn read_still(bytes: &[u8], original: &Original, options: &ReadOptions) -> Result<Raster, ImageError> {
    let mut config = sys::WebPDecoderConfig::new().map_err(|()| malformed("libwebp is of another version"))?;
    // SAFETY: the bytes are alive for the call; the features are plain numbers of the configuration.
    let status = unsafe { sys::WebPGetFeatures(bytes.as_ptr(), bytes.len(), &raw mut config.input) };
    check(status)?;
    let kind = if config.input.has_alpha != 0 {
        PixelKind::Rgba
    } else {
        PixelKind::Rgb
    };
    let (width, height) = (config.input.width as u32, config.input.height as u32);
    if (width, height) != (original.width, original.height) {
        return Err(malformed("two sizes in one file"));
    }
    let divisor = (options.reduction as u32).max(1);
    let (width, height) = (width.div_ceil(divisor), height.div_ceil(divisor));
    if divisor > 1 {
        config.options.use_scaling = 1;
        config.options.scaled_width = width as i32;
        config.options.scaled_height = height as i32;
    }
    let row = width as usize * kind.channels();
    let mut data = vec![0; row * height as usize];
    config.output.colorspace = if kind == PixelKind::Rgba {
        sys::WEBP_CSP_MODE::MODE_RGBA
    } else {
        sys::WEBP_CSP_MODE::MODE_RGB
    };
    config.output.is_external_memory = 1;
    config.output.u.RGBA = sys::WebPRGBABuffer {
        rgba: data.as_mut_ptr(),
        stride: row as i32,
        size: data.len(),
    };
    // SAFETY: the output is memory of ours with the size and stride that are given, and outlives the call; the library
    // checks that the picture fits in before it writes.
    let status = unsafe { sys::WebPDecode(bytes.as_ptr(), bytes.len(), &raw mut config) };
    check(status)?;
    Raster::new(width, height, kind, data)
}

fn check(status: sys::VP8StatusCode) -> Result<(), ImageError> {
    match status {
        sys::VP8StatusCode::VP8_STATUS_OK => Ok(()),
        status => Err(malformed(format!("{status:?}"))),
    }
}

fn read_animation(
    bytes: &[u8],
    original: &Original,
    options: &ReadOptions,
    each: &mut Each<'_>,
) -> Result<u16, ImageError> {
    let mut decoder = AnimationDecoder::new(bytes)?;
    let info = decoder.info()?;
    if (info.canvas_width, info.canvas_height) != (original.width, original.height) {
        return Err(malformed("two sizes in one file"));
    }
    let mut before = 0;
    let mut shown = 0;
    while let Some((data, until)) = decoder.next(&info)? {
        each(Picture {
            raster: Raster::new(info.canvas_width, info.canvas_height, PixelKind::Rgba, data)?,
            delay: until.saturating_sub(before),
        })?;
        before = until;
        shown += 1;
        // The header reader has counted the frames; a decoder that finds more has read something else.
        if !options.animated || shown == original.frames {
            break;
        }
    }
    Ok(u16::try_from(info.loop_count).unwrap_or(0))
}

/// A decoder that composes the frames of an animation.
struct AnimationDecoder(*mut sys::WebPAnimDecoder);

impl AnimationDecoder {
    fn new(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut options = MaybeUninit::<sys::WebPAnimDecoderOptions>::zeroed();
        let data = sys::WebPData {
            bytes: bytes.as_ptr(),
            size: bytes.len(),
        };
        // SAFETY: the options are initialised by the call before they are used. The decoder keeps a pointer to the
        // bytes; `read_animation`, which has them for its whole length, drops it before it returns.
        let decoder = unsafe {
            if sys::WebPAnimDecoderOptionsInit(options.as_mut_ptr()) == 0 {
                return Err(malformed("libwebp is of another version"));
            }
            (*options.as_mut_ptr()).color_mode = sys::WEBP_CSP_MODE::MODE_RGBA;
            sys::WebPAnimDecoderNew(&raw const data, options.as_ptr())
        };
        if decoder.is_null() {
            return Err(malformed("no animation"));
        }
        Ok(Self(decoder))
    }

    fn info(&self) -> Result<sys::WebPAnimInfo, ImageError> {
        let mut info = MaybeUninit::<sys::WebPAnimInfo>::zeroed();
        // SAFETY: the decoder is ours and alive; all fields of the information are plain numbers.
        match unsafe { sys::WebPAnimDecoderGetInfo(self.0, info.as_mut_ptr()) } {
            0 => Err(malformed("no animation")),
            // SAFETY: plain numbers, written or zero.
            _ => Ok(unsafe { info.assume_init() }),
        }
    }

    /// The next picture, and the time at which it ends, in milliseconds from the beginning.
    fn next(&mut self, info: &sys::WebPAnimInfo) -> Result<Option<(Vec<u8>, u32)>, ImageError> {
        let mut pixels: *mut u8 = ptr::null_mut();
        let mut until = 0;
        // SAFETY: the decoder is ours and alive; both results are written on success.
        unsafe {
            if sys::WebPAnimDecoderHasMoreFrames(self.0) == 0 {
                return Ok(None);
            }
            if sys::WebPAnimDecoderGetNext(self.0, &raw mut pixels, &raw mut until) == 0 {
                return Err(malformed("a broken frame"));
            }
        }
        let length = info.canvas_width as usize * info.canvas_height as usize * 4;
        // SAFETY: after success the decoder's own canvas has this length, until its next call; it is copied at once.
        let pixels = unsafe { slice::from_raw_parts(pixels, length) }.to_vec();
        Ok(Some((pixels, until.unsigned_abs())))
    }
}

impl Drop for AnimationDecoder {
    fn drop(&mut self) {
        // SAFETY: the decoder is ours, and gone after this.
        unsafe { sys::WebPAnimDecoderDelete(self.0) };
    }
}

/// A picture in the encoder's representation.
struct Image(sys::WebPPicture);

impl Image {
    fn of(raster: &Raster) -> Result<Self, ImageError> {
        let picture = sys::WebPPicture::new().map_err(|()| malformed("libwebp is of another version"))?;
        let mut image = Self(picture);
        image.0.width = raster.width as i32;
        image.0.height = raster.height as i32;
        let raster = raster.clone().in_colour();
        let row = raster.row() as i32;
        // SAFETY: the raster has `height` rows of `row` bytes, and is copied by the call.
        let imported = unsafe {
            match raster.kind {
                PixelKind::Rgba => sys::WebPPictureImportRGBA(&raw mut image.0, raster.data.as_ptr(), row),
                PixelKind::Rgb => sys::WebPPictureImportRGB(&raw mut image.0, raster.data.as_ptr(), row),
                _ => 0,
            }
        };
        if imported == 0 {
            return Err(malformed("libwebp has no memory"));
        }
        Ok(image)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: frees what the import allocated; the structure itself is ours.
        unsafe { sys::WebPPictureFree(&raw mut self.0) };
    }
}

/// Memory that the encoder writes to.
struct Writer(sys::WebPMemoryWriter);

impl Writer {
    fn new() -> Self {
        let mut writer = MaybeUninit::<sys::WebPMemoryWriter>::zeroed();
        // SAFETY: initialises the structure, whose fields are numbers and a null pointer.
        Self(unsafe {
            sys::WebPMemoryWriterInit(writer.as_mut_ptr());
            writer.assume_init()
        })
    }

    fn bytes(&self) -> Vec<u8> {
        if self.0.mem.is_null() {
            return Vec::new();
        }
        // SAFETY: the memory holds `size` bytes.
        unsafe { slice::from_raw_parts(self.0.mem, self.0.size) }.to_vec()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: frees the memory the encoder has allocated.
        unsafe { sys::WebPMemoryWriterClear(&raw mut self.0) };
    }
}

fn write_animation(pictures: &Pictures, config: &sys::WebPConfig) -> Result<Vec<u8>, ImageError> {
    let first = pictures.first();
    let mut options = MaybeUninit::<sys::WebPAnimEncoderOptions>::zeroed();
    // SAFETY: the options are initialised by the call before they are used; the encoder copies them.
    let encoder = unsafe {
        if sys::WebPAnimEncoderOptionsInitInternal(options.as_mut_ptr(), MUX_VERSION) == 0 {
            return Err(malformed("libwebp is of another version"));
        }
        (*options.as_mut_ptr()).anim_params.loop_count = i32::from(pictures.loops);
        sys::WebPAnimEncoderNewInternal(first.width as i32, first.height as i32, options.as_ptr(), MUX_VERSION)
    };
    if encoder.is_null() {
        return Err(malformed("libwebp has no memory"));
    }
    let encoder = AnimationEncoder(encoder);
    let mut at: i32 = 0;
    for picture in &pictures.frames {
        let mut image = Image::of(&picture.raster)?;
        // SAFETY: encoder, picture and configuration are alive and initialised; the encoder copies the picture.
        let added = unsafe { sys::WebPAnimEncoderAdd(encoder.0, &raw mut image.0, at, config) };
        if added == 0 {
            return Err(malformed(format!("{:?}", image.0.error_code)));
        }
        at = at.saturating_add(picture.delay.min(1 << 20) as i32);
    }
    encoder.finish(at)
}

struct AnimationEncoder(*mut sys::WebPAnimEncoder);

impl AnimationEncoder {
    fn finish(&self, at: i32) -> Result<Vec<u8>, ImageError> {
        let mut data = sys::WebPData {
            bytes: ptr::null(),
            size: 0,
        };
        // SAFETY: the encoder is alive; null is the end, whose time is that of the last picture. After success the data
        // are ours; they are copied and freed.
        unsafe {
            let ended = sys::WebPAnimEncoderAdd(self.0, ptr::null_mut(), at, ptr::null());
            if ended == 0 || sys::WebPAnimEncoderAssemble(self.0, &raw mut data) == 0 {
                return Err(malformed("libwebp makes no animation of it"));
            }
            let bytes = slice::from_raw_parts(data.bytes, data.size).to_vec();
            sys::WebPDataClear(&mut data);
            Ok(bytes)
        }
    }
}

impl Drop for AnimationEncoder {
    fn drop(&mut self) {
        // SAFETY: the encoder is ours, and gone after this.
        unsafe { sys::WebPAnimEncoderDelete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{WHOLE, difference, read, still, waves};

    #[test]
    fn what_is_written_is_read_again() {
        for kind in [PixelKind::Rgb, PixelKind::Rgba] {
            let raster = waves(123, 77, kind);
            let raster = if kind == PixelKind::Rgba {
                raster.map(kind, |pixel| [pixel[0], pixel[1], pixel[2], 200])
            } else {
                raster
            };
            let bytes = WebP.write(&still(raster.clone()), 90).expect("it is written");
            let found = read(&WebP, &bytes, &WHOLE).expect("it is read");
            let difference = difference(&raster, &found.frames[0].raster);
            assert!(difference < 3.0, "{kind:?}: {difference}");
        }
    }

    #[test]
    fn grey_is_written_as_colour() {
        let bytes = WebP
            .write(&still(waves(40, 30, PixelKind::Grey)), 90)
            .expect("it is written");
        assert_eq!(
            read(&WebP, &bytes, &WHOLE).expect("it is read").frames[0].raster.kind,
            PixelKind::Rgb
        );
    }

    #[test]
    fn a_smaller_picture_is_read_smaller_but_not_too_small() {
        let bytes = WebP
            .write(&still(waves(400, 200, PixelKind::Rgb)), 90)
            .expect("it is written");
        for (reduction, width) in [(1.0, 400), (1.9, 400), (2.0, 200), (5.0, 80)] {
            let options = ReadOptions { reduction, ..WHOLE };
            assert_eq!(
                read(&WebP, &bytes, &options).expect("it is read").frames[0]
                    .raster
                    .width,
                width
            );
        }
    }

    #[test]
    fn an_animation_survives() {
        let picture = |shade: u8, delay| Picture {
            raster: Raster::filled(16, 8, PixelKind::Rgba, &[shade, shade, shade, 255]),
            delay,
        };
        let pictures = Pictures {
            frames: vec![picture(0, 100), picture(128, 40), picture(255, 70)],
            loops: 2,
            copyright: None,
        };
        let bytes = WebP.write(&pictures, 90).expect("it is written");
        let options = ReadOptions {
            animated: true,
            ..WHOLE
        };
        let found = read(&WebP, &bytes, &options).expect("it is read");
        assert_eq!((found.frames.len(), found.loops), (3, 2));
        for (found, picture) in found.frames.iter().zip(&pictures.frames) {
            assert_eq!(found.delay, picture.delay);
            assert!(difference(&found.raster, &picture.raster) < 3.0);
        }
        assert_eq!(read(&WebP, &bytes, &WHOLE).expect("it is read").frames.len(), 1);
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        let bytes = WebP
            .write(&still(waves(100, 100, PixelKind::Rgb)), 90)
            .expect("it is written");
        for length in (30..bytes.len()).step_by(97) {
            assert!(read(&WebP, &bytes[..length], &WHOLE).is_err(), "{length}");
        }
    }
}
