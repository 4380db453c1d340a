//! HPACK, the compression of field lines in HTTP/2 (RFC 7541).
//!
//! The decoder has the peer's dynamic table. A server encodes with the static table only, so that a block depends on
//! its fields alone: it is made once for a cached file and copied for every request. A client, whose requests are much
//! alike, has an [`encoder::Encoder`] with a table.

pub mod decode;
pub mod encode;
pub mod encoder;
pub mod huffman;
pub mod table;

/// A fault in a field block. The table is lost then, so each ends the connection with COMPRESSION_ERROR
/// (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends inside an integer or a string.
    #[error("field block ends too early")]
    Truncated,
    /// An integer beyond 32 bits, or padded with zeros (RFC 7541 §5.1).
    #[error("integer out of range")]
    Integer,
    /// An index that neither table has (RFC 7541 §2.3.3).
    #[error("index {0} is in no table")]
    Index(u32),
    /// Huffman padding longer than 7 bits or not of ones, or the EOS symbol (RFC 7541 §5.2).
    #[error("bad Huffman code")]
    Huffman,
    /// A table size above the limit that we allowed, or not at the start of the block (RFC 7541 §4.2).
    #[error("dynamic table size update out of place or range")]
    TableSize,
}
