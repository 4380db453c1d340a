//! Rules of all caches on the network: limits, and a checksum of key and value.
//!
//! Such a cache is shared: it may be full or restarted, and other programs may write to it. A truncated value, or one
//! under a wrong key, must be a miss.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::cache::CacheError;
use super::key::CacheKey;

/// Timeout of a call. Rendering a small image takes a few milliseconds, so waiting much longer for a copy is not worth
/// it.
pub(super) const BUDGET: Duration = Duration::from_millis(50);
/// Longest value, bytes: memcached's default limit of an item with its key is 1 MiB.
pub(super) const MOST: usize = 1_000_000;
/// Lifetime of a value. Memcached reads more than 30 days as a date.
pub(super) const EXPIRY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Prefix of every value; a new layout gets a new number.
const MAGIC: &[u8; 4] = b"hlr1";
/// Bytes of the checksum.
const SUM: usize = 16;

/// The value with prefix and checksum.
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
