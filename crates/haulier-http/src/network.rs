//! Address ranges in CIDR notation, such as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// All addresses with the same prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Text that is neither an address nor a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither an address nor a network such as 10.0.0.0/8")]
pub struct NotANetwork;

impl Network {
    /// True if `address` is in the range. An IPv4-mapped address (`::ffff:10.0.0.1`) counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).leading_zeros() >= self.bits()
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).leading_zeros() >= self.bits()
            }
            _ => false,
        }
    }

    fn bits(&self) -> u32 {
        self.bits.into()
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    /// Parses `10.0.0.0/8` or `2001:db8::/32`. A lone address is a network of one. Host bits are ignored.
    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => (address, Some(bits)),
            Some(_) => return Err(NotANetwork),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|&bits| bits <= most).ok_or(NotANetwork)?,
            None => most,
        };
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_addresses_with_its_prefix() {
        let rows = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.0/31", "192.0.2.1", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::/0", "::1", true),
        ];
        for (network, address, expected) in rows {
            let found: Network = network.parse().expect(network);
            let address: IpAddr = address.parse().expect(address);
            assert_eq!(found.contains(address), expected, "{network} and {address}");
        }
    }

    #[test]
    fn text_that_is_no_network_is_refused() {
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0/8",
            "a/8",
            "10.0.0.0/8/8",
            "/8",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(NotANetwork), "{wrong:?}");
        }
    }
}
