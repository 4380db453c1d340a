//! Every parser of untrusted bytes against damaged input: the seeds in `fuzz/seeds/`, mutated by a seeded generator.
//!
//! It runs the checks of the fuzz targets on stable Rust. All targets together take 20 seconds, or
//! `HAULIER_FUZZ_SECONDS`; `HAULIER_FUZZ_SEED` starts another sequence.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[allow(unreachable_pub, reason = "shared with the fuzz crate, where it is public")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

/// Number of tests below, which share the time.
const TARGETS: u32 = 18;
/// Longest input, bytes.
const MOST_BYTES: usize = 4096;
/// Mutated inputs that are kept in addition to the seeds, so that damage accumulates.
const MOST_KEPT: usize = 64;

/// Byte strings with a meaning for some parser.
const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\t",
    b" ",
    b":",
    b";",
    b",",
    b"\"",
    b"=",
    b"-",
    b"/",
    b"//",
    b"/../",
    b"/./",
    b"%",
    b"%2e",
    b"%2F",
    b"%00",
    b"%25",
    b"?",
    b"#",
    b"*",
    b"@",
    b"[::1]",
    b"0",
    b"0\r\n\r\n",
    b"ffffffffffffffff",
    b"18446744073709551615",
    b"18446744073709551616",
    b"bytes=",
    b"W/\"",
    b"gzip;q=0.",
    b"zstd,",
    b"\xff",
    b"\x80\x00\x00\x01",
    b"\x7f",
    b"\xc3\xa9",
    b"GET / HTTP/1.1\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1 200 OK\r\n",
    b"bytes 0-4/",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"If-None-Match: *\n",
    b"Status: 103\r\n",
    b"Location: //a\r\n",
    b"PROXY TCP4 ",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\x21\x11\x00\x0c",
    b"192.0.2.1",
    b"for=",
    b"\x01\x06\x00\x01\x00\x02\x01\x00ab\x00",
    b"\x00\x00\x01\x01\x05\x00\x00\x00\x03\x82",
    b"\x00\x00\x00\x09\x04\x00\x00\x00\x03",
    b"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x7f\xff\xff\xff",
    b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x05",
    b"\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping",
    b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
    b"\x00\x00\x03\x00\x01\x00\x00\x00\x03abc",
    b"\x40\x01a\x01b",
    b"\xbe",
    b"\x3f\xe1\x1f",
    b"\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
];

#[test]
fn request_heads_survive_mutation() {
    survive("request_head", targets::request_head::check);
}

#[test]
fn response_heads_survive_mutation() {
    survive("response_head", targets::response_head::check);
}

#[test]
fn chunked_bodies_survive_mutation() {
    survive("chunked", targets::chunked::check);
}

#[test]
fn paths_survive_mutation() {
    survive("path", targets::path::check);
}

#[test]
fn ranges_survive_mutation() {
    survive("range", targets::range::check);
}

#[test]
fn entity_tag_lists_survive_mutation() {
    survive("etag_list", targets::etag_list::check);
}

#[test]
fn dictionary_fields_survive_mutation() {
    survive("dictionary", targets::dictionary::check);
}

#[test]
fn accepted_codings_survive_mutation() {
    survive("accept", targets::accept::check);
}

#[test]
fn dates_survive_mutation() {
    survive("date", targets::date::check);
}

#[test]
fn conditions_survive_mutation() {
    survive("conditional", targets::conditional::check);
}

#[test]
fn fastcgi_records_survive_mutation() {
    survive("fastcgi_record", targets::fastcgi_record::check);
}

#[test]
fn fastcgi_params_survive_mutation() {
    survive("fastcgi_params", targets::fastcgi_params::check);
}

#[test]
fn cgi_response_heads_survive_mutation() {
    survive("cgi_head", targets::cgi_head::check);
}

#[test]
fn http2_connections_survive_mutation() {
    survive("h2_connection", targets::h2_connection::check);
}

#[test]
fn http2_clients_survive_mutation() {
    survive("h2_client", targets::h2_client::check);
}

#[test]
fn hpack_blocks_survive_mutation() {
    survive("hpack", targets::hpack::check);
}

#[test]
fn proxy_headers_survive_mutation() {
    survive("proxy", targets::proxy::check);
}

#[test]
fn forwarded_lists_survive_mutation() {
    survive("forwarded", targets::forwarded::check);
}

/// Checks every seed, then mutations of them until the target's share of the time is over.
fn survive(target: &str, check: fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        run(target, check, seed);
    }
    let deadline = Instant::now() + Duration::from_secs(number("HAULIER_FUZZ_SECONDS", 20)) / TARGETS;
    let mut random = Random::new(number("HAULIER_FUZZ_SEED", 1), target);
    let mut kept = seeds;
    let oldest = kept.len();
    while Instant::now() < deadline {
        // The clock is read once per batch, since it costs more than a short input.
        for _ in 0..64 {
            let input = mutate(&kept, &mut random);
            run(target, check, &input);
            if kept.len() < oldest + MOST_KEPT {
                kept.push(input);
            } else if random.below(8) == 0 {
                let place = oldest + random.below(MOST_KEPT);
                kept[place] = input;
            }
        }
    }
}

fn run(target: &str, check: fn(&[u8]), input: &[u8]) {
    if std::panic::catch_unwind(|| check(input)).is_err() {
        panic!(
            "{target} broke a promise, see above, with b\"{}\"",
            input.escape_ascii()
        );
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a folder of seeds")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds in {}", folder.display());
    files
        .iter()
        .map(|file| std::fs::read(file).expect("a readable seed"))
        .collect()
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number")),
        Err(_) => default,
    }
}

/// One input of the pool with one to four changes.
fn mutate(pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = pool[random.below(pool.len())].clone();
    for _ in 0..=random.below(4) {
        change(&mut input, pool, random);
    }
    input.truncate(MOST_BYTES);
    input
}

fn change(input: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Random) {
    let (start, end) = random.span(input.len());
    match random.below(8) {
        0 if start < input.len() => input[start] ^= 1 << random.below(8),
        1 if start < input.len() => input[start] = random.below(256) as u8,
        2 => drop(input.drain(start..end)),
        3 => {
            let part = input[start..end].to_vec();
            input.splice(start..start, part);
        }
        4 => {
            let other = &pool[random.below(pool.len())];
            let (from, to) = random.span(other.len());
            input.splice(start..end, other[from..to].iter().copied());
        }
        5 => input.truncate(start),
        6 => {
            let (token, times) = (random.token(), random.below(200));
            input.splice(start..start, token.repeat(times));
        }
        _ => drop(input.splice(start..start, random.token().iter().copied())),
    }
}

/// The generator xorshift64*: small, seeded, the same on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64, target: &str) -> Self {
        let mixed = target.bytes().fold(seed, |mixed, byte| {
            mixed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
        });
        Self(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }

    /// A range within `length`, mostly a short one.
    fn span(&mut self, length: usize) -> (usize, usize) {
        let start = self.below(length + 1);
        let most = if self.below(4) == 0 {
            length - start
        } else {
            (length - start).min(8)
        };
        (start, start + self.below(most + 1))
    }

    fn token(&mut self) -> &'static [u8] {
        TOKENS[self.below(TOKENS.len())]
    }
}
