//! The header of a PNG (W3C PNG §11): size, colour type, transparency, Exif.

use crate::exif;
use crate::format::Format;
use crate::original::Original;
use crate::original::number::be32;

pub(super) fn read(bytes: &[u8]) -> Option<Original> {
    if bytes.get(12..16)? != b"IHDR" {
        return None;
    }
    let (width, height) = (be32(bytes, 16)?, be32(bytes, 20)?);
    let colour = *bytes.get(25)?;
    let chunks = Chunks::of(bytes);
    let mut orientation = None;
    let mut transparency = false;
    for (name, content) in chunks.take_while(|(name, _)| name != b"IDAT") {
        match &name {
            b"tRNS" => transparency = true,
            b"eXIf" => orientation = Some(exif::orientation(content)),
            _ => {}
        }
    }
    let channels = match colour {
        0 => 1 + u8::from(transparency),
        4 => 2,
        2 | 3 => 3 + u8::from(transparency),
        6 => 4,
        _ => return None,
    };
    let original = Original::still(Format::Png, width, height, channels);
    Some(Original {
        orientation: orientation.unwrap_or(original.orientation),
        ..original
    })
}

/// Chunks by name and content, up to the first incomplete one.
pub(crate) struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Chunks<'a> {
    /// All chunks after the signature.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 8 }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(be32(self.bytes, self.at)?).ok()?;
        let name = self.bytes.get(self.at + 4..self.at + 8)?.try_into().ok()?;
        let content = self.bytes.get(self.at + 8..(self.at + 8).checked_add(length)?)?;
        self.at += length + 12;
        Some((name, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_be_bytes();
        [&length[..], name, content, &[0; 4]].concat()
    }

    fn image(colour: u8, more: &[Vec<u8>]) -> Vec<u8> {
        let header = [
            &300_u32.to_be_bytes()[..],
            &200_u32.to_be_bytes(),
            &[8, colour, 0, 0, 0],
        ]
        .concat();
        let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
        image.extend(chunk(b"IHDR", &header));
        image.extend(more.concat());
        image.extend(chunk(b"IDAT", b""));
        image
    }

    #[test]
    fn colour_type_and_transparency_tell_the_channels() {
        let transparency = [chunk(b"tRNS", &[0])];
        for (colour, plain, transparent) in [(0, 1, 2), (2, 3, 4), (3, 3, 4), (4, 2, 2), (6, 4, 4)] {
            let original = read(&image(colour, &[])).expect("a header");
            assert_eq!((original.width, original.height, original.channels), (300, 200, plain));
            assert_eq!(original.alpha, plain % 2 == 0);
            assert_eq!(
                read(&image(colour, &transparency)).expect("a header").channels,
                transparent
            );
        }
        assert!(read(&image(5, &[])).is_none());
    }

    #[test]
    fn a_chunk_that_lies_about_its_length_ends_the_search() {
        let mut bytes = image(2, &[]);
        bytes.truncate(33);
        bytes.extend(u32::MAX.to_be_bytes());
        bytes.extend(b"tRNS");
        assert_eq!(read(&bytes).expect("a header").channels, 3);
    }
}
