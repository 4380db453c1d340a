//! Rules common to the caches on the network: limits, and a check sum over key and value.
//!
//! Such a cache is shared, and may be full, restarted, of another version, or written to by others. A value that was cut
//! short or lies under the wrong key must be a miss, not another site's picture.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::cache::CacheError;
use super::key::CacheKey;

/// Time limit of a call. Rendering a small image again takes a few milliseconds: a client should not wait much longer
/// for a copy of it.
pub(super) const BUDGET: Duration = Duration::from_millis(50);
/// The longest value, bytes: memcached's own default for an item is 1 MiB with its key.
pub(super) const MOST: usize = 1_000_000;
/// Lifetime of a value that no request asks for. Memcached reads more than 30 days as a date.
pub(super) const EXPIRY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Prefix of every value; another layout gets another number.
const MAGIC: &[u8; 4] = b"hlr1";
/// Bytes of the check sum.
const SUM: usize = 16;

/// The value after its prefix and check sum.
pub(super) fn seal(key: CacheKey, value: &Bytes) -> Bytes {
    let mut sealed = BytesMut::with_capacity(MAGIC.len() + SUM + value.len());
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&sum(key, value));
    sealed.extend_from_slice(value);
    sealed.freeze()
}

/// The value, if it is the one that was sealed for this key.
pub(super) fn open(key: CacheKey, sealed: &Bytes) -> Result<Bytes, CacheError> {
    let begin = MAGIC.len() + SUM;
    if sealed.len() < begin || !sealed.starts_with(MAGIC) {
        return Err(CacheError::Damaged);
    }
    let value = sealed.slice(begin..);
    match sealed[MAGIC.len()..begin] == sum(key, &value) {
        true => Ok(value),
        false => Err(CacheError::Damaged),
    }
}

fn sum(key: CacheKey, value: &[u8]) -> [u8; SUM] {
    let hash = blake3::keyed_hash(key.as_bytes(), value);
    hash.as_bytes()[..SUM].try_into().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_value_under_its_own_key_is_believed() {
        let (key, other) = (CacheKey::of(&[b"a"]), CacheKey::of(&[b"b"]));
        let value = Bytes::from_static(b"a picture");
        let sealed = seal(key, &value);
        assert_eq!(open(key, &sealed).expect("it is whole"), value);
        assert!(open(other, &sealed).is_err());
        for length in 0..sealed.len() {
            assert!(open(key, &sealed.slice(..length)).is_err(), "cut to {length}");
        }
        for place in 0..sealed.len() {
            let mut damaged = sealed.to_vec();
            damaged[place] ^= 1;
            assert!(open(key, &damaged.into()).is_err(), "byte {place}");
        }
        assert_eq!(open(key, &seal(key, &Bytes::new())).expect("empty"), Bytes::new());
    }
}
