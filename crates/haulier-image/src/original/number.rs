//! Numbers in the bytes of a header, at an offset that may lie beyond its end.

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub(super) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    be16(bytes, at).map(u16::swap_bytes)
}

pub(super) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    be32(bytes, at).map(u32::swap_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_past_the_end_are_none() {
        assert_eq!(be32(&[1, 2, 3], 0), None);
        assert_eq!(be16(&[1, 2, 3], 1), Some(0x0203));
        assert_eq!(le16(&[1, 2, 3], 1), Some(0x0302));
        assert_eq!(be16(&[1, 2], usize::MAX), None);
        assert_eq!(le32(&[1, 2, 3, 4], 0), Some(0x0403_0201));
    }
}
