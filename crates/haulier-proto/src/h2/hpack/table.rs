//! The static and the dynamic table (RFC 7541 §2.3 and appendix A).

use std::collections::VecDeque;

/// The size of an entry, apart from its bytes (RFC 7541 §4.1).
pub const ENTRY_OVERHEAD: usize = 32;

/// The static table; index 1 is its first row.
#[rustfmt::skip]
pub const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
];

/// The index of the first static entry of this lower-case name.
#[must_use]
pub fn static_name(name: &[u8]) -> Option<u32> {
    let first = *name.first()?;
    let range = match first {
        b':' => 0..14,
        b'a' => 14..23,
        b'c' => 23..32,
        b'd'..=b'h' => 32..38,
        b'i'..=b'l' => 38..46,
        b'm'..=b'r' => 46..53,
        b's'..=b'w' => 53..61,
        _ => return None,
    };
    let start = range.start;
    let at = STATIC[range].iter().position(|(found, _)| *found == name)?;
    Some((start + at + 1) as u32)
}

#[derive(Debug, Clone, Copy)]
struct DynamicEntry {
    /// The start of the name in `DynamicTable::bytes`, counted from the first byte ever stored.
    start: u64,
    name: u32,
    value: u32,
}

impl DynamicEntry {
    fn length(self) -> usize {
        (self.name + self.value) as usize
    }

    fn size(self) -> usize {
        self.length() + ENTRY_OVERHEAD
    }
}

/// The dynamic table: fields that the peer has added, the newest first (RFC 7541 §2.3.2).
#[derive(Debug)]
pub struct DynamicTable {
    /// Newest at the front, as indices count.
    entries: VecDeque<DynamicEntry>,
    /// Names and values, the oldest first; the evicted ones at its start are removed now and then.
    bytes: Vec<u8>,
    /// Bytes removed from the start of `bytes` so far.
    removed: u64,
    size: usize,
    most: usize,
}

impl DynamicTable {
    /// An empty table of at most `most` bytes as RFC 7541 §4.1 counts them.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: Vec::new(),
            removed: 0,
            size: 0,
            most,
        }
    }

    /// Its size in bytes, as RFC 7541 §4.1 counts them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Changes the size limit and evicts the entries that no longer fit (RFC 7541 §4.3).
    pub fn resize(&mut self, most: usize) {
        self.most = most;
        self.evict(0);
    }

    /// Name and value of an entry; 0 is the newest.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let entry = *self.entries.get(number)?;
        let start = (entry.start - self.removed) as usize;
        let (name, rest) = self.bytes[start..start + entry.length()].split_at(entry.name as usize);
        Some((name, rest))
    }

    /// Adds a field; one that is larger than the table empties it (RFC 7541 §4.4).
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        if self.evict(name.len() + value.len() + ENTRY_OVERHEAD) {
            self.compact();
            let start = self.removed + self.bytes.len() as u64;
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.note(start, name.len(), value.len());
        }
    }

    /// Adds a field with the name of an entry, which may be evicted by it (RFC 7541 §4.4).
    pub fn insert_with_name_of(&mut self, number: usize, value: &[u8]) {
        let Some(&named) = self.entries.get(number) else { return };
        let length = named.name as usize;
        self.compact();
        let from = (named.start - self.removed) as usize;
        if self.evict(length + value.len() + ENTRY_OVERHEAD) {
            let start = self.removed + self.bytes.len() as u64;
            self.bytes.extend_from_within(from..from + length);
            self.bytes.extend_from_slice(value);
            self.note(start, length, value.len());
        }
    }

    fn note(&mut self, start: u64, name: usize, value: usize) {
        let entry = DynamicEntry {
            start,
            name: name as u32,
            value: value as u32,
        };
        self.size += entry.size();
        self.entries.push_front(entry);
    }

    /// Makes room for `needed` bytes; false if the table is too small for them even when empty. Bytes stay in place.
    fn evict(&mut self, needed: usize) -> bool {
        while self.size + needed > self.most {
            let Some(oldest) = self.entries.pop_back() else {
                return false;
            };
            self.size -= oldest.size();
        }
        true
    }

    /// Removes evicted bytes once they are as many as the table may hold.
    fn compact(&mut self) {
        let first = self
            .entries
            .back()
            .map_or(self.removed + self.bytes.len() as u64, |oldest| oldest.start);
        let dead = (first - self.removed) as usize;
        if dead >= self.most || dead == self.bytes.len() {
            self.bytes.drain(..dead);
            self.removed = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_static_name_is_found_at_its_first_row() {
        for (name, _) in STATIC {
            let first = STATIC.iter().position(|(found, _)| *found == name).expect("a row") + 1;
            assert_eq!(static_name(name), Some(first as u32), "{}", name.escape_ascii());
        }
        assert_eq!(static_name(b"x-other"), None);
        assert_eq!(static_name(b""), None);
        assert_eq!(static_name(b"servant"), None);
    }

    #[test]
    fn the_oldest_entry_makes_room() {
        let mut table = DynamicTable::new(100);
        table.insert(b"a", b"1");
        table.insert(b"b", b"2");
        assert_eq!(
            (table.get(0), table.get(1)),
            (Some((&b"b"[..], &b"2"[..])), Some((&b"a"[..], &b"1"[..])))
        );
        table.insert(b"c", b"3");
        assert_eq!(table.get(1), Some((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(2), None);
        assert_eq!(table.size(), 68);
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(64);
        table.insert(b"a", b"1");
        table.insert(b"name", &[b'x'; 40]);
        assert_eq!((table.size(), table.get(0)), (0, None));
    }

    #[test]
    fn a_name_may_come_from_the_entry_it_evicts() {
        let mut table = DynamicTable::new(50);
        table.insert(b"name", b"one");
        table.insert_with_name_of(0, b"two");
        assert_eq!(table.get(0), Some((&b"name"[..], &b"two"[..])));
        assert_eq!(table.get(1), None);
    }

    #[test]
    fn memory_stays_bounded_however_much_is_inserted() {
        let mut table = DynamicTable::new(4096);
        for number in 0..100_000u32 {
            table.insert(b"some-name", number.to_string().as_bytes());
            table.insert_with_name_of(0, &[b'v'; 200]);
        }
        assert!(table.bytes.capacity() <= 4 * 4096, "{}", table.bytes.capacity());
        assert!(table.size() <= 4096);
        assert_eq!(table.get(1), Some((&b"some-name"[..], &b"99999"[..])));
    }
}
