//! Drops the scans of a progressive JPEG that a reduced picture does not need.
//!
//! A picture at an eighth of its size consists of the mean of each block, the DC coefficient. Progressive files have
//! those in separate scans (T.81 annex G), usually the first tenth of the file. Without the other scans the picture is
//! the same to the bit. Subsampled colours keep their AC scans, because they are decoded at a quarter.

use std::borrow::Cow;

use crate::original::jpeg::{END, SCAN, Segments, is_frame};

/// Longest run of empty blocks that one symbol of an AC scan can express (T.81 §G.1.2.2).
const RUN: usize = 32_767;

/// The file with only the scans that an eighth of the size needs, or as it is if it is not understood. With `grey`,
/// only the first component is needed.
pub(super) fn brightest(bytes: &[u8], grey: bool) -> Cow<'_, [u8]> {
    shortened(bytes, grey).map_or(Cow::Borrowed(bytes), Cow::Owned)
}

/// A component of the frame.
struct Component {
    id: u8,
    /// Number of blocks in a scan of this component alone.
    blocks: usize,
    /// Only its DC coefficients are needed.
    is_plain: bool,
}

fn shortened(bytes: &[u8], grey: bool) -> Option<Vec<u8>> {
    let mut kept = bytes.get(..2)?.to_vec();
    let mut segments = Segments::of(bytes);
    let mut components = Vec::new();
    let mut start = 2;
    while let Some(segment) = segments.next() {
        let mut end = segment.end;
        let mut keep = true;
        match segment.marker {
            END => break,
            SCAN => {
                end = data_end(bytes, end);
                segments.go_to(end);
                // After the components follows the first coefficient of the band, 0 for DC (T.81 §B.2.3).
                let count = usize::from(*segment.content.first()?);
                let id = *segment.content.get(1)?;
                let component = components.iter().find(|component: &&Component| component.id == id)?;
                keep = *segment.content.get(1 + 2 * count)? == 0 || !component.is_plain;
            }
            marker if is_frame(marker) => components = read_frame(segment.content, grey)?,
            _ => {}
        }
        if keep {
            kept.extend_from_slice(&bytes[start..end]);
        }
        start = end;
    }
    for component in components.iter().filter(|component| component.is_plain) {
        kept.extend(empty_scan(component));
    }
    kept.extend_from_slice(&[0xff, END]);
    Some(kept)
}

fn read_frame(content: &[u8], grey: bool) -> Option<Vec<Component>> {
    let side = |at: usize| Some(usize::from(*content.get(at)?) << 8 | usize::from(*content.get(at + 1)?));
    let (height, width) = (side(1)?, side(3)?);
    let stored = content.get(6..6 + 3 * usize::from(*content.get(5)?))?;
    let factors = |at: &[u8]| (usize::from(at[1] >> 4), usize::from(at[1] & 15));
    let most = stored.chunks_exact(3).map(factors);
    let (most_across, most_down) = most.fold((1, 1), |most, found| (most.0.max(found.0), most.1.max(found.1)));
    let component = |(index, stored): (usize, &[u8])| {
        let (across, down) = factors(stored);
        // Decoders decode a component with half the samples in both directions at twice the scale.
        let is_half = across * 2 <= most_across && down * 2 <= most_down;
        let blocks = |side: usize, factor: usize, most: usize| (side * factor).div_ceil(most).div_ceil(8);
        Component {
            id: stored[0],
            blocks: blocks(width, across, most_across) * blocks(height, down, most_down),
            is_plain: !is_half || (grey && index > 0),
        }
    };
    Some(stored.chunks_exact(3).enumerate().map(component).collect())
}

/// A scan in which all AC coefficients of a component are 0. Without it, decoders assume that they are still to come,
/// and interpolate them.
fn empty_scan(component: &Component) -> Vec<u8> {
    let mut scan = vec![0xff, 0xdd, 0, 4, 0, 0]; // no restarts
    scan.extend([0xff, 0xc4, 0, 20, 0x10, 1]); // table 0 for AC: one code of one bit,
    scan.extend([0; 15]);
    scan.push(0xe0); // for a run of 2^14 blocks and as many as 14 bits say
    scan.extend([0xff, SCAN, 0, 8, 1, component.id, 0, 1, 63, 0]);
    let mut bits = (0_u32, 0_u32);
    for _ in 0..component.blocks.div_ceil(RUN) {
        bits = (bits.0 << 15 | 0x3fff, bits.1 + 15);
        while bits.1 >= 8 {
            bits.1 -= 8;
            push((bits.0 >> bits.1) as u8, &mut scan);
        }
    }
    push((bits.0 << (8 - bits.1)) as u8 | (0xff >> bits.1) as u8, &mut scan);
    scan
}

/// Appends a byte of entropy-coded data; a stuffed 0 follows 0xff.
fn push(byte: u8, data: &mut Vec<u8>) {
    data.push(byte);
    if byte == 0xff {
        data.push(0);
    }
}

/// The end of entropy-coded data: the first marker that is neither a stuffed byte nor a restart.
fn data_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(0xff, rest)) {
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
    use crate::codec::{Codec, ReadOptions, jpeg};
    use crate::limits::Limits;
    use crate::original::Original;
    use crate::raster::{PixelKind, Raster};
    use jpeg_encoder::SamplingFactor;

    fn progressive(raster: &Raster, sampling: SamplingFactor, restarts: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
        encoder.set_progressive(true);
        encoder.set_sampling_factor(sampling);
        if restarts > 0 {
            encoder.set_restart_interval(restarts);
        }
        let colour = jpeg_encoder::ColorType::Rgb;
        let written = encoder.encode(&raster.data, raster.width as u16, raster.height as u16, colour);
        written.expect("it is written");
        bytes
    }

    fn read(codec: &dyn Codec, bytes: &[u8], original: &Original, grey: bool) -> Raster {
        let mut found = None;
        let options = ReadOptions {
            reduction: 8.0,
            grey,
            ..WHOLE
        };
        let result = codec.read(bytes, original, &options, &mut |picture| {
            found = Some(picture.raster);
            Ok(())
        });
        result.expect("it is read");
        found.expect("a picture")
    }

    #[test]
    fn an_eighth_of_the_size_is_the_same_to_the_bit() {
        let raster = waves(323, 243, PixelKind::Rgb);
        for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2] {
            for (grey, restarts) in [(false, 0), (true, 0), (false, 5)] {
                let bytes = progressive(&raster, sampling, restarts);
                let shorter = brightest(&bytes, grey);
                assert!(
                    shorter.len() < bytes.len() * 2 / 3,
                    "{} of {}",
                    shorter.len(),
                    bytes.len()
                );
                let original = Original::read(&bytes, &Limits::default()).expect("a header");
                assert!(original.progressive);
                // Told that it is not progressive, a codec reads the file as it is.
                let plain = Original {
                    progressive: false,
                    ..original
                };
                let (found, expected) = (
                    read(&jpeg::Jpeg, &bytes, &original, grey),
                    read(&jpeg::Jpeg, &bytes, &plain, grey),
                );
                assert!(found == expected, "{sampling:?} {grey} {restarts}");
            }
        }
    }

    #[test]
    fn an_empty_scan_says_so_for_any_number_of_blocks() {
        for (blocks, data) in [(1, &[0x7f, 0xff, 0][..]), (RUN + 1, &[0x7f, 0xfe, 0xff, 0, 0xff, 0])] {
            let component = Component {
                id: 3,
                blocks,
                is_plain: true,
            };
            let scan = empty_scan(&component);
            let start = scan.len() - data.len();
            assert_eq!(&scan[start..], data, "{blocks}");
            assert_eq!(&scan[start - 10..start], [0xff, SCAN, 0, 8, 1, 3, 0, 1, 63, 0]);
        }
    }

    #[test]
    fn a_broken_file_never_grows_by_more_than_the_empty_scans() {
        let bytes = progressive(&waves(64, 64, PixelKind::Rgb), SamplingFactor::F_2_2, 0);
        for length in 0..bytes.len() {
            assert!(brightest(&bytes[..length], false).len() <= length + 200);
        }
        assert_eq!(brightest(b"\xff", false).as_ref(), b"\xff");
    }

    #[test]
    fn stuffed_bytes_and_restarts_are_data() {
        let data = [1, 0xff, 0, 2, 0xff, 0xd3, 3, 0xff, 0xff, 0xd9];
        assert_eq!(data_end(&data, 0), 8);
        assert_eq!(data_end(&data[..7], 0), 7);
        assert_eq!(data_end(&data, 20), 10);
    }
}
