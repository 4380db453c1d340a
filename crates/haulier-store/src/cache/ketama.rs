//! Consistent hashing over servers, as in libketama: when a server is added or removed, only its keys move.

use md5::{Digest, Md5};

/// Hashes per server, of four points each: enough to spread the keys evenly within a few per cent.
const HASHES: usize = 40;

/// The circle of hash values with the points of every server on it.
#[derive(Debug, Clone)]
pub(super) struct Continuum {
    /// Points with the number of their server, in order.
    points: Vec<(u32, usize)>,
}

impl Continuum {
    /// A circle for servers of these names, at least one.
    pub(super) fn new<'a>(servers: impl Iterator<Item = &'a str>) -> Self {
        let mut points = Vec::new();
        for (number, server) in servers.enumerate() {
            for hash in 0..HASHES {
                let digest = Md5::digest(format!("{server}-{hash}"));
                let of_digest = digest.chunks_exact(4).map(|four| {
                    let four = four.try_into().expect("four bytes each");
                    (u32::from_le_bytes(four), number)
                });
                points.extend(of_digest);
            }
        }
        points.sort_unstable();
        Self { points }
    }

    /// The number of the server for a hash: that of the next point on the circle.
    pub(super) fn find(&self, hash: u32) -> usize {
        let next = self.points.partition_point(|(point, _)| *point < hash);
        self.points[next % self.points.len()].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("10.0.0.{number}:11211")).collect()
    }

    fn continuum(servers: &[String]) -> Continuum {
        Continuum::new(servers.iter().map(String::as_str))
    }

    /// Hashes spread over the whole circle.
    fn hashes() -> impl Iterator<Item = u32> {
        (0..20_000_u32).map(|number| number.wrapping_mul(0x9e37_79b1))
    }

    #[test]
    fn every_server_gets_its_share() {
        let continuum = continuum(&servers(5));
        let mut shares = [0_u32; 5];
        for hash in hashes() {
            shares[continuum.find(hash)] += 1;
        }
        assert!(shares.iter().all(|share| (2_400..5_600).contains(share)), "{shares:?}");
    }

    #[test]
    fn a_server_that_goes_takes_only_its_own_keys_along() {
        let five = servers(5);
        let (all, fewer) = (continuum(&five), continuum(&five[..4]));
        for hash in hashes() {
            let before = all.find(hash);
            if before != 4 {
                assert_eq!(fewer.find(hash), before);
            }
        }
    }

    #[test]
    fn the_order_of_the_servers_does_not_matter() {
        let mut servers = servers(3);
        let one = continuum(&servers);
        servers.reverse();
        let other = continuum(&servers);
        assert!(hashes().all(|hash| one.find(hash) == 2 - other.find(hash)));
    }
}
