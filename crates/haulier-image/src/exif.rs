//! Exif (2.32 §4.6): reads orientation, author and copyright; writes author and copyright.

use crate::orientation::Orientation;

/// Tag of the author.
pub(crate) const ARTIST: u16 = 315;
/// Tag of the copyright.
pub(crate) const COPYRIGHT: u16 = 33_432;
const ORIENTATION: u16 = 274;
/// Types of TIFF.
const ASCII: u16 = 2;
const SHORT: u16 = 3;
/// Most entries that are read; an IFD0 has about a dozen.
const MOST_ENTRIES: u16 = 512;

/// The orientation in a TIFF structure; upright if it is missing or broken.
pub(crate) fn orientation(tiff: &[u8]) -> Orientation {
    let found = Directory::of(tiff).and_then(|directory| directory.number(ORIENTATION));
    found.map_or(Orientation::UPRIGHT, Orientation::of)
}

/// The text of a tag as stored: it ends with a NUL, and may contain some.
pub(crate) fn text(tiff: &[u8], tag: u16) -> Option<&[u8]> {
    Directory::of(tiff)?.text(tag)
}

/// The first directory of a TIFF structure.
struct Directory<'a> {
    tiff: &'a [u8],
    big: bool,
    at: usize,
    entries: u16,
}

impl<'a> Directory<'a> {
    fn of(tiff: &'a [u8]) -> Option<Self> {
        let big = match tiff.get(..4)? {
            b"MM\0*" => true,
            b"II*\0" => false,
            _ => return None,
        };
        let mut directory = Self {
            tiff,
            big,
            at: 0,
            entries: 0,
        };
        directory.at = usize::try_from(directory.long(4)?).ok()?;
        directory.entries = directory.short(directory.at)?.min(MOST_ENTRIES);
        Some(directory)
    }

    fn short(&self, at: usize) -> Option<u16> {
        let pair = self.tiff.get(at..at.checked_add(2)?)?;
        let pair = [pair[0], pair[1]];
        Some(if self.big {
            u16::from_be_bytes(pair)
        } else {
            u16::from_le_bytes(pair)
        })
    }

    fn long(&self, at: usize) -> Option<u32> {
        let (first, second) = (u32::from(self.short(at)?), u32::from(self.short(at.checked_add(2)?)?));
        Some(if self.big {
            first << 16 | second
        } else {
            second << 16 | first
        })
    }

    /// Offset of the entry of a tag and type.
    fn entry(&self, tag: u16, kind: u16) -> Option<usize> {
        (0..usize::from(self.entries))
            .map(|index| self.at + 2 + 12 * index)
            .find(|&entry| self.short(entry) == Some(tag) && self.short(entry + 2) == Some(kind))
    }

    fn number(&self, tag: u16) -> Option<u16> {
        self.short(self.entry(tag, SHORT)? + 8)
    }

    fn text(&self, tag: u16) -> Option<&'a [u8]> {
        let entry = self.entry(tag, ASCII)?;
        let length = usize::try_from(self.long(entry + 4)?).ok()?;
        // A value that fits is stored in the entry.
        let place = match length {
            0..=4 => entry + 8,
            _ => usize::try_from(self.long(entry + 8)?).ok()?,
        };
        self.tiff.get(place..place.checked_add(length)?)
    }
}

/// Writes a TIFF structure of these texts. Tags must ascend, and texts must have no NUL.
pub(crate) fn of_texts(texts: &[(u16, &str)]) -> Vec<u8> {
    let mut tiff = b"MM\0*\0\0\0\x08".to_vec();
    tiff.extend((texts.len() as u16).to_be_bytes());
    // Values follow the entries and the offset of the next directory, which is 0.
    let mut place = tiff.len() + 12 * texts.len() + 4;
    let mut values = Vec::new();
    for (tag, text) in texts {
        let length = text.len() + 1;
        tiff.extend(tag.to_be_bytes());
        tiff.extend(ASCII.to_be_bytes());
        tiff.extend((length as u32).to_be_bytes());
        if length <= 4 {
            let mut value = [0; 4];
            value[..text.len()].copy_from_slice(text.as_bytes());
            tiff.extend(value);
            continue;
        }
        tiff.extend((place as u32).to_be_bytes());
        values.extend_from_slice(text.as_bytes());
        // Values begin at even offsets.
        values.resize(values.len() + 1 + length % 2, 0);
        place += length + length % 2;
    }
    tiff.extend([0; 4]);
    tiff.extend(values);
    tiff
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
    fn texts_are_found_as_they_were_written() {
        let texts = [(ARTIST, "A. Müller"), (COPYRIGHT, "me")];
        let tiff = of_texts(&texts);
        assert_eq!(text(&tiff, ARTIST), Some("A. Müller\0".as_bytes()));
        assert_eq!(text(&tiff, COPYRIGHT), Some(&b"me\0"[..]));
        assert_eq!(text(&tiff, 270), None);
        assert_eq!(orientation(&tiff), Orientation::UPRIGHT);
        assert_eq!(text(&of_texts(&texts[1..]), COPYRIGHT), Some(&b"me\0"[..]));
        for length in 0..tiff.len() {
            let _ = text(&tiff[..length], COPYRIGHT);
        }
        let mut lying = tiff;
        lying[14..18].copy_from_slice(&[0xff; 4]);
        assert_eq!(text(&lying, ARTIST), None);
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
