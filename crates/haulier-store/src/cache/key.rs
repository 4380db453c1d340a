//! The key of a cached value.

/// The key of a value: a hash of all its inputs. No part of a request is a key itself, so no request can inject a
/// command into the protocol of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of these parts. It depends on the boundaries between them.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key as 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_apart_where_their_parts_end() {
        assert_ne!(CacheKey::of(&[b"ab", b"c"]), CacheKey::of(&[b"a", b"bc"]));
        assert_ne!(CacheKey::of(&[b"ab"]), CacheKey::of(&[b"ab", b""]));
        assert_eq!(CacheKey::of(&[b"ab"]), CacheKey::of(&[b"ab"]));
        assert_eq!(CacheKey::of(&[b"ab"]).to_hex().len(), 64);
    }
}
