//! Decoders for content codings, used while the body arrives: gzip, Brotli, Zstandard (RFC 9110 §8.4).
//!
//! The codecs are libraries. This module adds limits: a small body may not fill the disk, a window may not take more
//! than 8 MiB (RFC 9659), and a coded body that stops before its end is damaged.

use std::io::Write;

use brotlic::{BrotliDecoder, decode::DecoderInfo};
use flate2::write::MultiGzDecoder;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::error::ClientError;

/// The codings that can be decoded, for Accept-Encoding.
pub const ACCEPTED: &str = "gzip, br, zstd";

/// Decoded bytes for each coded one, beyond the first [`FREE`]: text reaches 20, an honest log 200.
const MOST_RATIO: u64 = 1000;
/// Decoded bytes that are always allowed.
const FREE: u64 = 64 * 1024 * 1024;
/// Coded bytes given to a codec at once, which limits the output of one call.
const PIECE: usize = 1024;
const OUTPUT: usize = 64 * 1024;

/// Decodes one coding.
pub struct Decoder {
    codec: Codec,
    taken: u64,
    made: u64,
    is_complete: bool,
}

enum Codec {
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Brotli(Box<BrotliDecoder>),
    Zstd(Box<DCtx<'static>>),
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({} to {} bytes)", self.taken, self.made)
    }
}

impl Decoder {
    /// A decoder for the value of Content-Encoding; `None` if the body is not coded.
    ///
    /// # Errors
    /// [`ClientError::Decode`] for a coding that was not requested, or for several.
    pub fn new(coding: Option<&[u8]>) -> Result<Option<Self>, ClientError> {
        let name = coding.unwrap_or_default().to_ascii_lowercase();
        let codec = match name.as_slice() {
            b"" | b"identity" => return Ok(None),
            b"gzip" | b"x-gzip" => Codec::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            b"br" => Codec::Brotli(Box::new(BrotliDecoder::new())),
            b"zstd" => Codec::Zstd(Box::new(zstd()?)),
            _ => return Err(ClientError::Decode("a coding we did not ask for")),
        };
        Ok(Some(Self {
            codec,
            taken: 0,
            made: 0,
            is_complete: false,
        }))
    }

    /// Decodes `input` and appends the result.
    ///
    /// # Errors
    /// [`ClientError::Decode`] for damage, and beyond the limits.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), ClientError> {
        for piece in input.chunks(PIECE) {
            self.taken += piece.len() as u64;
            let room = (self.taken * MOST_RATIO).max(FREE).saturating_sub(self.made);
            let before = out.len();
            match &mut self.codec {
                Codec::Gzip(decoder) => gzip(decoder, piece, out)?,
                Codec::Brotli(decoder) => self.is_complete = brotli(decoder, piece, out, room)?,
                Codec::Zstd(context) => self.is_complete = unzstd(context, piece, out, room)?,
            }
            let made = (out.len() - before) as u64;
            if made > room {
                return Err(ClientError::Decode("it grows without bound"));
            }
            self.made += made;
        }
        Ok(())
    }

    /// Ends the body and appends the rest of the output.
    ///
    /// # Errors
    /// [`ClientError::Decode`] if the coding does not end with the body.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), ClientError> {
        if let Codec::Gzip(decoder) = &mut self.codec {
            let ended = decoder.try_finish();
            out.append(decoder.get_mut());
            self.is_complete = ended.is_ok() && self.taken > 0;
        }
        if self.is_complete {
            Ok(())
        } else {
            Err(ClientError::Decode("it stops before its end"))
        }
    }
}

fn zstd() -> Result<DCtx<'static>, ClientError> {
    /// 2^23 bytes (RFC 9659).
    const MOST_WINDOW: u32 = 23;
    let mut context = DCtx::create();
    context
        .set_parameter(DParameter::WindowLogMax(MOST_WINDOW))
        .map_err(|_| ClientError::Decode("the window cannot be bounded"))?;
    Ok(context)
}

fn gzip(decoder: &mut MultiGzDecoder<Vec<u8>>, piece: &[u8], out: &mut Vec<u8>) -> Result<(), ClientError> {
    let written = decoder.write_all(piece).and_then(|()| decoder.flush());
    written.map_err(|_| ClientError::Decode("damaged gzip"))?;
    out.append(decoder.get_mut());
    Ok(())
}

fn brotli(decoder: &mut BrotliDecoder, mut piece: &[u8], out: &mut Vec<u8>, room: u64) -> Result<bool, ClientError> {
    let mut buffer = [0; OUTPUT];
    let start = out.len();
    loop {
        let result = decoder
            .decompress(piece, &mut buffer)
            .map_err(|_| ClientError::Decode("damaged Brotli"))?;
        piece = &piece[result.bytes_read..];
        out.extend_from_slice(&buffer[..result.bytes_written]);
        match result.info {
            DecoderInfo::Finished if piece.is_empty() => return Ok(true),
            DecoderInfo::Finished => return Err(ClientError::Decode("bytes behind the end")),
            DecoderInfo::NeedsMoreInput => return Ok(false),
            DecoderInfo::NeedsMoreOutput if (out.len() - start) as u64 > room => return Ok(false),
            DecoderInfo::NeedsMoreOutput => {}
        }
    }
}

fn unzstd(context: &mut DCtx<'_>, piece: &[u8], out: &mut Vec<u8>, room: u64) -> Result<bool, ClientError> {
    let mut buffer = [0; OUTPUT];
    let mut input = InBuffer::around(piece);
    let start = out.len();
    loop {
        let mut output = OutBuffer::around(&mut buffer[..]);
        let hint = context
            .decompress_stream(&mut output, &mut input)
            .map_err(|_| ClientError::Decode("damaged Zstandard, or a window beyond 8 MiB"))?;
        let made = output.as_slice().len();
        out.extend_from_slice(&buffer[..made]);
        let has_more = input.pos < piece.len() || made == OUTPUT;
        if !has_more || (out.len() - start) as u64 > room {
            return Ok(hint == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzipped(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(9));
        encoder.write_all(data).expect("memory");
        encoder.finish().expect("memory")
    }

    fn brotlied(data: &[u8]) -> Vec<u8> {
        let mut encoder = brotlic::CompressorWriter::new(Vec::new());
        encoder.write_all(data).expect("memory");
        encoder.into_inner().expect("memory")
    }

    fn zstded(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
        zstd_safe::compress(&mut out, data, 3).expect("room");
        out
    }

    fn decode(coding: &str, coded: &[u8], piece: usize) -> Result<Vec<u8>, ClientError> {
        let mut decoder = Decoder::new(Some(coding.as_bytes()))?.expect("a coding");
        let mut out = Vec::new();
        for piece in coded.chunks(piece) {
            decoder.feed(piece, &mut out)?;
        }
        decoder.finish(&mut out)?;
        Ok(out)
    }

    fn text() -> Vec<u8> {
        (0..20_000u32)
            .flat_map(|line| format!("line {line} of a text\n").into_bytes())
            .collect()
    }

    fn all(data: &[u8]) -> [(&'static str, Vec<u8>); 3] {
        [("gzip", gzipped(data)), ("br", brotlied(data)), ("zstd", zstded(data))]
    }

    #[test]
    fn every_coding_comes_off_in_pieces_of_any_size() {
        for (coding, coded) in all(&text()) {
            for piece in [1, 1000, coded.len()] {
                let decoded = decode(coding, &coded, piece).unwrap_or_else(|error| panic!("{coding}: {error}"));
                assert_eq!(decoded, text(), "{coding} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_coded_body_that_stops_early_is_damaged() {
        for (coding, coded) in all(&text()) {
            for length in [0, 1, coded.len() / 2, coded.len() - 1] {
                assert!(
                    decode(coding, &coded[..length], 4096).is_err(),
                    "{coding}, {length} bytes"
                );
            }
        }
    }

    #[test]
    fn a_body_that_grows_without_bound_is_refused() {
        let zeros = vec![0; 200 << 20];
        for (coding, coded) in [("br", brotlied(&zeros)), ("zstd", zstded(&zeros))] {
            assert!(
                matches!(decode(coding, &coded, 4096), Err(ClientError::Decode(_))),
                "{coding}"
            );
        }
    }

    #[test]
    fn only_codings_we_asked_for_are_taken_off() {
        assert!(Decoder::new(None).expect("nothing").is_none());
        assert!(Decoder::new(Some(b"identity")).expect("nothing").is_none());
        assert!(Decoder::new(Some(b"deflate")).is_err());
        assert!(Decoder::new(Some(b"gzip, gzip")).is_err());
    }
}
