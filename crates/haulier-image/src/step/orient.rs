//! Rotates the picture upright by its Exif orientation.

use crate::error::ImageError;
use crate::step::frame::Frame;
use crate::step::{flip, rotate};

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let orientation = frame.original.orientation;
    if orientation.mirrors() {
        flip::horizontally(&mut frame.raster);
    }
    frame.raster = rotate::quarters(&frame.raster, orientation.quarters());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::options::Transform;
    use crate::step::testing::{grey, run};

    #[test]
    fn all_eight_orientations_become_upright() {
        let upright = grey(&[[1, 2, 3], [4, 5, 6]]);
        // How a camera stores the same picture: first row and column are where Exif 2.32 §4.6.4 says.
        let wide: [(u16, [[u8; 3]; 2]); 4] = [
            (1, [[1, 2, 3], [4, 5, 6]]),
            (2, [[3, 2, 1], [6, 5, 4]]),
            (3, [[6, 5, 4], [3, 2, 1]]),
            (4, [[4, 5, 6], [1, 2, 3]]),
        ];
        let tall: [(u16, [[u8; 2]; 3]); 4] = [
            (5, [[1, 4], [2, 5], [3, 6]]),
            (6, [[3, 6], [2, 5], [1, 4]]),
            (7, [[6, 3], [5, 2], [4, 1]]),
            (8, [[4, 1], [5, 2], [6, 3]]),
        ];
        let stored = wide.iter().map(|(number, rows)| (*number, grey(rows)));
        for (number, raster) in stored.chain(tall.iter().map(|(number, rows)| (*number, grey(rows)))) {
            let found = run(apply, raster, &Transform::default(), Format::Png, number).expect("it is turned");
            assert_eq!(found, upright, "{number}");
        }
    }
}
