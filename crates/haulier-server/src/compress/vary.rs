//! Vary (RFC 9110 §12.5.5).

use haulier_proto::field::{Fields, tokens};

/// Adds Accept-Encoding to Vary.
pub(crate) fn add_vary(fields: &mut Fields) {
    vary_by(fields, "Accept-Encoding");
}

/// Adds a field of the request to Vary.
pub(crate) fn vary_by(fields: &mut Fields, name: &str) {
    let says_so = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(name.as_bytes());
    if !fields.get_all("Vary").flat_map(tokens).any(says_so) {
        fields.append("Vary", name);
    }
}
