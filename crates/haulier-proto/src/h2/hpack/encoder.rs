//! Field lines to field blocks with a dynamic table (RFC 7541 §2.3.2, §6): a line that a client repeats becomes one
//! byte.

use super::encode::{LITERAL, SECRET, integer};
use super::encode::{is_connection_specific, is_secret, string, whole_entry, with_lower_case};
use super::table::{DynamicTable, STATIC, static_name};

/// The largest table, bytes; a peer's SETTINGS may make it smaller.
const MOST_TABLE: u32 = 4096;
/// Literal that enters the table (RFC 7541 §6.2.1).
const INDEXED_LITERAL: u8 = 0x40;
/// A size update (RFC 7541 §6.3).
const SIZE_UPDATE: u8 = 0x20;

/// Writes the field blocks of one connection, in their order.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    limit: u32,
    /// The smallest limit since the last block, which the next block must state (RFC 7541 §4.2).
    smallest: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            table: DynamicTable::new(MOST_TABLE as usize),
            limit: MOST_TABLE,
            smallest: None,
        }
    }
}

impl Encoder {
    /// The peer's SETTINGS_HEADER_TABLE_SIZE, bytes.
    pub fn set_limit(&mut self, bytes: u32) {
        let limit = bytes.min(MOST_TABLE);
        if limit == self.limit {
            return;
        }
        self.limit = limit;
        self.smallest = Some(self.smallest.map_or(limit, |smallest| smallest.min(limit)));
        self.table.resize(limit as usize);
    }

    /// Appends a whole block. Names become lower case; fields of the connection alone are left out.
    pub fn block<'f>(&mut self, out: &mut Vec<u8>, fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) {
        if let Some(smallest) = self.smallest.take() {
            if smallest < self.limit {
                integer(out, SIZE_UPDATE, 5, smallest);
            }
            integer(out, SIZE_UPDATE, 5, self.limit);
        }
        for (name, value) in fields {
            with_lower_case(name, |name| self.field(out, name, value));
        }
    }

    fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        if is_connection_specific(name) {
            return;
        }
        let known = static_name(name);
        if let Some(whole) = known.and_then(|index| whole_entry(index, name, value)) {
            integer(out, 0x80, 7, whole);
            return;
        }
        let kind = kind_of(name);
        if kind == INDEXED_LITERAL
            && let Some(row) = self.find(name, value)
        {
            integer(out, 0x80, 7, row);
            return;
        }
        let prefix = if kind == INDEXED_LITERAL { 6 } else { 4 };
        integer(out, kind, prefix, known.unwrap_or(0));
        if known.is_none() {
            string(out, name);
        }
        string(out, value);
        if kind == INDEXED_LITERAL {
            // The peer does the same, also when the line is larger than the table (RFC 7541 §4.4).
            self.table.insert(name, value);
        }
    }

    /// The index of an entry of the dynamic table.
    fn find(&self, name: &[u8], value: &[u8]) -> Option<u32> {
        let row = (0..)
            .map_while(|row| self.table.get(row))
            .position(|entry| entry == (name, value))?;
        Some((STATIC.len() + 1 + row) as u32)
    }
}

/// The kind of literal for a field. Values that change with each request do not enter the table: they would push out
/// those that stay.
fn kind_of(name: &[u8]) -> u8 {
    match name {
        name if is_secret(name) => SECRET,
        b":path" | b"content-length" | b"range" | b"if-range" | b"if-none-match" | b"if-modified-since" => LITERAL,
        _ => INDEXED_LITERAL,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::decode::Decoder;
    use super::*;

    const REQUEST: [(&[u8], &[u8]); 6] = [
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/a/b?c"),
        (b":authority", b"example.org"),
        (b"User-Agent", b"haulier/1"),
        (b"Connection", b"keep-alive"),
    ];

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut lines = Vec::new();
        decoder
            .decode(block, |name, value| lines.push((name.to_vec(), value.to_vec())))
            .expect("our own block");
        lines
    }

    #[test]
    fn a_request_said_again_is_short_and_means_the_same() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
        let blocks: Vec<Vec<u8>> = (0..3)
            .map(|_| {
                let mut out = Vec::new();
                encoder.block(&mut out, REQUEST);
                out
            })
            .collect();
        let lines: Vec<_> = blocks.iter().map(|block| decoded(&mut decoder, block)).collect();
        assert_eq!(lines[0], lines[1]);
        assert_eq!(lines[1], lines[2]);
        assert_eq!(lines[0].len(), 5, "all but Connection");
        assert_eq!(lines[0][4].0, b"user-agent");
        assert!(
            blocks[0].len() > 20 && blocks[1].len() < 14,
            "{} bytes",
            blocks[1].len()
        );
        assert_eq!(blocks[1], blocks[2]);
    }

    #[test]
    fn a_secret_enters_no_table() {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        encoder.block(&mut out, [(&b"authorization"[..], &b"Basic x"[..])]);
        let first = std::mem::take(&mut out);
        encoder.block(&mut out, [(&b"authorization"[..], &b"Basic x"[..])]);
        assert_eq!(first, out);
        assert_eq!(out[0] & 0xf0, SECRET);
    }

    #[test]
    fn a_peer_without_a_table_is_told_and_obeyed() {
        let (mut encoder, mut decoder, mut out) = (Encoder::default(), Decoder::new(0), Vec::new());
        encoder.set_limit(0);
        for _ in 0..2 {
            out.clear();
            encoder.block(&mut out, REQUEST);
            assert_eq!(decoded(&mut decoder, &out).len(), 5);
        }
        assert_eq!(decoder.table_size(), 0);
    }

    proptest! {
        #[test]
        fn whatever_is_said_comes_back_however_the_limit_changes(
            blocks in proptest::collection::vec(
                (proptest::option::of(0u32..300), proptest::collection::vec(("[a-c]{1,40}", "[ -~]{0,60}"), 0..8)),
                1..20,
            ),
        ) {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(4096));
            for (limit, lines) in blocks {
                limit.into_iter().for_each(|limit| encoder.set_limit(limit));
                let mut out = Vec::new();
                encoder.block(&mut out, lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
                let expected: Vec<_> = lines.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes())).collect();
                prop_assert_eq!(decoded(&mut decoder, &out), expected);
            }
        }
    }
}
