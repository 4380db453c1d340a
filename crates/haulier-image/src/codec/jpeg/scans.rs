//! A progressive JPEG without the scans that nobody looks at.
//!
//! A picture at an eighth of its size is made of the mean of each block alone: the DC coefficients. Progressive files
//! bring those in scans of their own (T.81 annex G), usually the first tenth of the file, so the rest is left out, and the
//! picture is the same to the bit.

use std::borrow::Cow;

use crate::original::jpeg::{END, SCAN, Segments};

/// The file with DC scans only. What is not understood is left as it is.
pub(super) fn brightest(bytes: &[u8]) -> Cow<'_, [u8]> {
    shortened(bytes).map_or(Cow::Borrowed(bytes), Cow::Owned)
}

fn shortened(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut kept = bytes.get(..2)?.to_vec();
    let mut segments = Segments::of(bytes);
    let mut start = 2;
    let mut scans = 0;
    while let Some(segment) = segments.next() {
        let mut end = segment.end;
        let mut keep = true;
        if segment.marker == END {
            break;
        }
        if segment.marker == SCAN {
            end = data_end(bytes, end);
            segments.go_to(end);
            // Behind the components: the first coefficient of the band, 0 for DC (T.81 §B.2.3).
            let components = usize::from(*segment.content.first()?);
            keep = *segment.content.get(1 + 2 * components)? == 0;
            scans += usize::from(keep);
        }
        if keep {
            kept.extend_from_slice(&bytes[start..end]);
        }
        start = end;
    }
    kept.extend_from_slice(&[0xff, END]);
    (scans > 0).then_some(kept)
}

/// Where entropy-coded data ends: at the first marker that is neither a stuffed byte nor a restart.
fn data_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0xff)) {
        at += found;
        match bytes.get(at + 1) {
            Some(0x00 | 0xd0..=0xd7) => at += 2,
            Some(0xff) => at += 1,
            _ => return at,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{WHOLE, waves};
    use crate::codec::{Wish, jpeg};
    use crate::limits::Limits;
    use crate::original::Original;
    use crate::raster::{Kind, Raster};

    fn progressive(raster: &Raster) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
        encoder.set_progressive(true);
        let colour = jpeg_encoder::ColorType::Rgb;
        encoder.encode(&raster.data, raster.width as u16, raster.height as u16, colour).expect("it is written");
        bytes
    }

    #[test]
    fn an_eighth_of_the_size_needs_only_the_means() {
        let bytes = progressive(&waves(320, 243, Kind::Rgb));
        let shorter = brightest(&bytes);
        assert!(shorter.len() < bytes.len() / 2, "{} of {}", shorter.len(), bytes.len());
        let original = Original::read(&bytes, &Limits::default()).expect("a header");
        assert!(original.progressive);
        // Told that it is not progressive, a codec reads the file as it is.
        let plain = Original {
            progressive: false,
            ..original
        };
        let wish = Wish {
            reduction: 8.0,
            ..WHOLE
        };
        let read = |original| {
            let mut found = None;
            let result = jpeg::best().read(&bytes, original, &wish, &mut |picture| {
                found = Some(picture.raster);
                Ok(())
            });
            result.expect("it is read");
            found.expect("a picture")
        };
        assert_eq!(read(&original), read(&plain));
    }

    #[test]
    fn a_broken_file_is_left_or_cut_where_it_breaks() {
        let bytes = progressive(&waves(64, 64, Kind::Rgb));
        for length in 0..bytes.len() {
            assert!(brightest(&bytes[..length]).len() <= length + 2);
        }
        assert_eq!(brightest(b"\xff\xd8").as_ref(), b"\xff\xd8");
    }

    #[test]
    fn stuffed_bytes_and_restarts_are_data() {
        let data = [1, 0xff, 0, 2, 0xff, 0xd3, 3, 0xff, 0xff, 0xd9];
        assert_eq!(data_end(&data, 0), 8);
        assert_eq!(data_end(&data[..7], 0), 7);
        assert_eq!(data_end(&data, 20), 10);
    }
}
