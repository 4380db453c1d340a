//! Mirrors the picture.

use crate::error::ImageError;
use crate::raster::Raster;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.transform.flip.horizontal {
        horizontally(&mut frame.raster);
    }
    if frame.transform.flip.vertical {
        vertically(&mut frame.raster);
    }
    Ok(())
}

/// Mirrors left to right.
pub(super) fn horizontally(raster: &mut Raster) {
    let (row, channels) = (raster.row(), raster.kind.channels());
    for row in raster.data.chunks_exact_mut(row) {
        // Reverses all bytes, then the bytes of each pixel again.
        row.reverse();
        row.chunks_exact_mut(channels).for_each(<[u8]>::reverse);
    }
}

fn vertically(raster: &mut Raster) {
    let row = raster.row();
    let half = raster.height as usize / 2;
    let (upper, lower) = raster.data.split_at_mut(half * row);
    let below = lower.chunks_exact_mut(row).rev();
    for (above, below) in upper.chunks_exact_mut(row).zip(below) {
        above.swap_with_slice(below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Flip, Transform};
    use crate::raster::PixelKind;
    use crate::step::testing::{apply as run, grey};

    #[test]
    fn left_becomes_right_and_top_becomes_bottom() {
        let flipped = |horizontal, vertical| {
            let transform = Transform {
                flip: Flip { horizontal, vertical },
                ..Transform::default()
            };
            run(apply, grey(&[[1, 2], [3, 4], [5, 6]]), &transform)
        };
        assert_eq!(flipped(true, false), grey(&[[2, 1], [4, 3], [6, 5]]));
        assert_eq!(flipped(false, true), grey(&[[5, 6], [3, 4], [1, 2]]));
        assert_eq!(flipped(true, true), grey(&[[6, 5], [4, 3], [2, 1]]));
    }

    #[test]
    fn colours_keep_their_order() {
        let mut raster = Raster::new(2, 1, PixelKind::Rgb, vec![1, 2, 3, 4, 5, 6]).expect("it fits");
        horizontally(&mut raster);
        assert_eq!(raster.data, [4, 5, 6, 1, 2, 3]);
    }
}
