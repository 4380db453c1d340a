//! Name and password of a request (RFC 7617).

use haulier_proto::field::Fields;

use super::base64;

/// A name with its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: Vec<u8>,
}

/// The name that a client sent: for REMOTE_USER once it is authenticated, and for the log.
pub(crate) fn user(fields: &Fields) -> Option<String> {
    credentials(fields).map(|credentials| credentials.user)
}

/// RFC 7617 §2: the name has no colon, the password may.
pub(crate) fn credentials(fields: &Fields) -> Option<Credentials> {
    let value = fields.get("Authorization")?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = base64::decode(encoded.trim_ascii())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some(Credentials {
        user,
        password: decoded[colon + 1..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_name_and_password() {
        let rows = [
            (Some("Basic YW5uYTpob3JzZQ=="), Some(("anna", "horse"))),
            (Some("basic  YW5uYTo="), Some(("anna", ""))),
            (Some("Basic YTpiOmM="), Some(("a", "b:c"))),
            (Some("Basic YW5uYQ=="), None),
            (Some("Bearer YW5uYTpob3JzZQ=="), None),
            (Some("Basic"), None),
            (Some("Basic !"), None),
            (None, None),
        ];
        for (value, expected) in rows {
            let mut fields = Fields::new();
            if let Some(value) = value {
                fields.append("Authorization", value);
            }
            let expected = expected.map(|(user, password)| Credentials {
                user: user.to_owned(),
                password: password.as_bytes().to_vec(),
            });
            assert_eq!(credentials(&fields), expected, "{value:?}");
        }
    }
}
