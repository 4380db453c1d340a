//! Signed addresses: a client without a key cannot choose its own sizes.
//!
//! The signature is HMAC-SHA-256 of path and query as sent, up to the parameter `s` that carries it, in base64url
//! without padding. `s` is the last parameter. `expires`, if present, is signed as well; it is the last valid second
//! since 1970.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The parameters of a signed address that do not concern the picture.
pub(super) const PARAMETERS: [&str; 2] = ["s", "expires"];

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Signed by one of the keys, and not expired.
    Valid,
    /// Without a signature.
    Unsigned,
    /// The signature is not valid for this address.
    Wrong,
    /// A valid signature that has expired.
    Expired,
}

/// Signs an address. `target` is path and query, without `s`.
#[must_use]
pub fn sign(key: &[u8], target: &str) -> String {
    let signature = URL_SAFE_NO_PAD.encode(of(key, target.as_bytes()).finalize().into_bytes());
    let joint = if target.contains('?') { '&' } else { '?' };
    format!("{target}{joint}s={signature}")
}

/// Checks an address at a time, seconds since 1970.
pub(super) fn judge(keys: &[Vec<u8>], target: &[u8], now: u64) -> Verdict {
    let Some((signed, signature)) = split(target) else {
        return Verdict::Unsigned;
    };
    let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else {
        return Verdict::Wrong;
    };
    // In constant time. Any of the keys may have signed it, so that keys can be replaced.
    if !keys.iter().any(|key| of(key, signed).verify_slice(&signature).is_ok()) {
        return Verdict::Wrong;
    }
    match expiry(signed) {
        Some(Ok(expires)) if now < expires => Verdict::Valid,
        Some(Ok(_)) => Verdict::Expired,
        Some(Err(())) => Verdict::Wrong,
        None => Verdict::Valid,
    }
}

fn of(key: &[u8], target: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(target);
    mac
}

/// The signed part, and the signature at its end.
fn split(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let query = target.iter().position(|&byte| byte == b'?')?;
    let last = target
        .iter()
        .rposition(|&byte| byte == b'&')
        .unwrap_or(query)
        .max(query);
    let signature = target[last + 1..].strip_prefix(b"s=")?;
    Some((&target[..last], signature))
}

/// The value of `expires`; an error if it is not a number, or occurs twice.
fn expiry(signed: &[u8]) -> Option<Result<u64, ()>> {
    let query = signed
        .iter()
        .position(|&byte| byte == b'?')
        .map(|at| &signed[at + 1..])?;
    let mut values = query
        .split(|&byte| byte == b'&')
        .filter_map(|pair| pair.strip_prefix(b"expires="));
    let value = values.next()?;
    let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    Some(number.filter(|_| values.next().is_none()).ok_or(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"secret";

    fn verdict(target: &str) -> Verdict {
        judge(&[b"an older key".to_vec(), KEY.to_vec()], target.as_bytes(), 1000)
    }

    #[test]
    fn an_address_is_signed_as_php_would() {
        // echo rtrim(strtr(base64_encode(hash_hmac('sha256', '/ab?w=100', 'secret', true)), '+/', '-_'), '=');
        assert_eq!(
            sign(KEY, "/ab?w=100"),
            "/ab?w=100&s=RglswbPBekXRa7BLEnsIXu0HQV3cT2w5rqpz3wKqAl0"
        );
        assert!(sign(KEY, "/ab").starts_with("/ab?s="));
    }

    #[test]
    fn only_the_address_that_was_signed_is_valid() {
        for target in ["/ab?w=100", "/ab", "/ab?w=100&expires=1001"] {
            assert_eq!(verdict(&sign(KEY, target)), Verdict::Valid, "{target}");
            assert_eq!(verdict(target), Verdict::Unsigned, "{target}");
            assert_eq!(verdict(&sign(b"other", target)), Verdict::Wrong, "{target}");
        }
        let signed = sign(KEY, "/ab?w=100");
        assert_eq!(verdict(&signed.replace("100", "200")), Verdict::Wrong);
        assert_eq!(verdict(&signed.replace("/ab", "/ac")), Verdict::Wrong);
        assert_eq!(
            verdict(&format!("{signed}&w=200")),
            Verdict::Unsigned,
            "nothing may follow"
        );
        assert_eq!(verdict("/ab?s=not+base64"), Verdict::Wrong);
        assert_eq!(verdict("/ab?s="), Verdict::Wrong);
    }

    #[test]
    fn an_expired_address_is_told_apart() {
        assert_eq!(verdict(&sign(KEY, "/ab?expires=1000")), Verdict::Expired);
        assert_eq!(verdict(&sign(KEY, "/ab?expires=x")), Verdict::Wrong);
        assert_eq!(verdict(&sign(KEY, "/ab?expires=1&expires=2000")), Verdict::Wrong);
    }
}
