//! Conditional requests, evaluated once the representation is known (RFC 9110 §13).
//!
//! The order is that of §13.2.2. A condition that cannot be judged, because its date is malformed or there is no
//! modification date to compare with, is ignored as §13.1 says.

use crate::date;
use crate::etag;
use crate::field::{Fields, Known};
use crate::head::Method;

/// The validators of the representation. There is one: a missing resource is answered earlier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag as sent in the ETag field, with its quotes.
    pub etag: Option<&'a [u8]>,
    /// The modification date, seconds since 1970.
    pub last_modified: Option<u64>,
}

/// The result of the conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Answer as without conditions.
    Proceed,
    /// 304: the client has this representation.
    NotModified,
    /// 412: the client did not mean this representation.
    Failed,
}

/// Judges If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since, in this order (RFC 9110 §13.2.2).
#[must_use]
pub fn evaluate(fields: &Fields, method: Method, validators: &Validators<'_>) -> Precondition {
    // RFC 9110 §13.2.1: a method that selects no representation has no conditions.
    if matches!(method, Method::Connect | Method::Options | Method::Trace) {
        return Precondition::Proceed;
    }
    if !if_match_holds(fields, validators) {
        return Precondition::Failed;
    }
    let reads = matches!(method, Method::Get | Method::Head);
    let changed = match fields.known(Known::IfNoneMatch) {
        Some(first) => !any_matches(fields, "if-none-match", first, |tag| weakly_equal(tag, validators)),
        // If-Modified-Since is for reading only, and If-None-Match wins over it.
        None if reads => modified_since(fields, Known::IfModifiedSince, validators).unwrap_or(true),
        None => true,
    };
    match (changed, reads) {
        (true, _) => Precondition::Proceed,
        (false, true) => Precondition::NotModified,
        (false, false) => Precondition::Failed,
    }
}

/// True if the Range field counts: If-Range is absent or names exactly this representation (RFC 9110 §13.1.5).
///
/// A tag is compared strongly. A date must be the modification date to the second; the caller has to know that the file
/// has not changed twice within that second.
#[must_use]
pub fn range_applies(fields: &Fields, validators: &Validators<'_>) -> bool {
    let Some(value) = fields.known(Known::IfRange) else {
        return true;
    };
    if fields.is_repeated(Known::IfRange) {
        return false;
    }
    match etag::parse(value) {
        Some(tag) => strongly_equal(tag, validators),
        None => date::parse(value).is_some_and(|date| validators.last_modified == Some(date)),
    }
}

/// Steps 1 and 2 of §13.2.2: If-Match, and If-Unmodified-Since only without it.
fn if_match_holds(fields: &Fields, validators: &Validators<'_>) -> bool {
    match fields.known(Known::IfMatch) {
        Some(first) => any_matches(fields, "if-match", first, |tag| strongly_equal(tag, validators)),
        None => !modified_since(fields, Known::IfUnmodifiedSince, validators).unwrap_or(false),
    }
}

/// True if `*` or any tag on any line of a field matches. `first` is the value of its first line.
fn any_matches(fields: &Fields, name: &str, first: &[u8], matches: impl Fn(etag::EntityTag<'_>) -> bool) -> bool {
    // `*` means any representation, and there is one.
    first == b"*" || fields.get_all(name).any(|value| etag::list(value).any(&matches))
}

/// Compares the date of a field with the representation: true if that is newer. `None` if one of them has no date.
fn modified_since(fields: &Fields, field: Known, validators: &Validators<'_>) -> Option<bool> {
    let value = fields.known(field)?;
    let date = if fields.is_repeated(field) {
        None
    } else {
        date::parse(value)
    };
    Some(validators.last_modified? > date?)
}

fn strongly_equal(tag: etag::EntityTag<'_>, validators: &Validators<'_>) -> bool {
    own_tag(validators).is_some_and(|own| own.strong_eq(&tag))
}

fn weakly_equal(tag: etag::EntityTag<'_>, validators: &Validators<'_>) -> bool {
    own_tag(validators).is_some_and(|own| own.weak_eq(&tag))
}

fn own_tag<'a>(validators: &Validators<'a>) -> Option<etag::EntityTag<'a>> {
    etag::parse(validators.etag?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const STRONG: Validators<'_> = Validators {
        etag: Some(b"\"a\""),
        last_modified: Some(784_111_777),
    };
    const WEAK: Validators<'_> = Validators {
        etag: Some(b"W/\"a\""),
        last_modified: Some(784_111_777),
    };
    const NONE: Validators<'_> = Validators {
        etag: None,
        last_modified: None,
    };

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }

    fn get(validators: &Validators<'_>, lines: &[(&str, &str)]) -> Precondition {
        evaluate(&fields(lines), Method::Get, validators)
    }

    fn put(validators: &Validators<'_>, lines: &[(&str, &str)]) -> Precondition {
        evaluate(&fields(lines), Method::Put, validators)
    }

    #[test]
    fn without_conditions_everything_proceeds() {
        assert_eq!(get(&STRONG, &[]), Precondition::Proceed);
        assert_eq!(put(&NONE, &[("Range", "bytes=0-1")]), Precondition::Proceed);
    }

    /// RFC 9110 §13.1.1: strong comparison.
    #[test]
    fn if_match_wants_one_strongly_equal_tag() {
        for (validators, value, expected) in [
            (&STRONG, "\"a\"", Precondition::Proceed),
            (&STRONG, "\"b\", \"a\"", Precondition::Proceed),
            (&STRONG, "*", Precondition::Proceed),
            (&NONE, "*", Precondition::Proceed),
            (&STRONG, "\"b\"", Precondition::Failed),
            (&STRONG, "W/\"a\"", Precondition::Failed),
            (&WEAK, "\"a\"", Precondition::Failed),
            (&WEAK, "W/\"a\"", Precondition::Failed),
            (&NONE, "\"a\"", Precondition::Failed),
            (&STRONG, "a", Precondition::Failed),
            (&STRONG, "", Precondition::Failed),
        ] {
            assert_eq!(
                put(validators, &[("If-Match", value)]),
                expected,
                "{value} {validators:?}"
            );
            assert_eq!(
                get(validators, &[("If-Match", value)]),
                expected,
                "{value} {validators:?}"
            );
        }
    }

    /// RFC 9110 §13.1.2: weak comparison; 304 for reading, 412 for the rest.
    #[test]
    fn if_none_match_wants_no_weakly_equal_tag() {
        for (validators, value, same) in [
            (&STRONG, "\"a\"", true),
            (&STRONG, "W/\"a\"", true),
            (&WEAK, "\"a\"", true),
            (&STRONG, "\"b\", W/\"a\"", true),
            (&STRONG, "*", true),
            (&NONE, "*", true),
            (&STRONG, "\"b\"", false),
            (&NONE, "\"a\"", false),
            (&STRONG, "a", false),
        ] {
            let lines = [("If-None-Match", value)];
            let (read, write) = match same {
                true => (Precondition::NotModified, Precondition::Failed),
                false => (Precondition::Proceed, Precondition::Proceed),
            };
            assert_eq!(get(validators, &lines), read, "{value} {validators:?}");
            assert_eq!(
                evaluate(&fields(&lines), Method::Head, validators),
                read,
                "{value} {validators:?}"
            );
            assert_eq!(put(validators, &lines), write, "{value} {validators:?}");
            assert_eq!(
                evaluate(&fields(&lines), Method::Other, validators),
                write,
                "{value} {validators:?}"
            );
        }
    }

    #[test]
    fn tags_on_several_lines_are_one_list() {
        assert_eq!(
            get(&STRONG, &[("If-None-Match", "\"b\""), ("if-none-match", "\"a\"")]),
            Precondition::NotModified
        );
        assert_eq!(
            put(&STRONG, &[("If-Match", "\"b\""), ("IF-MATCH", "\"a\"")]),
            Precondition::Proceed
        );
    }

    /// RFC 9110 §13.1.3.
    #[test]
    fn if_modified_since_compares_seconds() {
        for (value, expected) in [
            (DATE, Precondition::NotModified),
            (LATER, Precondition::NotModified),
            (EARLIER, Precondition::Proceed),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Precondition::NotModified),
            ("yesterday", Precondition::Proceed),
        ] {
            assert_eq!(get(&STRONG, &[("If-Modified-Since", value)]), expected, "{value}");
            assert_eq!(
                put(&STRONG, &[("If-Modified-Since", value)]),
                Precondition::Proceed,
                "{value}"
            );
        }
        assert_eq!(get(&NONE, &[("If-Modified-Since", DATE)]), Precondition::Proceed);
    }

    /// RFC 9110 §13.1.4.
    #[test]
    fn if_unmodified_since_fails_for_what_is_newer() {
        for (value, expected) in [
            (DATE, Precondition::Proceed),
            (LATER, Precondition::Proceed),
            (EARLIER, Precondition::Failed),
            ("tomorrow", Precondition::Proceed),
        ] {
            assert_eq!(put(&STRONG, &[("If-Unmodified-Since", value)]), expected, "{value}");
            assert_eq!(get(&STRONG, &[("If-Unmodified-Since", value)]), expected, "{value}");
        }
        assert_eq!(put(&NONE, &[("If-Unmodified-Since", EARLIER)]), Precondition::Proceed);
    }

    #[test]
    fn a_date_on_two_lines_is_ignored() {
        assert_eq!(
            get(&STRONG, &[("If-Modified-Since", DATE), ("If-Modified-Since", LATER)]),
            Precondition::Proceed
        );
        assert_eq!(
            put(
                &STRONG,
                &[("If-Unmodified-Since", EARLIER), ("If-Unmodified-Since", DATE)]
            ),
            Precondition::Proceed
        );
    }

    /// RFC 9110 §13.2.2, the four steps.
    #[test]
    fn conditions_are_judged_in_order() {
        let (matches, differs) = ("\"a\"", "\"b\"");
        assert_eq!(
            put(&STRONG, &[("If-Unmodified-Since", EARLIER), ("If-Match", matches)]),
            Precondition::Proceed
        );
        assert_eq!(
            get(&STRONG, &[("If-Modified-Since", DATE), ("If-None-Match", differs)]),
            Precondition::Proceed
        );
        assert_eq!(
            get(&STRONG, &[("If-Modified-Since", EARLIER), ("If-None-Match", matches)]),
            Precondition::NotModified
        );
        assert_eq!(
            get(&STRONG, &[("If-None-Match", matches), ("If-Match", differs)]),
            Precondition::Failed
        );
        assert_eq!(
            get(&STRONG, &[("If-None-Match", matches), ("If-Match", matches)]),
            Precondition::NotModified
        );
        assert_eq!(
            get(
                &STRONG,
                &[("If-Modified-Since", DATE), ("If-Unmodified-Since", EARLIER)]
            ),
            Precondition::Failed
        );
    }

    /// RFC 9110 §13.2.1.
    #[test]
    fn methods_that_select_nothing_have_no_conditions() {
        for method in [Method::Options, Method::Trace, Method::Connect] {
            let lines = fields(&[("If-Match", "\"b\""), ("If-None-Match", "*")]);
            assert_eq!(evaluate(&lines, method, &STRONG), Precondition::Proceed, "{method:?}");
        }
    }

    /// RFC 9110 §13.1.5.
    #[test]
    fn if_range_holds_only_for_exactly_this_representation() {
        for (validators, value, applies) in [
            (&STRONG, "\"a\"", true),
            (&STRONG, "\"b\"", false),
            (&STRONG, "W/\"a\"", false),
            (&WEAK, "W/\"a\"", false),
            (&WEAK, "\"a\"", false),
            (&NONE, "\"a\"", false),
            (&STRONG, DATE, true),
            (&STRONG, EARLIER, false),
            (&STRONG, LATER, false),
            (&NONE, DATE, false),
            (&STRONG, "*", false),
            (&STRONG, "\"a\", \"b\"", false),
            (&STRONG, "", false),
        ] {
            assert_eq!(
                range_applies(&fields(&[("If-Range", value)]), validators),
                applies,
                "{value} {validators:?}"
            );
        }
        assert!(range_applies(&fields(&[]), &NONE));
        assert!(!range_applies(
            &fields(&[("If-Range", "\"a\""), ("If-Range", "\"a\"")]),
            &STRONG
        ));
    }

    proptest! {
        #[test]
        fn any_condition_is_judged_and_writes_never_get_304(
            lines in proptest::collection::vec(
                (
                    "If-(Match|None-Match|Modified-Since|Unmodified-Since|Range)",
                    "(\\*|W/|\"a\"|\"|,| |Sun, 06 Nov 1994 08:49:3[678] GMT){0,4}",
                ),
                0..5,
            ),
        ) {
            let mut fields = Fields::new();
            for (name, value) in &lines {
                fields.append(name, value);
            }
            for validators in [&STRONG, &WEAK, &NONE] {
                prop_assert_ne!(evaluate(&fields, Method::Post, validators), Precondition::NotModified);
                let get = evaluate(&fields, Method::Get, validators);
                prop_assert_eq!(get, evaluate(&fields, Method::Head, validators));
                let if_range = fields.known(Known::IfRange);
                let names_something =
                    if_range.is_none_or(|value| value.contains(&b'"') || value.windows(3).any(|part| part == b"GMT"));
                prop_assert!(names_something || !range_applies(&fields, validators));
            }
        }
    }
}
