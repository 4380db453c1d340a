//! What every parser of foreign bytes promises, as functions that panic when a promise is broken.
//!
//! Two drivers call them: libFuzzer by `fuzz_targets/`, which needs a nightly compiler, and the mutation loop in
//! `crates/haulier-proto/tests/mutation.rs`, which runs with every test run on any stable one.

pub mod accept;
pub mod cgi_head;
pub mod chunked;
pub mod conditional;
pub mod date;
pub mod dictionary;
pub mod etag_list;
pub mod fastcgi_params;
pub mod fastcgi_record;
pub mod forwarded;
pub mod h2_client;
pub mod h2_connection;
pub mod hpack;
pub mod path;
pub mod proxy;
pub mod range;
pub mod request_head;
pub mod response_head;

/// A few ways to cut `data` in three. The cuts depend on the bytes alone, so a failure comes again.
pub fn cuts(data: &[u8]) -> impl Iterator<Item = [&[u8]; 3]> {
    let sum = data.iter().fold(17usize, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let length = data.len();
    [
        (length / 2, length),
        (sum % (length + 1), (sum >> 16) % (length + 1)),
        (1, length.saturating_sub(1)),
    ]
    .into_iter()
    .map(move |(one, other)| {
        let (first, second) = (one.min(other).min(length), one.max(other).min(length));
        [&data[..first], &data[first..second], &data[second..]]
    })
}
