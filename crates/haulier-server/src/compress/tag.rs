//! Entity tags of coded bodies.
//!
//! A body that PHP tags as `"x"` becomes `W/"x-br"` when it is coded: other bytes, same content. When the client sends
//! that tag back, PHP gets its own `"x"`.

use std::borrow::Cow;

use haulier_proto::accept::Coding;
use haulier_proto::etag;
use haulier_proto::field::Fields;

/// The tag of a body after coding; `None` if the tag need not change, because it is weak or malformed.
#[must_use]
pub(crate) fn of_coding(tag: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let tag = etag::parse(tag).filter(|tag| !tag.weak)?;
    let mut coded = b"W/\"".to_vec();
    coded.extend_from_slice(tag.opaque);
    coded.push(b'-');
    coded.extend_from_slice(coding.as_str().as_bytes());
    coded.push(b'"');
    Some(coded)
}

/// The value of If-None-Match or If-Match with PHP's own tags.
#[must_use]
pub(crate) fn restored(value: &[u8]) -> Cow<'_, [u8]> {
    if !etag::list(value).any(|tag| tag.weak && original(tag.opaque).is_some()) {
        return Cow::Borrowed(value);
    }
    let mut restored = Vec::with_capacity(value.len());
    for tag in etag::list(value) {
        if !restored.is_empty() {
            restored.extend_from_slice(b", ");
        }
        let (weak, opaque) = match original(tag.opaque).filter(|_| tag.weak) {
            Some(opaque) => (false, opaque),
            None => (tag.weak, tag.opaque),
        };
        restored.extend_from_slice(if weak { b"W/\"" } else { b"\"" });
        restored.extend_from_slice(opaque);
        restored.push(b'"');
    }
    Cow::Owned(restored)
}

/// The tag of a coding under which the client holds PHP's `tag`, if it does.
#[must_use]
pub(crate) fn named_by_client(tag: &[u8], request: &Fields) -> Option<Vec<u8>> {
    let tag = etag::parse(tag).filter(|tag| !tag.weak)?;
    let named = request
        .get_all("If-None-Match")
        .flat_map(etag::list)
        .find(|named| named.weak && original(named.opaque) == Some(tag.opaque))?;
    Some([b"W/\"", named.opaque, b"\""].concat())
}

/// The tag before the name of a coding was added.
fn original(opaque: &[u8]) -> Option<&[u8]> {
    Coding::ALL
        .iter()
        .find_map(|coding| opaque.strip_suffix(coding.as_str().as_bytes())?.strip_suffix(b"-"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_strong_tag_becomes_weak_and_comes_back() {
        let coded = of_coding(b"\"x\"", Coding::Zstd).expect("a tag");
        assert_eq!(coded, b"W/\"x-zstd\"");
        assert_eq!(&*restored(&coded), b"\"x\"");
        assert_eq!(of_coding(b"W/\"x\"", Coding::Zstd), None);
        assert_eq!(of_coding(b"x", Coding::Zstd), None);
    }

    #[test]
    fn other_tags_do_not_change() {
        for value in [
            &b"*"[..],
            b"\"x\", W/\"y\"",
            b"\"x-br\"",
            b"W/\"br\"",
            b"nonsense-gzip\"",
        ] {
            assert_eq!(&*restored(value), value);
        }
        assert_eq!(&*restored(b"W/\"a\",W/\"b-gzip\""), b"W/\"a\", \"b\"");
    }

    #[test]
    fn a_client_is_answered_by_the_tag_it_knows() {
        let mut request = Fields::new();
        request.append("If-None-Match", "\"a\", W/\"x-br\"");
        assert_eq!(named_by_client(b"\"x\"", &request).as_deref(), Some(&b"W/\"x-br\""[..]));
        assert_eq!(named_by_client(b"\"y\"", &request), None);
        assert_eq!(named_by_client(b"W/\"x\"", &request), None);
    }

    proptest! {
        #[test]
        fn every_tag_comes_back(opaque in "[!#-~]{0,20}") {
            let tag = format!("\"{opaque}\"").into_bytes();
            for coding in Coding::ALL {
                let coded = of_coding(&tag, coding).expect("a strong tag");
                prop_assert_eq!(&*restored(&coded), &tag);
            }
        }
    }
}
