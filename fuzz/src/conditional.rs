//! Conditional requests, written as field lines.

use haulier_proto::conditional::{Precondition, Validators, evaluate, range_applies};
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::Method;

const ALL: [Validators<'_>; 3] = [
    Validators {
        etag: Some(b"\"a\""),
        last_modified: Some(784_111_777),
    },
    Validators {
        etag: Some(b"W/\"a\""),
        last_modified: Some(0),
    },
    Validators {
        etag: None,
        last_modified: None,
    },
];

/// 304 is for reading only, GET and HEAD agree, and without a condition nothing stops a request.
pub fn check(data: &[u8]) {
    let mut fields = Fields::new();
    for line in data.split(|&byte| byte == b'\n') {
        if let Some(colon) = line.iter().position(|&byte| byte == b':') {
            fields.append(&line[..colon], line[colon + 1..].trim_ascii());
        }
    }
    let conditions = [
        Known::IfMatch,
        Known::IfNoneMatch,
        Known::IfModifiedSince,
        Known::IfUnmodifiedSince,
    ];
    let unconditional = conditions.iter().all(|known| fields.known(*known).is_none());
    for validators in &ALL {
        let get = evaluate(&fields, Method::Get, validators);
        assert_eq!(get, evaluate(&fields, Method::Head, validators));
        assert_ne!(evaluate(&fields, Method::Put, validators), Precondition::NotModified);
        assert_eq!(evaluate(&fields, Method::Options, validators), Precondition::Proceed);
        if unconditional {
            assert_eq!(get, Precondition::Proceed);
        }
        let named = validators.etag.is_some() || validators.last_modified.is_some();
        assert!(named || fields.known(Known::IfRange).is_none() || !range_applies(&fields, validators));
    }
}
