//! Identifiers of requests.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Identifier of one request in every log, unique across threads, processes and machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestId {
    /// 128 bits made here.
    Own { thread: u64, number: u64 },
    /// The identifier given by a trusted proxy.
    Given(Box<str>),
}

impl RequestId {
    /// Digits of an identifier made here.
    pub const DIGITS: usize = 32;
    /// Longest accepted identifier of a proxy, bytes.
    const LONGEST: usize = 128;

    /// Accepts a proxy's identifier if it needs no escaping in a log, a field or a page.
    pub fn given(value: &[u8]) -> Option<Self> {
        let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(&byte);
        let is_id = (1..=Self::LONGEST).contains(&value.len()) && value.iter().all(is_plain);
        let text = std::str::from_utf8(value).ok().filter(|_| is_id)?;
        Some(Self::Given(text.into()))
    }

    /// The identifier as text; `room` takes the digits of one made here.
    pub fn text<'t>(&'t self, room: &'t mut [u8; Self::DIGITS]) -> &'t str {
        let (thread, number) = match self {
            Self::Own { thread, number } => (*thread, *number),
            Self::Given(text) => return text,
        };
        let (first, last) = room.split_at_mut(Self::DIGITS / 2);
        // The digits that differ between requests come first: people read and quote those.
        write_digits(first, mixed(number));
        write_digits(last, thread);
        std::str::from_utf8(room).expect("hexadecimal digits are ASCII")
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text(&mut [0; Self::DIGITS]))
    }
}

/// A bijection of numbers (the last step of SplitMix64) that hides the count of requests from visitors.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn write_digits(room: &mut [u8], number: u64) {
    for (place, digit) in room.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place)) as usize & 0xf];
    }
}

/// Generator of one thread's identifiers: 64 random bits, and a counter that starts at a random number.
#[derive(Debug)]
pub struct RequestIds {
    thread: u64,
    next: Cell<u64>,
}

impl RequestIds {
    /// A generator with a random start.
    #[must_use]
    pub fn random() -> Self {
        // SipHash under keys of the system's random numbers.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            thread: random(),
            next: Cell::new(random()),
        }
    }

    pub fn next(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        RequestId::Own {
            thread: self.thread,
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_repeat_neither_on_a_thread_nor_between_threads() {
        let threads = [RequestIds::random(), RequestIds::random(), RequestIds::random()];
        let ids: HashSet<String> = (0..3000).map(|n| threads[n % 3].next().to_string()).collect();
        assert_eq!(ids.len(), 3000);
        let is_id = |id: &String| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(ids.iter().all(is_id));
    }

    #[test]
    fn the_counter_of_a_thread_never_repeats() {
        let ids = RequestIds::random();
        let first = ids.next();
        ids.next.set(ids.next.get() + (1 << 24) - 1);
        assert_ne!(ids.next(), first);
        let other = RequestIds::random();
        assert_ne!(ids.thread, other.thread, "not a number of the thread, nor the time");
    }

    #[test]
    fn the_identifier_of_a_proxy_is_accepted_if_it_needs_no_escaping() {
        let long = "a".repeat(128);
        for id in [
            "1",
            "7f3a-00_A.b:c=+/@",
            "Root=1-67891233-abcdef012345678912345678",
            &long,
        ] {
            assert_eq!(RequestId::given(id.as_bytes()).expect("well-formed").to_string(), id);
        }
        for id in [&b""[..], b"a b", b"a\"b", b"<a>", b"a\xff", b"a,b", &[b'a'; 129]] {
            assert_eq!(RequestId::given(id), None, "{}", String::from_utf8_lossy(id));
        }
    }
}
