//! Flow-control windows (RFC 9113 §5.2, §6.9).

/// The largest window.
pub const MOST_WINDOW: i64 = 0x7fff_ffff;
/// The size of a window before the first SETTINGS and WINDOW_UPDATE (RFC 9113 §6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// Bytes one side may still send. Below zero after the initial window became smaller (RFC 9113 §6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(i64);

impl Window {
    #[must_use]
    pub fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    /// Bytes that may be sent now.
    #[must_use]
    pub fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Takes `bytes` out; false, without a change, if the window has fewer.
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> bool {
        let left = self.0 - i64::from(bytes);
        if bytes > 0 && left < 0 {
            return false;
        }
        self.0 = left;
        true
    }

    /// Makes it larger or smaller; false, without a change, if it would be larger than allowed.
    #[must_use]
    pub fn shift(&mut self, by: i64) -> bool {
        let shifted = self.0 + by;
        if shifted > MOST_WINDOW {
            return false;
        }
        self.0 = shifted;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_below_zero_has_no_room_and_comes_back() {
        let mut window = Window::new(10);
        assert!(window.shift(-15));
        assert_eq!(window.room(), 0);
        assert!(!window.take(1));
        assert!(window.take(0), "nothing always fits");
        assert!(window.shift(6));
        assert_eq!(window.room(), 1);
    }

    #[test]
    fn a_window_beyond_31_bits_is_refused() {
        let mut window = Window::new(1);
        assert!(!window.shift(MOST_WINDOW));
        assert!(window.shift(MOST_WINDOW - 1));
        assert_eq!(window.room(), MOST_WINDOW as usize);
    }
}
