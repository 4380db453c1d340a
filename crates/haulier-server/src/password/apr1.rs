//! `$apr1$`, Apache's MD5 hash of passwords, the default of `htpasswd` for decades.

use md5::{Digest, Md5};

const MAGIC: &[u8] = b"$apr1$";
/// The alphabet of crypt(3); that of RFC 4648 differs.
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The digest's bytes in each group of four letters, highest first.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The 22 letters after the salt.
pub(super) fn hash(password: &[u8], salt: &[u8]) -> String {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut first = Md5::new();
    first.update(password);
    first.update(MAGIC);
    first.update(salt);
    for start in (0..password.len()).step_by(16) {
        first.update(&inner[..16.min(password.len() - start)]);
    }
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 {
            &b"\0"[..]
        } else {
            password.get(..1).unwrap_or_default()
        });
        bits >>= 1;
    }
    let mut digest = first.finalize();
    for round in 0..1000 {
        digest = stretch(round, password, salt, &digest);
    }
    letters(&digest)
}

fn stretch(round: u32, password: &[u8], salt: &[u8], digest: &[u8]) -> md5::digest::Output<Md5> {
    let odd = round % 2 == 1;
    let mut next = Md5::new();
    next.update(if odd { password } else { digest });
    if !round.is_multiple_of(3) {
        next.update(salt);
    }
    if !round.is_multiple_of(7) {
        next.update(password);
    }
    next.update(if odd { digest } else { password });
    next.finalize()
}

fn letters(digest: &[u8]) -> String {
    let mut text = String::with_capacity(22);
    let mut push = |mut value: u32, count: usize| {
        for _ in 0..count {
            text.push(char::from(ALPHABET[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for group in GROUPS {
        let [high, middle, low] = group.map(|at| u32::from(digest[at]));
        push(high << 16 | middle << 8 | low, 4);
    }
    push(u32::from(digest[11]), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_makes_what_openssl_makes() {
        // openssl passwd -apr1 -salt SALT PASSWORD
        let rows = [
            ("horse battery", "saltsalt", "/f33VMzZOq8xqoXL/gBcz/"),
            ("", "abcdefgh", "L.PT565ESX4Tp2bqNs7Ie."),
            ("a", "x", "16j9.5e7KiXmuYFAYpPJM/"),
            (
                "a password of more than sixteen bytes, and of more than thirty-two",
                "Zz./0199",
                "AQyUjn3PGsUVgWMoM6J50.",
            ),
            ("Grüße", "12345678", "nNfsd0IAdjdbo4JSPbwmZ/"),
        ];
        for (password, salt, expected) in rows {
            assert_eq!(hash(password.as_bytes(), salt.as_bytes()), expected, "{password:?}");
        }
    }
}
