//! Entity tags: reading and comparing them (RFC 9110 §8.8.3).
//!
//! A tag may hold commas, so a list of them is read tag by tag and never split at its commas.

/// One entity tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Written with `W/`: representations of the same tag are equal in meaning, not byte for byte.
    pub weak: bool,
    /// The text between the quotes; it may be empty.
    pub opaque: &'a [u8],
}

impl EntityTag<'_> {
    /// Strong comparison (RFC 9110 §8.8.3.2): true for equal tags that are both strong.
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (RFC 9110 §8.8.3.2): true for equal tags, weak or strong.
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// Reads a value that is exactly one entity tag.
pub fn parse(value: &[u8]) -> Option<EntityTag<'_>> {
    match take(value)? {
        (tag, []) => Some(tag),
        _ => None,
    }
}

/// The entity tags of a list, `"a", W/"b"`. It ends at the first text that is no tag: a damaged list matches less,
/// never more.
pub fn list(value: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        // RFC 9110 §5.6.1.2: empty elements are read and ignored.
        let (tag, after) = take(skip(rest, b" \t,"))?;
        let after = skip(after, b" \t");
        rest = match after.first() {
            None => after,
            Some(b',') => &after[1..],
            // Two tags without a comma: this one is damaged, and so is the rest.
            Some(_) => return None,
        };
        Some(tag)
    })
    .fuse()
}

/// One tag at the start of `value`, and the bytes after it.
fn take(value: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, quoted) = match value.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, value),
    };
    let text = quoted.strip_prefix(b"\"")?;
    let end = text.iter().position(|&byte| !is_etagc(byte))?;
    let rest = text[end..].strip_prefix(b"\"")?;
    let opaque = &text[..end];
    Some((EntityTag { weak, opaque }, rest))
}

/// `etagc = %x21 / %x23-7E / obs-text`
const fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..)
}

fn skip<'a>(value: &'a [u8], bytes: &[u8]) -> &'a [u8] {
    let start = value.iter().position(|byte| !bytes.contains(byte));
    &value[start.unwrap_or(value.len())..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn strong(opaque: &[u8]) -> EntityTag<'_> {
        EntityTag { weak: false, opaque }
    }

    const fn weak(opaque: &[u8]) -> EntityTag<'_> {
        EntityTag { weak: true, opaque }
    }

    #[test]
    fn strong_weak_and_empty_tags_are_read() {
        assert_eq!(parse(b"\"xyzzy\""), Some(strong(b"xyzzy")));
        assert_eq!(parse(b"W/\"xyzzy\""), Some(weak(b"xyzzy")));
        assert_eq!(parse(b"\"\""), Some(strong(b"")));
        assert_eq!(parse(b"\"\xc3\xa9\""), Some(strong(b"\xc3\xa9")));
    }

    #[test]
    fn what_is_no_tag_is_none() {
        for value in [
            "",
            "*",
            "xyzzy",
            "\"open",
            "open\"",
            "w/\"lower\"",
            "W/xyzzy",
            "W/",
            "\"a b\"",
            "\"a\"b",
            "\"a\", \"b\"",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
        assert_eq!(parse(b"\"\x7f\""), None);
        assert_eq!(parse(b"\"\x00\""), None);
    }

    /// The table of RFC 9110 §8.8.3.2.
    #[test]
    fn comparison_follows_the_table_of_rfc_9110() {
        for (one, other, strongly, weakly) in [
            (weak(b"1"), weak(b"1"), false, true),
            (weak(b"1"), weak(b"2"), false, false),
            (weak(b"1"), strong(b"1"), false, true),
            (strong(b"1"), strong(b"1"), true, true),
        ] {
            assert_eq!(one.strong_eq(&other), strongly, "{one:?} {other:?}");
            assert_eq!(other.strong_eq(&one), strongly, "{other:?} {one:?}");
            assert_eq!(one.weak_eq(&other), weakly, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_list_keeps_commas_inside_its_tags() {
        let tags: Vec<_> = list(b"\"a,b\",W/\"c\" ,\t, \"d\",").collect();
        assert_eq!(tags, [strong(b"a,b"), weak(b"c"), strong(b"d")]);
    }

    #[test]
    fn a_damaged_list_ends_at_the_damage() {
        assert_eq!(list(b"\"a\", b, \"c\"").collect::<Vec<_>>(), [strong(b"a")]);
        assert_eq!(list(b"\"a\" \"b\", \"c\"").count(), 0);
        assert_eq!(list(b"").count(), 0);
        assert_eq!(list(b", ,").count(), 0);
    }

    proptest! {
        #[test]
        fn a_printed_list_is_read_back(tags in proptest::collection::vec((any::<bool>(), "[!#-~]{0,8}"), 0..6)) {
            let printed: Vec<String> =
                tags.iter().map(|(weak, opaque)| format!("{}\"{opaque}\"", if *weak { "W/" } else { "" })).collect();
            let printed = printed.join(", ");
            let read: Vec<_> = list(printed.as_bytes())
                .map(|tag| (tag.weak, String::from_utf8(tag.opaque.to_vec()).expect("made of ASCII")))
                .collect();
            prop_assert_eq!(read, tags);
        }

        #[test]
        fn a_value_that_is_one_tag_is_a_list_of_one(value in "(W/)?\"[!#-~]{0,3}\"?[ ,]?") {
            if let Some(tag) = parse(value.as_bytes()) {
                prop_assert_eq!(list(value.as_bytes()).collect::<Vec<_>>(), vec![tag]);
            }
        }
    }
}
