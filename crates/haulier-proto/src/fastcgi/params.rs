//! Name-value pairs and the PARAMS records that carry them (FastCGI specification 1.0, §3.4 and §5.2).
//!
//! PHP resets the connection when a pair lies across two records, so records are cut between pairs only. A pair that
//! fills more than one record cannot be sent at all.

use super::record::{HEADER_LEN, Header, MAX_CONTENT, RecordType};

/// A pair of more than 65535 bytes, lengths included. The answer is 431.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a FastCGI parameter of {length} bytes, at most 65535 can be sent")]
pub struct PairTooLong {
    /// Bytes of the pair as encoded.
    pub length: usize,
}

/// Pairs encoded once and sent with many requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedPairs {
    bytes: Vec<u8>,
}

impl EncodedPairs {
    /// Adds a pair.
    ///
    /// # Errors
    /// All pairs together would not fit into one record any more.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), PairTooLong> {
        let length = self.bytes.len() + encoded_length(name, value);
        if length > MAX_CONTENT {
            return Err(PairTooLong { length });
        }
        encode(&mut self.bytes, name, value);
        Ok(())
    }

    /// The pairs as a record contains them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends pairs to a buffer as complete PARAMS records. The empty record that ends PARAMS is not written.
#[derive(Debug)]
pub struct ParamsWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The offset of the open record's header; `None` before the first pair.
    header: Option<usize>,
}

impl<'a> ParamsWriter<'a> {
    /// Starts after the bytes that `out` already holds.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, header: None }
    }

    /// Adds a pair. An empty value is sent as such; to leave a variable out, do not push it.
    ///
    /// # Errors
    /// The pair fits into no record; nothing was written for it.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), PairTooLong> {
        let length = encoded_length(name, value);
        if length > MAX_CONTENT {
            return Err(PairTooLong { length });
        }
        self.reserve(length);
        encode(self.out, name, value);
        Ok(())
    }

    /// Adds pairs that were encoded before.
    pub fn push_encoded(&mut self, pairs: &EncodedPairs) {
        if !pairs.bytes.is_empty() {
            self.reserve(pairs.bytes.len());
            self.out.extend_from_slice(&pairs.bytes);
        }
    }

    /// Writes the length of the last record. Without it the records are not complete.
    pub fn finish(mut self) {
        self.close();
    }

    /// Makes sure that the open record takes `length` more bytes, which must not exceed one record.
    fn reserve(&mut self, length: usize) {
        if self
            .header
            .is_some_and(|header| self.out.len() - header - HEADER_LEN + length > MAX_CONTENT)
        {
            self.close();
        }
        if self.header.is_none() {
            self.header = Some(self.out.len());
            self.out.extend_from_slice(&[0; HEADER_LEN]);
        }
    }

    fn close(&mut self) {
        if let Some(header) = self.header.take() {
            let content = header + HEADER_LEN;
            let length = (self.out.len() - content) as u16; // `reserve` keeps it within a record
            self.out[header..content].copy_from_slice(&Header::new(RecordType::Params, length).encode());
        }
    }
}

fn encoded_length(name: &[u8], value: &[u8]) -> usize {
    let prefix = |bytes: &[u8]| if bytes.len() < 128 { 1 } else { 4 };
    prefix(name) + prefix(value) + name.len() + value.len()
}

fn encode(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    encode_length(out, name.len());
    encode_length(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// One byte below 128, else four with the top bit set.
fn encode_length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short) if short < 128 => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// A length that points beyond the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name-value pair longer than its record")]
pub struct PairsError;

/// The pairs in the content of PARAMS.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Reads `content`, the content of all PARAMS records of a request.
    pub const fn new(content: &'a [u8]) -> Self {
        Self { rest: content }
    }

    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let name_length = self.length()?;
        let value_length = self.length()?;
        Some((self.take(name_length)?, self.take(value_length)?))
    }

    fn length(&mut self) -> Option<usize> {
        let first = *self.rest.first()?;
        if first < 128 {
            return self.take(1).map(|_| usize::from(first));
        }
        let bytes = self.take(4)?.try_into().expect("four bytes were taken");
        Some((u32::from_be_bytes(bytes) & !(1 << 31)) as usize)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), PairsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let pair = self.pair();
        if pair.is_none() {
            self.rest = &[];
        }
        Some(pair.ok_or(PairsError))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The contents of the records in `bytes`, which must be complete PARAMS records.
    fn contents(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut contents = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk() {
            let header = Header::decode(*header).expect("the writer writes headers");
            assert_eq!(header, Header::new(RecordType::Params, header.content_length));
            assert_ne!(header.content_length, 0, "an empty record would end PARAMS");
            let (content, rest) = rest.split_at(header.content_length.into());
            contents.push(content);
            bytes = rest;
        }
        assert!(bytes.is_empty());
        contents
    }

    type Owned = (Vec<u8>, Vec<u8>);

    fn written(pairs: &[Owned]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ParamsWriter::new(&mut out);
        for (name, value) in pairs {
            writer.push(name, value).expect("short enough");
        }
        writer.finish();
        out
    }

    fn read(content: &[u8]) -> Vec<Owned> {
        Pairs::new(content)
            .map(|pair| pair.map(|(n, v)| (n.to_vec(), v.to_vec())).expect("a whole pair"))
            .collect()
    }

    #[test]
    fn short_and_long_lengths_are_encoded_as_the_specification_says() {
        let mut out = Vec::new();
        encode(&mut out, b"A", &[b'v'; 127]);
        assert_eq!(out[..3], [1, 127, b'A']);
        out.clear();
        encode(&mut out, b"AB", &[b'v'; 128]);
        assert_eq!(out[..7], [2, 0x80, 0, 0, 128, b'A', b'B']);
    }

    #[test]
    fn no_pairs_give_no_record() {
        assert_eq!(written(&[]), []);
    }

    #[test]
    fn a_pair_is_never_split_over_two_records() {
        let pairs: Vec<Owned> = (0..320)
            .map(|n| (format!("NAME_{n}").into_bytes(), vec![b'x'; 1000]))
            .collect();
        let out = written(&pairs);
        let contents = contents(&out);
        assert!(contents.len() >= 5, "320 KB take more than four records");
        let read: Vec<Owned> = contents.into_iter().flat_map(read).collect();
        assert_eq!(read, pairs);
    }

    #[test]
    fn the_longest_pair_fills_a_record_and_one_more_byte_is_refused() {
        let longest = vec![b'x'; MAX_CONTENT - 1 - 1 - 4];
        let out = written(&[(b"N".to_vec(), longest.clone())]);
        assert_eq!(contents(&out)[0].len(), MAX_CONTENT);
        let (mut out, mut longer) = (Vec::new(), longest);
        longer.push(b'x');
        let mut writer = ParamsWriter::new(&mut out);
        assert_eq!(writer.push(b"N", &longer), Err(PairTooLong { length: 65_536 }));
        writer.finish();
        assert!(out.is_empty());
    }

    #[test]
    fn encoded_pairs_go_into_the_open_record_or_the_next() {
        let mut constant = EncodedPairs::default();
        constant.push(b"GATEWAY_INTERFACE", b"CGI/1.1").expect("short");
        let mut out = Vec::new();
        let mut writer = ParamsWriter::new(&mut out);
        writer.push(b"A", b"1").expect("short");
        writer.push_encoded(&constant);
        writer.push(b"BIG", &vec![b'x'; 65_520]).expect("short enough");
        writer.push_encoded(&constant);
        writer.push_encoded(&EncodedPairs::default());
        writer.finish();
        let names: Vec<Vec<Vec<u8>>> = contents(&out)
            .into_iter()
            .map(|content| read(content).into_iter().map(|(name, _)| name).collect())
            .collect();
        let gateway = b"GATEWAY_INTERFACE".to_vec();
        assert_eq!(
            names,
            [
                vec![b"A".to_vec(), gateway.clone()],
                vec![b"BIG".to_vec()],
                vec![gateway]
            ]
        );
    }

    #[test]
    fn encoded_pairs_beyond_one_record_are_refused() {
        let mut constant = EncodedPairs::default();
        constant.push(b"A", &vec![b'x'; 60_000]).expect("fits");
        assert!(constant.push(b"B", &vec![b'x'; 10_000]).is_err());
        assert_eq!(constant.as_bytes().len(), 60_006);
    }

    #[test]
    fn a_pair_that_ends_behind_its_record_is_an_error_and_the_last_item() {
        for content in [
            &[1][..],
            &[1, 1],
            &[1, 1, b'A'],
            &[0x80, 0, 0],
            &[0xff, 0xff, 0xff, 0xff, 0],
        ] {
            assert_eq!(Pairs::new(content).collect::<Vec<_>>(), [Err(PairsError)]);
        }
    }

    proptest! {
        #[test]
        fn any_pairs_are_read_as_they_were_written(
            pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..30_000)), 0..12),
        ) {
            let out = written(&pairs);
            let read: Vec<Owned> = contents(&out).into_iter().flat_map(read).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn reading_garbage_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Pairs::new(&bytes).count() <= bytes.len());
        }
    }
}
