//! The size of an AVIF (ISO/IEC 23008-12 §6.5.3): that of the largest image in its `meta` box.

use crate::format::Format;
use crate::original::Original;
use crate::original::number::be32;

/// The nested boxes that lead to the properties, each with the bytes before its first child.
const OUTER_BOXES: [(&[u8; 4], usize); 3] = [(b"meta", 4), (b"iprp", 0), (b"ipco", 0)];

/// The type of an auxiliary image with opacity.
const ALPHA: &[u8] = b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha";

pub(super) fn read(bytes: &[u8]) -> Option<Original> {
    let mut inside = bytes;
    for (name, skipped) in OUTER_BOXES {
        inside = Boxes { bytes: inside }
            .find(|(found, _)| found == name)?
            .1
            .get(skipped..)?;
    }
    let (mut width, mut height, mut alpha) = (0, 0, false);
    for (name, content) in (Boxes { bytes: inside }) {
        match &name {
            b"ispe" => {
                let size = (be32(content, 4)?, be32(content, 8)?);
                if u64::from(size.0) * u64::from(size.1) > u64::from(width) * u64::from(height) {
                    (width, height) = size;
                }
            }
            b"auxC" => alpha |= content.get(4..).is_some_and(|urn| urn.starts_with(ALPHA)),
            _ => {}
        }
    }
    let channels = if alpha { 4 } else { 3 };
    Some(Original::still(Format::Avif, width, height, channels))
}

/// Boxes by name and content, up to the first incomplete one.
struct Boxes<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Boxes<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::try_from(be32(self.bytes, 0)?).ok()?;
        let name = self.bytes.get(4..8)?.try_into().ok()?;
        let end = if length == 0 { self.bytes.len() } else { length };
        let content = self.bytes.get(8..end)?;
        self.bytes = &self.bytes[end..];
        Some((name, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32 + 8).to_be_bytes()[..], name, content].concat()
    }

    fn image(properties: &[Vec<u8>]) -> Vec<u8> {
        let inner = boxed(b"iprp", &boxed(b"ipco", &properties.concat()));
        let meta = boxed(b"meta", &[&[0; 4][..], &boxed(b"hdlr", &[0; 8]), &inner].concat());
        [boxed(b"ftyp", b"avif\0\0\0\0"), meta].concat()
    }

    fn size(width: u32, height: u32) -> Vec<u8> {
        boxed(
            b"ispe",
            &[&[0; 4][..], &width.to_be_bytes(), &height.to_be_bytes()].concat(),
        )
    }

    #[test]
    fn the_largest_image_counts() {
        let bytes = image(&[size(160, 100), size(320, 200), size(10, 10)]);
        let original = read(&bytes).expect("a header");
        assert_eq!((original.width, original.height, original.alpha), (320, 200, false));
    }

    #[test]
    fn boxes_that_lie_end_the_search() {
        let mut bytes = image(&[size(160, 100)]);
        let at = bytes.windows(4).position(|name| name == b"ispe").expect("it is there") - 4;
        for length in [1_u32, 7, 100, u32::MAX] {
            bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
            assert_eq!(read(&bytes).map(|original| original.width), Some(0));
        }
    }
}
