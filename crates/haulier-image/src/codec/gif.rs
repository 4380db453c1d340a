//! GIF, by the `gif` crate. Frames are composed here (GIF89a §23), so every picture is complete.

use std::io::Cursor;
use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, Decoder, DisposalMethod, Encoder, Extension, Frame, MemoryLimit, Repeat};

use crate::codec::{Codec, Each, Picture, Pictures, ReadOptions};
use crate::error::{ImageError, malformed};
use crate::original::Original;
use crate::raster::{PixelKind, Raster};

/// Speed of the quantiser, from 1 (fine) to 30.
const SPEED: i32 = 10;
/// Browsers show a frame with a delay below 20 ms for 100 ms. In hundredths of a second.
const SHORTEST: u16 = 2;
const USUAL: u16 = 10;

/// The codec.
pub(super) struct Gif;

impl Codec for Gif {
    fn profile(&self, _: &[u8]) -> Option<Vec<u8>> {
        None // no encoder writes the extension for it
    }

    /// The canvas, the saved canvas below a frame, and the frame itself, which may be as large.
    fn memory(&self, original: &Original, _: &ReadOptions) -> u64 {
        u64::from(original.width) * u64::from(original.height) * 4 * 3
    }

    fn read(
        &self,
        bytes: &[u8],
        original: &Original,
        options: &ReadOptions,
        each: &mut Each<'_>,
    ) -> Result<u16, ImageError> {
        let mut decoding = DecodeOptions::new();
        decoding.set_color_output(ColorOutput::RGBA);
        // A frame may claim to be larger than the canvas.
        let canvas = u64::from(original.width) * u64::from(original.height) * 4;
        let limit = NonZeroU64::new(canvas.saturating_add(1 << 16)).ok_or_else(|| malformed("no canvas"))?;
        decoding.set_memory_limit(MemoryLimit::Bytes(limit));
        let mut decoder = decoding.read_info(Cursor::new(bytes)).map_err(malformed)?;
        let loops = match decoder.repeat() {
            Repeat::Infinite => 0,
            Repeat::Finite(times) => times,
        };
        let mut canvas = Canvas::new(original.width, original.height);
        let mut shown = 0;
        while let Some(delay) = next(&mut decoder, &mut canvas, shown)? {
            shown += 1;
            each(Picture {
                raster: canvas.picture()?,
                delay,
            })?;
            if !options.animated {
                break;
            }
            canvas.dispose();
        }
        Ok(loops)
    }

    fn write(&self, pictures: &Pictures, _: u8) -> Result<Vec<u8>, ImageError> {
        let first = pictures.first();
        let (width, height) = (side(first.width)?, side(first.height)?);
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, width, height, &[]).map_err(malformed)?;
        if pictures.frames.len() > 1 {
            let repeat = match pictures.loops {
                0 => Repeat::Infinite,
                times => Repeat::Finite(times),
            };
            encoder.set_repeat(repeat).map_err(malformed)?;
        }
        if let Some(copyright) = &pictures.copyright {
            let line = copyright.line();
            let comment = encoder.write_raw_extension(Extension::Comment.into(), &[line.as_bytes()]);
            comment.map_err(malformed)?;
        }
        for picture in &pictures.frames {
            encoder.write_frame(&frame(picture, width, height)).map_err(malformed)?;
        }
        drop(encoder);
        Ok(bytes)
    }
}

/// Draws the next frame on the canvas and returns its display time, milliseconds. A file that is cut after a picture
/// ends there.
fn next(decoder: &mut Decoder<Cursor<&[u8]>>, canvas: &mut Canvas, shown: usize) -> Result<Option<u32>, ImageError> {
    match decoder.read_next_frame() {
        Ok(Some(frame)) => {
            canvas.lay(frame);
            let delay = if frame.delay < SHORTEST { USUAL } else { frame.delay };
            Ok(Some(u32::from(delay) * 10))
        }
        Ok(None) => Ok(None),
        Err(_) if shown > 0 => Ok(None),
        Err(error) => Err(malformed(error)),
    }
}

fn side(side: u32) -> Result<u16, ImageError> {
    u16::try_from(side).map_err(malformed)
}

fn frame(picture: &Picture, width: u16, height: u16) -> Frame<'static> {
    let mut pixels = picture.raster.clone().in_colour().with_alpha().data;
    let mut frame = Frame::from_rgba_speed(width, height, &mut pixels, SPEED);
    frame.delay = u16::try_from(picture.delay / 10).unwrap_or(u16::MAX);
    // Every picture is complete, so the previous one must not show through its transparent pixels.
    frame.dispose = DisposalMethod::Background;
    frame
}

/// The canvas, with the disposal of the last frame on it.
struct Canvas {
    width: usize,
    height: usize,
    data: Vec<u8>,
    /// Disposal of the last frame before the next one.
    disposal: DisposalMethod,
    /// Left, top, width and height of the last frame, within the canvas.
    last: [usize; 4],
    /// The canvas before a frame that is removed again.
    beneath: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Self {
        let (width, height) = (width as usize, height as usize);
        Self {
            width,
            height,
            data: vec![0; width * height * 4],
            disposal: DisposalMethod::Keep,
            last: [0; 4],
            beneath: Vec::new(),
        }
    }

    fn picture(&self) -> Result<Raster, ImageError> {
        Raster::new(
            self.width as u32,
            self.height as u32,
            PixelKind::Rgba,
            self.data.clone(),
        )
    }

    /// Draws a frame, clipped to the canvas.
    fn lay(&mut self, frame: &Frame<'_>) {
        if frame.dispose == DisposalMethod::Previous {
            self.beneath.clone_from(&self.data);
        }
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        let row = usize::from(frame.width);
        let width = row.min(self.width.saturating_sub(left));
        let height = usize::from(frame.height).min(self.height.saturating_sub(top));
        self.disposal = frame.dispose;
        self.last = [left, top, width, height];
        if width == 0 || height == 0 {
            self.last = [0; 4];
            return;
        }
        for y in 0..height {
            let from = &frame.buffer[y * row * 4..][..width * 4];
            let to = &mut self.data[((top + y) * self.width + left) * 4..][..width * 4];
            for (to, from) in to.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
                if from[3] != 0 {
                    to.copy_from_slice(from);
                }
            }
        }
    }

    /// Disposes of the last frame.
    fn dispose(&mut self) {
        let [left, top, width, height] = self.last;
        match self.disposal {
            DisposalMethod::Any | DisposalMethod::Keep => {}
            DisposalMethod::Previous => std::mem::swap(&mut self.data, &mut self.beneath),
            DisposalMethod::Background => {
                for y in top..top + height {
                    self.data[(y * self.width + left) * 4..][..width * 4].fill(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{WHOLE, read, still, waves};

    const ALL: ReadOptions = ReadOptions {
        animated: true,
        ..WHOLE
    };

    /// Three colours on a canvas of 4 × 1, frame by frame: where, how many pixels, which colour, and what becomes of
    /// it.
    fn animation(frames: &[(u16, u16, u8, DisposalMethod)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let palette = [0, 0, 0, 10, 10, 10, 20, 20, 20, 30, 30, 30];
        let mut encoder = Encoder::new(&mut bytes, 4, 1, &palette).expect("an encoder");
        encoder.set_repeat(Repeat::Finite(3)).expect("a loop");
        for &(left, width, colour, dispose) in frames {
            let frame = Frame {
                left,
                width,
                height: 1,
                delay: 7,
                dispose,
                transparent: Some(0),
                buffer: vec![colour; usize::from(width)].into(),
                ..Frame::default()
            };
            encoder.write_frame(&frame).expect("a frame");
        }
        drop(encoder);
        bytes
    }

    fn shown(bytes: &[u8]) -> Vec<Vec<u8>> {
        let pictures = read(&Gif, bytes, &ALL).expect("it is read");
        let first_channel = |picture: &Picture| picture.raster.pixels().map(|pixel| pixel[0]).collect();
        pictures.frames.iter().map(first_channel).collect()
    }

    #[test]
    fn frames_lie_over_each_other_as_they_say() {
        use DisposalMethod::{Background, Keep, Previous};
        let bytes = animation(&[
            (0, 4, 1, Keep),
            (1, 1, 2, Previous),
            (2, 1, 3, Background),
            (3, 1, 2, Keep),
        ]);
        assert_eq!(
            shown(&bytes),
            [[10, 10, 10, 10], [10, 20, 10, 10], [10, 10, 30, 10], [10, 10, 0, 20]]
        );
    }

    #[test]
    fn a_frame_that_leaves_the_canvas_is_cut_off() {
        let bytes = animation(&[(0, 4, 1, DisposalMethod::Keep), (3, 4, 2, DisposalMethod::Background)]);
        assert_eq!(shown(&bytes), [[10, 10, 10, 10], [10, 10, 10, 20]]);
        let outside = animation(&[(0, 4, 1, DisposalMethod::Keep), (9, 2, 2, DisposalMethod::Background)]);
        assert_eq!(shown(&outside)[1], [10; 4]);
    }

    #[test]
    fn delay_and_loops_survive() {
        let bytes = animation(&[(0, 4, 1, DisposalMethod::Keep), (0, 4, 2, DisposalMethod::Keep)]);
        let pictures = read(&Gif, &bytes, &ALL).expect("it is read");
        assert_eq!((pictures.loops, pictures.frames[1].delay), (3, 70));
        let again = read(&Gif, &Gif.write(&pictures, 75).expect("it is written"), &ALL).expect("it is read");
        assert_eq!((again.loops, again.frames.len(), again.frames[1].delay), (3, 2, 70));
        assert_eq!(again.frames[1].raster, pictures.frames[1].raster);
    }

    #[test]
    fn a_still_is_the_first_picture() {
        let bytes = animation(&[(0, 4, 1, DisposalMethod::Keep), (0, 4, 2, DisposalMethod::Keep)]);
        assert_eq!(read(&Gif, &bytes, &WHOLE).expect("it is read").frames.len(), 1);
    }

    #[test]
    fn what_breaks_off_is_shown_as_far_as_it_goes() {
        let bytes = animation(&[(0, 4, 1, DisposalMethod::Keep), (0, 4, 2, DisposalMethod::Keep)]);
        let cut = &bytes[..bytes.len() - 3];
        assert_eq!(read(&Gif, cut, &ALL).expect("it is read").frames.len(), 1);
        assert!(read(&Gif, &bytes[..40], &ALL).is_err());
    }

    #[test]
    fn colours_are_chosen_near_enough() {
        let raster = waves(64, 64, PixelKind::Rgba);
        let opaque = raster.map(PixelKind::Rgba, |pixel| [pixel[0], pixel[1], pixel[2], 255]);
        let bytes = Gif.write(&still(opaque.clone()), 75).expect("it is written");
        let found = &read(&Gif, &bytes, &WHOLE).expect("it is read").frames[0].raster;
        let difference = crate::codec::testing::difference(&opaque, found);
        assert!(difference < 12.0, "{difference}");
    }
}
