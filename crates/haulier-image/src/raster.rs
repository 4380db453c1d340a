//! Pixels in memory: eight bits per channel, rows without gaps.

use crate::error::ImageError;

/// The channels of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PixelKind {
    /// Brightness.
    Grey,
    /// Brightness and opacity.
    GreyAlpha,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue and opacity, not premultiplied.
    Rgba,
    /// Inks, 255 is full ink.
    Cmyk,
}

impl PixelKind {
    /// Bytes of a pixel.
    pub(crate) fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba | Self::Cmyk => 4,
        }
    }

    /// True if the last channel is opacity.
    pub(crate) fn has_alpha(self) -> bool {
        matches!(self, Self::GreyAlpha | Self::Rgba)
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raster {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) kind: PixelKind,
    /// The pixels, width × height × channels bytes.
    pub(crate) data: Vec<u8>,
}

impl Raster {
    /// An image of these bytes.
    ///
    /// # Errors
    /// The number of bytes does not match the size.
    pub(crate) fn new(width: u32, height: u32, kind: PixelKind, data: Vec<u8>) -> Result<Self, ImageError> {
        let raster = Self {
            width,
            height,
            kind,
            data,
        };
        if width == 0 || height == 0 || raster.data.len() != raster.row() * height as usize {
            return Err(ImageError::Malformed("pixels do not fill the image".into()));
        }
        Ok(raster)
    }

    /// An image of one colour, given as the bytes of a pixel.
    pub(crate) fn filled(width: u32, height: u32, kind: PixelKind, pixel: &[u8]) -> Self {
        let data = pixel.repeat(width as usize * height as usize);
        Self {
            width,
            height,
            kind,
            data,
        }
    }

    /// Takes the image and leaves an empty one, for a step that replaces it.
    pub(crate) fn take(&mut self) -> Self {
        let nothing = Self {
            width: 0,
            height: 0,
            kind: self.kind,
            data: Vec::new(),
        };
        std::mem::replace(self, nothing)
    }

    /// Bytes of a row.
    pub(crate) fn row(&self) -> usize {
        self.width as usize * self.kind.channels()
    }

    /// All rows, from the top.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator {
        self.data.chunks_exact(self.row())
    }

    /// All pixels, row by row.
    pub(crate) fn pixels(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data.chunks_exact(self.kind.channels())
    }

    /// One pixel.
    pub(crate) fn pixel(&self, x: u32, y: u32) -> &[u8] {
        let channels = self.kind.channels();
        let at = (y as usize * self.width as usize + x as usize) * channels;
        &self.data[at..at + channels]
    }

    /// The image with each pixel converted by `made`.
    pub(crate) fn map<const N: usize>(&self, kind: PixelKind, made: impl Fn(&[u8]) -> [u8; N]) -> Self {
        debug_assert_eq!(kind.channels(), N);
        let mut data = Vec::with_capacity(self.pixels().len() * N);
        for pixel in self.pixels() {
            data.extend_from_slice(&made(pixel));
        }
        Self {
            width: self.width,
            height: self.height,
            kind,
            data,
        }
    }

    /// The image with an opacity channel; not for inks.
    pub(crate) fn with_alpha(self) -> Self {
        match self.kind {
            PixelKind::Grey => self.map(PixelKind::GreyAlpha, |pixel| [pixel[0], 255]),
            PixelKind::Rgb => self.map(PixelKind::Rgba, |pixel| [pixel[0], pixel[1], pixel[2], 255]),
            _ => self,
        }
    }

    /// The image in colour: grey becomes red, green and blue.
    pub(crate) fn in_colour(self) -> Self {
        match self.kind {
            PixelKind::Grey => self.map(PixelKind::Rgb, |pixel| [pixel[0]; 3]),
            PixelKind::GreyAlpha => self.map(PixelKind::Rgba, |pixel| [pixel[0], pixel[0], pixel[0], pixel[1]]),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fill_the_image_are_refused() {
        assert!(Raster::new(2, 2, PixelKind::Rgb, vec![0; 12]).is_ok());
        assert!(Raster::new(2, 2, PixelKind::Rgb, vec![0; 11]).is_err());
        assert!(Raster::new(0, 2, PixelKind::Rgb, vec![]).is_err());
    }

    #[test]
    fn pixels_are_found_and_changed() {
        let raster = Raster::new(2, 1, PixelKind::Grey, vec![10, 20]).expect("it fits");
        assert_eq!(raster.pixel(1, 0), [20]);
        let colour = raster.clone().in_colour();
        assert_eq!(
            (colour.kind, colour.data.as_slice()),
            (PixelKind::Rgb, &[10, 10, 10, 20, 20, 20][..])
        );
        assert_eq!(colour.with_alpha().pixel(1, 0), [20, 20, 20, 255]);
        assert_eq!(raster.with_alpha().data, [10, 255, 20, 255]);
    }
}
