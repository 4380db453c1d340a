//! HPACK blocks and Huffman strings.

use haulier_proto::h2::hpack::decode::Decoder;
use haulier_proto::h2::hpack::{encode, huffman};

/// What is read stays within its tables, and comes back from our own encoder.
pub fn check(data: &[u8]) {
    let mut decoder = Decoder::new(256);
    let mut lines = Vec::new();
    // Two blocks of one connection: the second meets the table of the first.
    let (first, second) = data.split_at(data.len() / 2);
    for block in [first, second] {
        let read = decoder.decode(block, |name, value| lines.push((name.to_vec(), value.to_vec())));
        assert!(decoder.table_size() <= 256);
        if read.is_err() {
            break;
        }
    }
    for (name, value) in lines.iter().take(20) {
        check_line(name, value);
    }
    check_huffman(data);
}

fn check_line(name: &[u8], value: &[u8]) {
    let name = name.to_ascii_lowercase();
    let mut block = Vec::new();
    encode::field(&mut block, &name, value);
    let mut found = Vec::new();
    Decoder::new(0)
        .decode(&block, |name, value| found.push((name.to_vec(), value.to_vec())))
        .expect("our own block");
    if encode::is_connection_specific(&name) {
        assert!(found.is_empty());
    } else {
        assert_eq!(found, [(name, value.to_vec())]);
    }
}

fn check_huffman(data: &[u8]) {
    let (mut coded, mut back, mut text) = (Vec::new(), Vec::new(), Vec::new());
    huffman::encode(data, &mut coded);
    assert_eq!(coded.len(), huffman::encoded_length(data));
    huffman::decode(&coded, &mut back).expect("our own code");
    assert_eq!(back, data);
    if huffman::decode(data, &mut text).is_ok() {
        assert!(text.len() <= data.len() * 8 / 5);
        let mut again = Vec::new();
        huffman::encode(&text, &mut again);
        assert_eq!(again, data, "one text, one code");
    }
}
