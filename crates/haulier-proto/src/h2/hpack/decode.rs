//! Field blocks to field lines (RFC 7541 §3.2, §6).

use super::table::{DynamicTable, STATIC};
use super::{HpackError, huffman};

/// Scratch memory above this is given back after a block, bytes.
const MOST_SCRATCH: usize = 1024;

/// Reads the field blocks of one connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The size that our SETTINGS_HEADER_TABLE_SIZE allows the peer.
    allowed: usize,
    /// Huffman-coded strings of the present line, decoded.
    scratch: Vec<u8>,
}

/// The handling of a literal (RFC 7541 §6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// The place of a string of the present line.
#[derive(Clone, Copy)]
enum Text<'b> {
    Plain(&'b [u8]),
    Scratch(usize, usize),
}

impl<'b> Text<'b> {
    fn of<'a>(self, scratch: &'a [u8]) -> &'a [u8]
    where
        'b: 'a,
    {
        match self {
            Self::Plain(text) => text,
            Self::Scratch(start, end) => &scratch[start..end],
        }
    }
}

impl Decoder {
    /// A decoder with a dynamic table of `table_size` bytes.
    #[must_use]
    pub fn new(table_size: u32) -> Self {
        Self {
            table: DynamicTable::new(table_size as usize),
            allowed: table_size as usize,
            scratch: Vec::new(),
        }
    }

    /// Bytes the peer's dynamic table holds, as RFC 7541 §4.1 counts them.
    #[must_use]
    pub fn table_size(&self) -> usize {
        self.table.size()
    }

    /// Reads a whole block and gives name and value of each line to `line`. Time and memory are in proportion to the
    /// block. A short block may refer to long lines: `line` has to limit them.
    ///
    /// # Errors
    /// [`HpackError`]; lines before the fault have been given. No later block of this peer can be read then.
    pub fn decode(&mut self, block: &[u8], mut line: impl FnMut(&[u8], &[u8])) -> Result<(), HpackError> {
        let mut rest = self.take_size_updates(block)?;
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                let (name, value) = self.entry(index)?;
                line(name, value);
            } else if first & 0x40 != 0 {
                self.literal(&mut rest, 6, Keep::Yes, &mut line)?;
            } else if first & 0x20 != 0 {
                return Err(HpackError::TableSize);
            } else {
                self.literal(&mut rest, 4, Keep::No, &mut line)?;
            }
        }
        if self.scratch.capacity() > MOST_SCRATCH {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// RFC 7541 §4.2: size updates stand at the start of a block.
    fn take_size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], HpackError> {
        let mut rest = block;
        while rest.first().is_some_and(|first| first & 0xe0 == 0x20) {
            let size = integer(&mut rest, 5)? as usize;
            if size > self.allowed {
                return Err(HpackError::TableSize);
            }
            self.table.resize(size);
        }
        Ok(rest)
    }

    fn entry(&self, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
        match (index as usize).checked_sub(1) {
            Some(row) if row < STATIC.len() => Ok(STATIC[row]),
            Some(row) => self.table.get(row - STATIC.len()).ok_or(HpackError::Index(index)),
            None => Err(HpackError::Index(0)),
        }
    }

    fn literal(
        &mut self,
        rest: &mut &[u8],
        prefix: u32,
        keep: Keep,
        line: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        self.scratch.clear();
        let index = integer(rest, prefix)?;
        if index == 0 {
            let name = self.string(rest)?;
            let value = self.string(rest)?;
            let (name, value) = (name.of(&self.scratch), value.of(&self.scratch));
            line(name, value);
            if keep == Keep::Yes {
                self.table.insert(name, value);
            }
            return Ok(());
        }
        let value = self.string(rest)?;
        let value = value.of(&self.scratch);
        let (name, _) = self.entry(index)?;
        line(name, value);
        if keep == Keep::Yes {
            match STATIC.get(index as usize - 1) {
                Some((name, _)) => self.table.insert(name, value),
                None => self.table.insert_with_name_of(index as usize - 1 - STATIC.len(), value),
            }
        }
        Ok(())
    }

    fn string<'b>(&mut self, rest: &mut &'b [u8]) -> Result<Text<'b>, HpackError> {
        let coded = rest.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
        let length = integer(rest, 7)? as usize;
        let (text, after) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
        *rest = after;
        if !coded {
            return Ok(Text::Plain(text));
        }
        let start = self.scratch.len();
        huffman::decode(text, &mut self.scratch)?;
        Ok(Text::Scratch(start, self.scratch.len()))
    }
}

/// An integer whose first byte lends its low `prefix` bits (RFC 7541 §5.1). Above 32 bits, or with more than five
/// further bytes, it is refused.
fn integer(rest: &mut &[u8], prefix: u32) -> Result<u32, HpackError> {
    let (&first, mut after) = rest.split_first().ok_or(HpackError::Truncated)?;
    let most = (1u32 << prefix) - 1;
    let mut value = u64::from(u32::from(first) & most);
    if value == u64::from(most) {
        let mut shift = 0;
        loop {
            let (&byte, left) = after.split_first().ok_or(HpackError::Truncated)?;
            after = left;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(HpackError::Integer);
            }
        }
    }
    *rest = after;
    u32::try_from(value).map_err(|_| HpackError::Integer)
}

#[cfg(test)]
mod tests;
