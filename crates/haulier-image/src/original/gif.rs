//! The header of a GIF (GIF89a §18), and a count of its pictures.

use crate::format::Format;
use crate::original::Original;
use crate::original::number::le16;

/// Reads the header, and counts frames up to one above the limit.
pub(super) fn read(bytes: &[u8], most_frames: u32) -> Option<Original> {
    let (width, height) = (le16(bytes, 6)?, le16(bytes, 8)?);
    let packed = *bytes.get(10)?;
    let frames = count(bytes, 13 + table(packed), most_frames);
    let original = Original::still(Format::Gif, u32::from(width), u32::from(height), 4);
    Some(Original {
        frames: frames.max(1),
        ..original
    })
}

/// Bytes of a colour table, by its packed field.
fn table(packed: u8) -> usize {
    if packed & 0x80 == 0 { 0 } else { 3 << ((packed & 7) + 1) }
}

fn count(bytes: &[u8], mut at: usize, most: u32) -> u32 {
    let mut frames = 0;
    while frames <= most {
        let next = match bytes.get(at) {
            Some(0x21) => blocks(bytes, at + 2),
            Some(0x2c) => {
                frames += 1;
                let packed = bytes.get(at + 9).copied().unwrap_or(0);
                blocks(bytes, at + 11 + table(packed))
            }
            _ => None,
        };
        let Some(next) = next else { break };
        at = next;
    }
    frames
}

/// The offset after a series of sub-blocks.
fn blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length => at += usize::from(length) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(frames: usize) -> Vec<u8> {
        let mut image = b"GIF89a\x40\x01\xc8\x00\x80\x00\x00".to_vec();
        image.extend([0; 6]);
        for _ in 0..frames {
            image.extend(b"\x21\xf9\x04\x00\x00\x00\x00\x00");
            image.extend(b"\x2c\0\0\0\0\x40\x01\xc8\0\x80");
            image.extend([0; 6]);
            image.extend(b"\x02\x02\x4c\x01\x01\x00\x00");
        }
        image.push(0x3b);
        image
    }

    #[test]
    fn pictures_are_counted_up_to_the_limit() {
        for (frames, counted) in [(0, 1), (1, 1), (7, 7), (10, 10), (50, 11)] {
            let original = read(&image(frames), 10).expect("a header");
            assert_eq!((original.width, original.height, original.frames), (320, 200, counted));
        }
    }

    #[test]
    fn a_file_cut_short_ends_the_count() {
        let whole = image(3);
        for length in 13..whole.len() {
            assert!(read(&whole[..length], 10).expect("a header").frames <= 3);
        }
    }
}
