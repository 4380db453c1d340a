//! The one thing of Exif that changes a picture: its orientation (Exif 2.32 §4.6.4, tag 274).

use crate::original::Orientation;

const ORIENTATION: u16 = 274;
/// Type SHORT of TIFF.
const SHORT: u16 = 3;
/// An IFD0 has a dozen entries; one that claims thousands is not read further.
const MOST_ENTRIES: u16 = 512;

/// Finds the orientation in a TIFF structure; without one, or in a broken one, the image is upright.
pub(crate) fn orientation(tiff: &[u8]) -> Orientation {
    find(tiff).map_or(Orientation::UPRIGHT, Orientation::of)
}

fn find(tiff: &[u8]) -> Option<u16> {
    let big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let pair = tiff.get(at..at.checked_add(2)?)?;
        let pair = [pair[0], pair[1]];
        Some(if big {
            u16::from_be_bytes(pair)
        } else {
            u16::from_le_bytes(pair)
        })
    };
    let long = |at: usize| {
        let (first, second) = (u32::from(short(at)?), u32::from(short(at.checked_add(2)?)?));
        Some(if big {
            first << 16 | second
        } else {
            second << 16 | first
        })
    };
    let directory = usize::try_from(long(4)?).ok()?;
    let entries = short(directory)?.min(MOST_ENTRIES);
    (0..usize::from(entries))
        .map(|index| directory + 2 + 12 * index)
        .find(|&entry| short(entry) == Some(ORIENTATION) && short(entry + 2) == Some(SHORT))
        .and_then(|entry| short(entry + 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a description and an orientation, in both byte orders.
    fn tiff(big: bool, orientation: u16) -> Vec<u8> {
        let short = |number: u16| {
            if big {
                number.to_be_bytes()
            } else {
                number.to_le_bytes()
            }
        };
        let long = |number: u32| {
            if big {
                number.to_be_bytes()
            } else {
                number.to_le_bytes()
            }
        };
        let mut tiff = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        tiff.extend(long(8));
        tiff.extend(short(2));
        for (tag, kind, value) in [(270, 2, 0), (274, 3, orientation)] {
            tiff.extend(short(tag));
            tiff.extend(short(kind));
            tiff.extend(long(1));
            tiff.extend(short(value));
            tiff.extend(short(0));
        }
        tiff.extend(long(0));
        tiff
    }

    #[test]
    fn the_orientation_is_found_in_both_byte_orders() {
        for number in 1..=8 {
            assert_eq!(u16::from(orientation(&tiff(true, number)).number()), number);
            assert_eq!(u16::from(orientation(&tiff(false, number)).number()), number);
        }
    }

    #[test]
    fn anything_cut_short_is_upright() {
        let whole = tiff(true, 6);
        for length in 0..30 {
            assert_eq!(orientation(&whole[..length]), Orientation::UPRIGHT, "{length}");
        }
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), Orientation::UPRIGHT);
        assert_eq!(orientation(&tiff(false, 0)), Orientation::UPRIGHT);
    }
}
