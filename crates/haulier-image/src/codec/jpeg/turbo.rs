//! JPEG by libjpeg-turbo, which reduces pictures in the inverse transform and uses vector instructions.
#![allow(unsafe_code)] // the TurboJPEG API, a C library

use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr;
use std::slice;

use turbojpeg_sys as sys;

use crate::codec::jpeg::{FULL_COLOUR, divisor, inks, memory, opaque, scans};
use crate::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::copyright;
use crate::error::{ImageError, malformed};
use crate::original::{Original, jpeg};
use crate::raster::{PixelKind, Raster};

/// Most scans: each costs a full pass, and no encoder writes as many.
const MOST_SCANS: c_int = 100;
/// Most pixels of a picture that gets optimised Huffman tables: they save a tenth of the bytes of small pictures.
const OPTIMISED: u32 = 1 << 17;

/// The fast codec.
pub(super) struct Turbo;

impl Codec for Turbo {
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
        let mut handle = Handle::new(sys::TJINIT_TJINIT_DECOMPRESS)?;
        handle.set(sys::TJPARAM_TJPARAM_SCANLIMIT, MOST_SCANS)?;
        let raster = inks(handle.decompress(&shorter, divisor, options.grey)?, bytes);
        each(Picture { raster, delay: 0 })?;
        Ok(0)
    }

    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError> {
        let raster = opaque(pictures.first());
        let sampling = match raster.kind {
            PixelKind::Grey => sys::TJSAMP_TJSAMP_GRAY,
            _ if quality >= FULL_COLOUR => sys::TJSAMP_TJSAMP_444,
            _ => sys::TJSAMP_TJSAMP_420,
        };
        let mut handle = Handle::new(sys::TJINIT_TJINIT_COMPRESS)?;
        handle.set(sys::TJPARAM_TJPARAM_QUALITY, c_int::from(quality))?;
        handle.set(sys::TJPARAM_TJPARAM_SUBSAMP, sampling as c_int)?;
        let optimised = raster.width * raster.height <= OPTIMISED;
        handle.set(sys::TJPARAM_TJPARAM_OPTIMIZE, c_int::from(optimised))?;
        let bytes = handle.compress(&raster)?;
        Ok(copyright::into_jpeg(bytes, pictures.copyright.as_ref()))
    }
}

/// An instance of the library.
struct Handle(sys::tjhandle);

impl Handle {
    fn new(kind: sys::TJINIT) -> Result<Self, ImageError> {
        // SAFETY: takes a number and gives null or an instance that is ours.
        let handle = unsafe { sys::tj3Init(kind as c_int) };
        if handle.is_null() {
            return Err(malformed("libjpeg-turbo has no memory"));
        }
        Ok(Self(handle))
    }

    fn set(&mut self, parameter: c_uint, value: c_int) -> Result<(), ImageError> {
        // SAFETY: the instance is ours and alive; parameter and value are numbers.
        let result = unsafe { sys::tj3Set(self.0, parameter as c_int, value) };
        self.check(result)
    }

    fn get(&self, parameter: c_uint) -> c_int {
        // SAFETY: the instance is ours and alive.
        unsafe { sys::tj3Get(self.0, parameter as c_int) }
    }

    fn check(&self, result: c_int) -> Result<(), ImageError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the message belongs to the instance, ends in NUL, and is copied at once.
        let message = unsafe { CStr::from_ptr(sys::tj3GetErrorStr(self.0)) };
        Err(malformed(message.to_string_lossy()))
    }

    /// As `check`, but a damaged picture is accepted, as in browsers.
    fn check_pixels(&self, result: c_int) -> Result<(), ImageError> {
        // SAFETY: the instance is ours and alive.
        let fatal = unsafe { sys::tj3GetErrorCode(self.0) } != sys::TJERR_TJERR_WARNING as c_int;
        if fatal { self.check(result) } else { Ok(()) }
    }

    fn decompress(&mut self, bytes: &[u8], divisor: u32, grey: bool) -> Result<Raster, ImageError> {
        // SAFETY: the bytes are alive for the call and have the length that is given.
        let result = unsafe { sys::tj3DecompressHeader(self.0, bytes.as_ptr(), bytes.len() as sys::size_t) };
        self.check(result)?;
        let colours = self.get(sys::TJPARAM_TJPARAM_COLORSPACE);
        let (kind, format) = match colours as c_uint {
            sys::TJCS_TJCS_CMYK | sys::TJCS_TJCS_YCCK => (PixelKind::Cmyk, sys::TJPF_TJPF_CMYK),
            sys::TJCS_TJCS_GRAY => (PixelKind::Grey, sys::TJPF_TJPF_GRAY),
            sys::TJCS_TJCS_YCbCr if grey => (PixelKind::Grey, sys::TJPF_TJPF_GRAY),
            _ => (PixelKind::Rgb, sys::TJPF_TJPF_RGB),
        };
        let scale = sys::tjscalingfactor {
            num: 1,
            denom: divisor as c_int,
        };
        // SAFETY: the instance is ours and alive; the factor is a plain value.
        let result = unsafe { sys::tj3SetScalingFactor(self.0, scale) };
        self.check(result)?;
        let side = |parameter| self.get(parameter).unsigned_abs().div_ceil(divisor);
        let width = side(sys::TJPARAM_TJPARAM_JPEGWIDTH);
        let height = side(sys::TJPARAM_TJPARAM_JPEGHEIGHT);
        let row = width as usize * kind.channels();
        let mut data = vec![0; row * height as usize];
        // SAFETY: the library writes `height` rows of `row` bytes, sizes it has said itself and scales in the same way
        // (TJSCALED rounds up); the bytes it reads are alive and have the length that is given.
        let result = unsafe {
            sys::tj3Decompress8(
                self.0,
                bytes.as_ptr(),
                bytes.len() as sys::size_t,
                data.as_mut_ptr(),
                row as c_int,
                format,
            )
        };
        if result != 0 {
            self.check_pixels(result)?;
        }
        Raster::new(width, height, kind, data)
    }

    fn compress(&mut self, raster: &Raster) -> Result<Vec<u8>, ImageError> {
        let format = if raster.kind == PixelKind::Grey {
            sys::TJPF_TJPF_GRAY
        } else {
            sys::TJPF_TJPF_RGB
        };
        let mut buffer: *mut u8 = ptr::null_mut();
        let mut length: sys::size_t = 0;
        // SAFETY: the raster has `height` rows of `row` bytes, as its constructor has checked. The library allocates
        // the buffer, because it begins as null.
        let result = unsafe {
            sys::tj3Compress8(
                self.0,
                raster.data.as_ptr(),
                raster.width as c_int,
                raster.row() as c_int,
                raster.height as c_int,
                format,
                &raw mut buffer,
                &raw mut length,
            )
        };
        let written = self.check(result).map(|()| {
            // SAFETY: after success the buffer holds `length` bytes.
            unsafe { slice::from_raw_parts(buffer, length as usize) }.to_vec()
        });
        // SAFETY: the buffer came from the library's allocator, or is null; it is not used after this.
        unsafe { sys::tj3Free(buffer.cast()) };
        written
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the instance is ours, and gone after this.
        unsafe { sys::tj3Destroy(self.0) };
    }
}
