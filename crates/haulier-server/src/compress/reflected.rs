//! Detects a body that contains both input and a secret, which BREACH guesses from the coded length.
//!
//! This reduces the risk only; the remedy is a token masked differently in every page.

use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;
use percent_encoding::percent_decode;

/// Shorter values occur in any page by chance.
const LEAST: usize = 6;

/// True if the response sets a cookie, and its body contains a value of the query.
pub(super) fn is_secret_beside(fields: &Fields, head: &RequestHead, body: &[u8]) -> bool {
    fields.contains("Set-Cookie")
        && values(head).any(|value| value.len() >= LEAST && body.windows(value.len()).any(|part| part == value))
}

/// True if that is possible, for a body that is not complete.
pub(super) fn may_be_secret(fields: &Fields, head: &RequestHead) -> bool {
    fields.contains("Set-Cookie") && values(head).any(|value| value.len() >= LEAST)
}

fn values(head: &RequestHead) -> impl Iterator<Item = Vec<u8>> {
    let query = head.query().unwrap_or_default();
    query.split(|&byte| byte == b'&').map(|pair| {
        let value = pair.splitn(2, |&byte| byte == b'=').last().unwrap_or_default();
        let spaced: Vec<u8> = value
            .iter()
            .map(|&byte| if byte == b'+' { b' ' } else { byte })
            .collect();
        percent_decode(&spaced).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture::head;

    #[test]
    fn a_cookie_beside_a_repeated_value_is_found() {
        let mut fields = Fields::new();
        let search = head("GET", "/?q=seek+me%21&a=b", "");
        assert!(!is_secret_beside(&fields, &search, b"you seek me! do you"));
        fields.append("Set-Cookie", "session=1");
        assert!(is_secret_beside(&fields, &search, b"you seek me! do you"));
        assert!(!is_secret_beside(&fields, &search, b"you seek him, b"));
        assert!(!is_secret_beside(&fields, &head("GET", "/?q=short", ""), b"short"));
        assert!(!is_secret_beside(&fields, &head("GET", "/", ""), b""));
        assert!(may_be_secret(&fields, &search) && !may_be_secret(&fields, &head("GET", "/?a=b", "")));
    }
}
