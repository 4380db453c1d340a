//! FastCGI name-value pairs, both ways.

use haulier_proto::fastcgi::record::{HEADER_LEN, MAX_CONTENT};
use haulier_proto::fastcgi::{Header, Pairs, ParamsWriter, RecordType};

/// Pairs that are read lie inside the content; written again they are read back, none across two records.
pub fn check(data: &[u8]) {
    let read: Vec<_> = Pairs::new(data).collect();
    assert!(
        read.iter().rev().skip(1).all(Result::is_ok),
        "only the last pair can be damaged"
    );
    let pairs: Vec<(&[u8], &[u8])> = read.into_iter().filter_map(Result::ok).collect();
    let total: usize = pairs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    assert!(total <= data.len());

    let mut records = Vec::new();
    let mut writer = ParamsWriter::new(&mut records);
    let mut written = Vec::new();
    for (name, value) in pairs {
        if writer.push(name, value).is_ok() {
            written.push((name, value));
        } else {
            assert!(name.len() + value.len() + 8 > MAX_CONTENT);
        }
    }
    writer.finish();
    assert_eq!(contents(&records), written);
}

fn contents(mut records: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut pairs = Vec::new();
    while let Some((header, rest)) = records.split_first_chunk::<HEADER_LEN>() {
        let header = Header::decode(*header).expect("our own header");
        assert_eq!(header.kind, RecordType::Params);
        let (content, rest) = rest.split_at(usize::from(header.content_length));
        assert!(!content.is_empty(), "an empty record would end PARAMS");
        pairs.extend(Pairs::new(content).map(|pair| pair.expect("a whole pair in each record")));
        records = &rest[usize::from(header.padding_length)..];
    }
    assert!(records.is_empty());
    pairs
}
