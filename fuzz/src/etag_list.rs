//! Lists of entity tags.

use haulier_proto::etag::{EntityTag, list, parse};

/// Each tag is one when it stands alone, and a printed list is read back.
pub fn check(data: &[u8]) {
    let tags: Vec<EntityTag<'_>> = list(data).collect();
    let mut printed = Vec::new();
    for tag in &tags {
        let alone = [if tag.weak { &b"W/\""[..] } else { b"\"" }, tag.opaque, b"\""].concat();
        assert_eq!(parse(&alone), Some(*tag));
        assert!(
            !tag.opaque
                .iter()
                .any(|&byte| byte <= b' ' || byte == b'"' || byte == 0x7f)
        );
        printed.extend_from_slice(&alone);
        printed.push(b',');
    }
    assert_eq!(list(&printed).collect::<Vec<_>>(), tags);
    if let Some(tag) = parse(data) {
        assert_eq!(tags, [tag]);
    }
}
