//! The rotation that makes a stored image upright.

use serde::{Deserialize, Serialize};

/// The rotation that makes a stored image upright: Exif's tag 274.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orientation(u8);

impl Orientation {
    /// As it is stored.
    pub const UPRIGHT: Self = Self(1);

    /// The orientation of this number; upright for an invalid one.
    #[must_use]
    pub fn of(number: u16) -> Self {
        match number {
            1..=8 => Self(number as u8),
            _ => Self::UPRIGHT,
        }
    }

    /// Exif's number, 1 to 8.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// True if width and height are swapped.
    #[must_use]
    pub fn swaps(self) -> bool {
        self.0 >= 5
    }

    /// True if the image is mirrored left to right before it is rotated.
    pub(crate) fn mirrors(self) -> bool {
        matches!(self.0, 2 | 4 | 5 | 7)
    }

    /// Quarter turns clockwise, after mirroring.
    pub(crate) fn quarters(self) -> u8 {
        match self.0 {
            3 | 4 => 2,
            6 | 7 => 1,
            5 | 8 => 3,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_eight() {
        for number in 1..=8 {
            assert_eq!(u16::from(Orientation::of(number).number()), number);
        }
        for number in [0, 9, 256, 274] {
            assert_eq!(Orientation::of(number), Orientation::UPRIGHT);
        }
        assert!(!Orientation::of(4).swaps());
        assert!(Orientation::of(5).swaps());
    }
}
