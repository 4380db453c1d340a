//! The header of a JPEG (ITU-T T.81 annex B): frame, quantisation, orientation, colour profile.

use crate::exif;
use crate::format::Format;
use crate::orientation::Orientation;
use crate::original::Original;
use crate::original::number::be16;

/// A marker segment.
pub(crate) struct Segment<'a> {
    /// The second byte of the marker.
    pub(crate) marker: u8,
    /// Its content, without the length.
    pub(crate) content: &'a [u8],
    /// Offset at which the search for the next marker begins.
    pub(crate) end: usize,
}

/// The segments of a JPEG, up to the first broken one.
pub(crate) struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// All segments after the start of the image.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 2 }
    }

    /// Continues after the data of a scan.
    pub(crate) fn go_to(&mut self, at: usize) {
        self.at = at;
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        // Any number of fill bytes may stand before a marker.
        while *self.bytes.get(self.at)? == 0xff && *self.bytes.get(self.at + 1)? == 0xff {
            self.at += 1;
        }
        if self.bytes[self.at] != 0xff {
            return None;
        }
        let marker = *self.bytes.get(self.at + 1)?;
        self.at += 2;
        if has_no_length(marker) {
            return Some(Segment {
                marker,
                content: &[],
                end: self.at,
            });
        }
        let length = usize::from(be16(self.bytes, self.at)?);
        let content = self.bytes.get(self.at + 2..self.at + length.max(2))?;
        self.at += length.max(2);
        Some(Segment {
            marker,
            content,
            end: self.at,
        })
    }
}

/// True for TEM, RSTn, SOI and EOI, which have no content.
fn has_no_length(marker: u8) -> bool {
    matches!(marker, 0x01 | 0xd0..=0xd9)
}

/// True for SOF0 to SOF15, without DHT, JPG and DAC.
pub(crate) fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc)
}

pub(crate) const SCAN: u8 = 0xda;
pub(crate) const END: u8 = 0xd9;

pub(super) fn read(bytes: &[u8]) -> Option<Original> {
    let (mut frame, mut orientation, mut quality) = (None, None, None);
    for segment in Segments::of(bytes) {
        match (segment.marker, segment.content) {
            (marker, content) if is_frame(marker) => frame = Some((marker, content)),
            (0xdb, content) => quality = quality.or_else(|| quality_of(content)),
            (0xe1, content) => {
                // Of several Exif blocks the first one counts, as in other programs.
                let tiff = content.strip_prefix(b"Exif\0\0").filter(|_| orientation.is_none());
                orientation = orientation.or(tiff.map(exif::orientation));
            }
            (SCAN | END, _) => break,
            _ => {}
        }
    }
    let (marker, frame) = frame?;
    let channels = *frame.get(5)?;
    let original = Original::still(
        Format::Jpeg,
        u32::from(be16(frame, 3)?),
        u32::from(be16(frame, 1)?),
        channels.clamp(1, 4),
    );
    Some(Original {
        orientation: orientation.unwrap_or(Orientation::UPRIGHT),
        quality,
        progressive: matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce),
        ..original
    })
}

/// The profile in the APP2 segments (ICC.1 annex B.4), if it is complete.
pub(crate) fn profile(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<(u8, &[u8])> = Vec::new();
    let mut count = 0;
    for segment in Segments::of(bytes).take_while(|segment| !matches!(segment.marker, SCAN | END)) {
        let part = segment.content.strip_prefix(b"ICC_PROFILE\0");
        if let (0xe2, Some([number, total, data @ ..])) = (segment.marker, part) {
            parts.push((*number, data));
            count = *total;
        }
    }
    parts.sort_by_key(|&(number, _)| number);
    let complete = !parts.is_empty() && parts.iter().map(|part| part.0).eq(1..=count);
    complete.then(|| parts.into_iter().flat_map(|(_, data)| data).copied().collect())
}

/// True if there is an Adobe segment: CMYK is stored inverted then.
pub(crate) fn is_adobe(bytes: &[u8]) -> bool {
    Segments::of(bytes)
        .take_while(|segment| !matches!(segment.marker, SCAN | END))
        .any(|segment| segment.marker == 0xee && segment.content.starts_with(b"Adobe"))
}

/// Sum of the luminance table of T.81 annex K, which nearly all encoders scale by their quality.
const USUAL_SUM: u32 = 3688;

/// The quality whose scaled table has the sum of the file's first table.
fn quality_of(tables: &[u8]) -> Option<u8> {
    let sum: u32 = match tables.first()? >> 4 {
        0 => tables.get(1..65)?.iter().map(|&value| u32::from(value)).sum(),
        _ => (0..64)
            .map(|index| be16(tables, 1 + 2 * index).map(u32::from))
            .sum::<Option<u32>>()?,
    };
    let percent = (f64::from(sum) * 100.0 / f64::from(USUAL_SUM)).max(1.0);
    // The inverse of jpeg_quality_scaling: 5000 / q below 50, 200 - 2 q above.
    let quality = if percent > 100.0 {
        5000.0 / percent
    } else {
        (200.0 - percent) / 2.0
    };
    Some(quality.round().clamp(1.0, 100.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
        let mut segment = vec![0xff, marker];
        segment.extend((content.len() as u16 + 2).to_be_bytes());
        segment.extend(content);
        segment
    }

    fn frame(marker: u8, width: u16, height: u16, channels: u8) -> Vec<u8> {
        let mut content = vec![8];
        content.extend(height.to_be_bytes());
        content.extend(width.to_be_bytes());
        content.push(channels);
        for channel in 0..channels {
            content.extend([channel, 0x11, 0]);
        }
        segment(marker, &content)
    }

    fn image(segments: &[Vec<u8>]) -> Vec<u8> {
        let mut image = vec![0xff, 0xd8];
        image.extend(segments.concat());
        image.extend(segment(SCAN, &[1, 0, 0, 0, 63, 0]));
        image
    }

    #[test]
    fn the_frame_tells_size_and_channels() {
        let bytes = image(&[segment(0xe0, b"JFIF\0"), vec![0xff, 0xff], frame(0xc2, 640, 856, 3)]);
        let original = Original::read(&bytes, &Limits::default()).expect("a header");
        assert_eq!((original.width, original.height, original.channels), (640, 856, 3));
        assert!(original.progressive && !original.alpha);
        assert_eq!(original.quality, None);
    }

    #[test]
    fn a_frame_behind_the_scan_does_not_count() {
        let mut bytes = image(&[]);
        bytes.extend(frame(0xc0, 10, 10, 1));
        assert!(read(&bytes).is_none());
    }

    #[test]
    fn a_profile_is_put_together_in_order() {
        let part =
            |number: u8, data: &str| segment(0xe2, &[b"ICC_PROFILE\0", &[number, 2][..], data.as_bytes()].concat());
        let bytes = image(&[part(2, "file"), part(1, "pro")]);
        assert_eq!(profile(&bytes).as_deref(), Some(&b"profile"[..]));
        assert_eq!(profile(&image(&[part(2, "file")])), None);
        assert_eq!(profile(&image(&[])), None);
    }

    #[test]
    fn quality_is_estimated_from_the_table() {
        let table = |value: u8| [&[0][..], &[value; 64]].concat();
        // The usual table has a mean of 57.6: quality 50 by definition, a half of it is 75, the double 25.
        for (value, expected) in [(58, 50), (29, 75), (115, 25), (1, 99), (255, 11)] {
            let found = quality_of(&table(value)).expect("a table");
            assert!(found.abs_diff(expected) <= 1, "{value}: {found}");
        }
        assert_eq!(quality_of(&[0, 1, 2]), None);
    }
}
