//! The header of a WebP (RFC 9649 §2), and a count of its frames.

use crate::exif;
use crate::format::Format;
use crate::original::Original;
use crate::original::number::{le16, le32};

pub(super) fn read(bytes: &[u8]) -> Option<Original> {
    let mut original: Option<Original> = None;
    let mut frames = 0_u32;
    for (name, content) in Chunks::of(bytes) {
        match &name {
            b"VP8X" => original = original.or(Some(extended(content)?)),
            b"VP8L" => original = original.or(Some(lossless(content)?)),
            b"VP8 " => original = original.or(Some(lossy(content)?)),
            b"ANMF" => frames += 1,
            b"EXIF" => {
                if let Some(original) = &mut original {
                    let tiff = content.strip_prefix(b"Exif\0\0").unwrap_or(content);
                    original.orientation = exif::orientation(tiff);
                }
            }
            _ => {}
        }
    }
    original.map(|original| Original {
        frames: frames.max(1),
        ..original
    })
}

/// The colour profile of an extended file.
pub(crate) fn profile(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut chunks = Chunks::of(bytes);
    chunks
        .find(|(name, _)| name == b"ICCP")
        .map(|(_, content)| content.to_vec())
}

fn extended(content: &[u8]) -> Option<Original> {
    let three = |at: usize| Some(le32(content, at)? & 0x00ff_ffff);
    let (width, height) = (
        three(4)? + 1,
        u32::from(le16(content, 7)?) | u32::from(*content.get(9)?) << 16,
    );
    let alpha = content.first()? & 0x12 != 0; // transparency, or an animation that may have it
    let channels = if alpha { 4 } else { 3 };
    Some(Original::still(Format::WebP, width, height + 1, channels))
}

fn lossless(content: &[u8]) -> Option<Original> {
    let bits = le32(content, 1).filter(|_| content[0] == 0x2f)?;
    let (width, height) = ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1);
    let channels = if bits >> 28 & 1 == 1 { 4 } else { 3 };
    Some(Original::still(Format::WebP, width, height, channels))
}

fn lossy(content: &[u8]) -> Option<Original> {
    if content.get(3..6)? != [0x9d, 0x01, 0x2a] {
        return None;
    }
    let (width, height) = (le16(content, 6)? & 0x3fff, le16(content, 8)? & 0x3fff);
    Some(Original::still(Format::WebP, u32::from(width), u32::from(height), 3))
}

/// Chunks by name and content. Of a chunk that is cut, the existing part is returned, since decoders read such files.
pub(crate) struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Chunks<'a> {
    /// All chunks after the signature.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 12 }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.bytes.get(self.at..self.at.checked_add(4)?)?.try_into().ok()?;
        let length = usize::try_from(le32(self.bytes, self.at + 4)?).ok()?;
        let rest = self.bytes.get(self.at + 8..)?;
        self.at = self.at.checked_add(8)?.checked_add(length)?.checked_add(length & 1)?;
        Some((name, &rest[..length.min(rest.len())]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_le_bytes();
        let filler = if content.len() % 2 == 1 { &[0][..] } else { &[] };
        [&name[..], &length, content, filler].concat()
    }

    fn image(chunks: &[Vec<u8>]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WEBP".to_vec(), chunks.concat()].concat()
    }

    #[test]
    fn all_three_kinds_tell_their_size() {
        let lossy = chunk(b"VP8 ", &[0, 0, 0, 0x9d, 1, 0x2a, 0x40, 1, 0xc8, 0x40]);
        let bits: u32 = 319 | 199 << 14 | 1 << 28;
        let lossless = chunk(b"VP8L", &[&[0x2f][..], &bits.to_le_bytes()].concat());
        let extended = chunk(b"VP8X", &[0x10, 0, 0, 0, 0x3f, 1, 0, 0xc7, 0, 0]);
        for (chunk, channels) in [(lossy, 3), (lossless, 4), (extended, 4)] {
            let original = read(&image(&[chunk])).expect("a header");
            assert_eq!(
                (original.width, original.height, original.channels),
                (320, 200, channels)
            );
        }
    }

    #[test]
    fn frames_profile_and_orientation_of_an_extended_file_are_found() {
        let tiff = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let bytes = image(&[
            chunk(b"VP8X", &[0x2e, 0, 0, 0, 0x3f, 1, 0, 0xc7, 0, 0]),
            chunk(b"ICCP", b"odd"),
            chunk(b"ANMF", b""),
            chunk(b"ANMF", b""),
            chunk(b"EXIF", tiff),
        ]);
        let original = read(&bytes).expect("a header");
        assert_eq!(original.frames, 2);
        assert_eq!(original.orientation.number(), 6);
        assert_eq!(profile(&bytes).as_deref(), Some(&b"odd"[..]));
    }

    #[test]
    fn a_length_without_end_ends_the_search() {
        let mut bytes = image(&[chunk(b"VP8X", &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0])]);
        bytes.extend(b"ANMF\xff\xff\xff\xff");
        assert_eq!(read(&bytes).expect("a header").frames, 1);
    }
}
