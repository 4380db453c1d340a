use proptest::prelude::*;

use super::super::encode;
use super::*;

type Lines = Vec<(String, String)>;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.chunks(2).map(pair).collect()
}

fn lines(decoder: &mut Decoder, block: &[u8]) -> Result<Lines, HpackError> {
    let mut lines = Lines::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder
        .decode(block, |name, value| lines.push((text(name), text(value))))
        .map(|()| lines)
}

fn expected(lines: &[(&str, &str)]) -> Lines {
    let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    lines.iter().map(own).collect()
}

/// The bytes of a block, what they say, and the size of the table after them.
type Example<'a> = (&'a str, &'a [(&'a str, &'a str)], usize);

/// Blocks of one connection.
fn check(table: u32, blocks: &[Example<'_>]) {
    let mut decoder = Decoder::new(table);
    for (block, said, size) in blocks {
        assert_eq!(lines(&mut decoder, &hex(block)), Ok(expected(said)), "{block}");
        assert_eq!(decoder.table_size(), *size, "{block}");
    }
}

#[test]
fn integers_are_those_of_appendix_c_1() {
    for (bytes, prefix, value, left) in [
        (&[0x0a][..], 5, 10, 0),
        (&[0xff, 0x9a, 0x0a, 7], 5, 1337, 1),
        (&[0x2a], 7, 42, 0),
    ] {
        let mut rest = bytes;
        assert_eq!(integer(&mut rest, prefix), Ok(value));
        assert_eq!(rest.len(), left);
    }
}

#[test]
fn literals_are_those_of_appendix_c_2() {
    check(
        4096,
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            &[("custom-key", "custom-header")],
            55,
        )],
    );
    check(
        4096,
        &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], 0)],
    );
    check(
        4096,
        &[(
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            &[("password", "secret")],
            0,
        )],
    );
    check(4096, &[("82", &[(":method", "GET")], 0)]);
}

const FIRST_REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
];
const SECOND_REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
    ("cache-control", "no-cache"),
];
const THIRD_REQUEST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];

#[test]
fn requests_are_those_of_appendix_c_3() {
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST_REQUEST, 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND_REQUEST, 110),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                THIRD_REQUEST,
                164,
            ),
        ],
    );
}

#[test]
fn huffman_requests_are_those_of_appendix_c_4() {
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST_REQUEST, 57),
            ("8286 84be 5886 a8eb 1064 9cbf", SECOND_REQUEST, 110),
            (
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                THIRD_REQUEST,
                164,
            ),
        ],
    );
}

const FIRST_RESPONSE: &[(&str, &str)] = &[
    (":status", "302"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
];
const SECOND_RESPONSE: &[(&str, &str)] = &[
    (":status", "307"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
];
const THIRD_RESPONSE: &[(&str, &str)] = &[
    (":status", "200"),
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
    ("location", "https://www.example.com"),
    ("content-encoding", "gzip"),
    ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
];

#[test]
fn responses_with_eviction_are_those_of_appendix_c_5() {
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                FIRST_RESPONSE,
                222,
            ),
            ("4803 3330 37c1 c0bf", SECOND_RESPONSE, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                THIRD_RESPONSE,
                215,
            ),
        ],
    );
}

#[test]
fn huffman_responses_with_eviction_are_those_of_appendix_c_6() {
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                FIRST_RESPONSE,
                222,
            ),
            ("4883 640e ffc1 c0bf", SECOND_RESPONSE, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                THIRD_RESPONSE,
                215,
            ),
        ],
    );
}

#[test]
fn what_is_no_block_is_refused_by_name() {
    for (block, error) in [
        ("80", HpackError::Index(0)),
        ("be", HpackError::Index(62)),
        ("7e 01 61", HpackError::Index(62)),
        ("ff ff ff ff ff ff 01", HpackError::Integer),
        ("ff ff ff ff ff 7f", HpackError::Integer),
        ("ff", HpackError::Truncated),
        ("40", HpackError::Truncated),
        ("40 05 61", HpackError::Truncated),
        ("40 01 61", HpackError::Truncated),
        ("40 84 ff ff ff ff 01 61", HpackError::Huffman),
        ("82 20", HpackError::TableSize),
        ("3f e2 1f", HpackError::TableSize),
    ] {
        assert_eq!(lines(&mut Decoder::new(4096), &hex(block)), Err(error), "{block}");
    }
}

#[test]
fn a_size_update_at_the_start_empties_the_table() {
    let mut decoder = Decoder::new(4096);
    lines(&mut decoder, &hex("4001 6101 62")).expect("a literal");
    assert_eq!(decoder.table_size(), 34);
    assert_eq!(lines(&mut decoder, &hex("20 3fe1 1f be")), Err(HpackError::Index(62)));
    assert_eq!(decoder.table_size(), 0);
}

#[test]
fn a_bomb_of_references_takes_no_memory_here() {
    let mut decoder = Decoder::new(4096);
    let mut block = hex("4001 61 7f a1 1e");
    block.extend([b'x'; 4000]);
    block.extend([0xbe; 16_000]);
    let mut sum = 0;
    decoder
        .decode(&block, |name, value| sum += name.len() + value.len())
        .expect("a sound block");
    assert!(sum > 60_000_000, "{sum}");
    assert!(decoder.scratch.capacity() <= MOST_SCRATCH);
}

#[test]
fn every_static_entry_is_found_by_its_index() {
    let mut decoder = Decoder::new(0);
    for (row, (name, value)) in STATIC.iter().enumerate() {
        let found = lines(&mut decoder, &[0x80 | (row as u8 + 1)]).expect("an index");
        assert_eq!((found[0].0.as_bytes(), found[0].1.as_bytes()), (*name, *value));
    }
}

proptest! {
    #[test]
    fn what_was_encoded_decodes_to_itself(
        fields in proptest::collection::vec(("[a-z0-9-]{1,80}", proptest::collection::vec(any::<u8>(), 0..300)), 0..20)
    ) {
        let mut block = Vec::new();
        let mut sent = Vec::new();
        for (name, value) in &fields {
            if !encode::is_connection_specific(name.as_bytes()) {
                encode::field(&mut block, name.as_bytes(), value);
                sent.push((name.as_bytes().to_vec(), value.clone()));
            }
        }
        let mut got = Vec::new();
        Decoder::new(4096).decode(&block, |name, value| got.push((name.to_vec(), value.to_vec()))).expect("our own block");
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn any_bytes_are_read_or_refused(block in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut decoder = Decoder::new(256);
        let _ = decoder.decode(&block, |_, _| ());
        prop_assert!(decoder.table_size() <= 256);
    }
}
