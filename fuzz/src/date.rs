//! HTTP dates.

use haulier_proto::date::{format, parse};

/// A date that is read is written in one form, which is read as the same second.
pub fn check(data: &[u8]) {
    if let Some(seconds) = parse(data) {
        assert_eq!(parse(&format(seconds)), Some(seconds));
    }
    if let Some(bytes) = data.first_chunk() {
        assert!(format(u64::from_le_bytes(*bytes)).ends_with(b" GMT"));
    }
}
