//! Paths of request targets.

use std::borrow::Cow;

use haulier_proto::path::{encode, normalize};

/// A path that is accepted stays below its root and means the same when written down and read again.
pub fn check(data: &[u8]) {
    check_encoding(data);
    let Ok(path) = normalize(data) else { return };
    if let Cow::Borrowed(borrowed) = &path {
        assert_eq!(*borrowed, data);
    }
    assert!(path.starts_with(b"/") && path.len() <= data.len());
    assert!(!path.iter().any(|&byte| byte < b' ' || byte == 0x7f));
    let segments: Vec<&[u8]> = path[1..].split(|&byte| byte == b'/').collect();
    assert!(
        segments.iter().all(|segment| !matches!(*segment, b"." | b"..")),
        "no dot segment is left"
    );
    assert!(
        segments[..segments.len() - 1].iter().all(|segment| !segment.is_empty()),
        "no slash is repeated"
    );
    let mut encoded = Vec::new();
    encode(&path, &mut encoded);
    assert_eq!(normalize(&encoded).as_deref(), Ok(&*path));
}

/// Whatever the bytes, they can stand in a Location and name no other host.
fn check_encoding(data: &[u8]) {
    let mut encoded = Vec::new();
    encode(data, &mut encoded);
    assert!(!encoded.starts_with(b"//"));
    assert!(
        encoded
            .iter()
            .all(|&byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}?#[]".contains(&byte))
    );
}
