//! The coders: whole bodies at once, and streams that can be flushed.
//!
//! The codecs are libraries; `policy` decides on their parameters. Each thread keeps contexts that cost more to create
//! than a small page costs to code.

mod brotli;
mod gzip;
mod zstd;

use haulier_proto::accept::Coding;

pub(crate) use self::brotli::is_standard_window as is_brotli;
pub(crate) use self::zstd::{Dictionary, window_of as zstd_window};
use super::policy::Choice;

/// Failure of a codec: out of memory, or a fault of haulier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{coding}: {why}")]
pub(crate) struct CodecError {
    coding: &'static str,
    why: &'static str,
}

impl CodecError {
    fn new(coding: Coding, why: &'static str) -> Self {
        Self {
            coding: coding.as_str(),
            why,
        }
    }
}

/// Codes a whole body.
///
/// # Errors
/// The codec failed: no memory.
pub(crate) fn whole(choice: Choice, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    match choice.coding {
        Coding::Zstd => zstd::whole(choice, body),
        Coding::DictionaryZstd => Err(CodecError::new(choice.coding, "needs its dictionary")),
        Coding::Brotli => brotli::whole(choice, body),
        Coding::Gzip => gzip::whole(choice, body),
    }
}

/// Codes a whole body, with a dictionary if the coding takes one.
///
/// # Errors
/// The codec failed: no memory.
pub(crate) fn whole_with(choice: Choice, dictionary: Option<&Dictionary>, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    match dictionary {
        Some(dictionary) => zstd::whole_with(choice, dictionary, body),
        None => whole(choice, body),
    }
}

/// Codes a file as the difference from an earlier one (RFC 9842 §5); `None` if that cannot be a dictionary.
///
/// # Errors
/// The codec failed: no memory.
pub(crate) fn difference(choice: Choice, from: &[u8], body: &[u8]) -> Result<Option<Vec<u8>>, CodecError> {
    zstd::difference(choice, from, body)
}

/// An encoder for a body in pieces.
pub(crate) enum Encoder {
    Zstd(zstd::Stream),
    Brotli(brotli::Stream),
    Gzip(Box<gzip::Stream>),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Zstd(_) => "zstd",
            Self::Brotli(_) => "br",
            Self::Gzip(_) => "gzip",
        })
    }
}

impl Encoder {
    /// Begins a body; `length` is its length in bytes, if certain.
    ///
    /// # Errors
    /// The codec failed: no memory.
    pub(crate) fn new(choice: Choice, length: Option<u64>) -> Result<Self, CodecError> {
        Ok(match choice.coding {
            Coding::Zstd | Coding::DictionaryZstd => Self::Zstd(zstd::Stream::new(choice, length)?),
            Coding::Brotli => Self::Brotli(brotli::Stream::new(choice, length)?),
            Coding::Gzip => Self::Gzip(Box::new(gzip::Stream::new(choice))),
        })
    }

    /// Begins a body that is coded with a dictionary.
    ///
    /// # Errors
    /// The codec failed: no memory.
    pub(crate) fn with(
        choice: Choice,
        dictionary: Option<&Dictionary>,
        length: Option<u64>,
    ) -> Result<Self, CodecError> {
        match dictionary {
            Some(dictionary) => Ok(Self::Zstd(zstd::Stream::with(choice, dictionary, length)?)),
            None => Self::new(choice, length),
        }
    }

    /// Codes more of the body and appends the output to `out`.
    ///
    /// # Errors
    /// The codec failed.
    pub(crate) fn write(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Zstd(stream) => stream.write(body, out),
            Self::Brotli(stream) => stream.write(body, out),
            Self::Gzip(stream) => stream.write(body, out),
        }
    }

    /// Appends the output needed to read everything written so far.
    ///
    /// # Errors
    /// The codec failed.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Zstd(stream) => stream.flush(out),
            Self::Brotli(stream) => stream.flush(out),
            Self::Gzip(stream) => stream.flush(out),
        }
    }

    /// Appends the end of the stream.
    ///
    /// # Errors
    /// The codec failed.
    pub(crate) fn finish(self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        match self {
            Self::Zstd(stream) => stream.finish(out),
            Self::Brotli(stream) => stream.finish(out),
            Self::Gzip(stream) => stream.finish(out),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::decode;
