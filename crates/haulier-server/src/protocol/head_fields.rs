//! The fields of a response head, in either encoding.

use haulier_http::{Head, PreparedHead};

/// Fields that the server adds to a head, unless the handler has set them.
pub(super) struct MissingFields {
    pub(super) server: bool,
    pub(super) date: bool,
}

/// Appends the fields of a head in the protocol's encoding; returns the fields that it lacks.
#[inline]
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &Head,
    encoded: impl FnOnce(&PreparedHead) -> &[u8],
    encode: impl Fn(&mut Vec<u8>, &[u8], &[u8]),
) -> MissingFields {
    let mut missing = MissingFields {
        server: true,
        date: true,
    };
    match head {
        Head::Prepared(prepared) => {
            missing.server = !prepared.has_server;
            out.extend_from_slice(encoded(prepared));
        }
        Head::Fields(fields) => {
            for (name, value) in fields.iter() {
                missing.date &= !name.eq_ignore_ascii_case(b"date");
                missing.server &= !name.eq_ignore_ascii_case(b"server");
                encode(out, name, value);
            }
        }
    }
    missing
}
