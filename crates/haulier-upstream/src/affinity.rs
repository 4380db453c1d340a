//! The server that a key belongs to: rendezvous hashing, the same in every process and on every machine.
//!
//! Each server has a weight for a key; the usable server of the greatest weight gets it. When a server leaves, only its
//! keys move.

use crate::address::Address;

/// A hash of each server's address.
#[derive(Debug)]
pub(crate) struct Affinity(Vec<u64>);

impl Affinity {
    pub(crate) fn of(servers: &[Address]) -> Self {
        Self(
            servers
                .iter()
                .map(|server| hash(server.to_string().as_bytes()))
                .collect(),
        )
    }

    /// Number of the server that a key belongs to, among those for which `may_have` is true.
    pub(crate) fn find(&self, key: &[u8], may_have: impl Fn(usize) -> bool) -> Option<usize> {
        let key = hash(key);
        let candidates = self.0.iter().enumerate().filter(|(number, _)| may_have(*number));
        candidates
            .max_by_key(|(_, seed)| mixed(*seed ^ key))
            .map(|(number, _)| number)
    }
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Every bit of the result depends on every bit of the number (the finalizer of SplitMix64).
fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affinity() -> Affinity {
        let servers = ["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"];
        Affinity::of(&servers.map(|server| Address::Tcp(server.parse().expect("an address"))))
    }

    #[test]
    fn keys_spread_evenly_and_stay_where_they_are_when_another_server_leaves() {
        let affinity = affinity();
        let mut counts = [0; 3];
        for number in 0..3000 {
            let key = format!("session{number}");
            let found = affinity.find(key.as_bytes(), |_| true).expect("there are servers");
            counts[found] += 1;
            let without_first = affinity.find(key.as_bytes(), |server| server != 0);
            if found != 0 {
                assert_eq!(without_first, Some(found));
            } else {
                assert_ne!(without_first, Some(0));
            }
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(affinity.find(b"any", |_| false), None);
    }

    #[test]
    fn a_key_belongs_to_the_same_server_in_every_release() {
        let keys = [&b"a"[..], b"b", b"c", b"d", b"e", b"f"];
        let found = keys.map(|key| affinity().find(key, |_| true).expect("there are servers"));
        assert_eq!(found, [1, 2, 0, 2, 2, 2]);
    }
}
