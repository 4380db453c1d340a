//! Chunked bodies.

use haulier_proto::chunked::{ChunkError, Decoder, LAST_CHUNK, write_chunk_head};

/// The same body whatever the pieces and the room; never more than was sent; nothing behind the end is touched.
pub fn check(data: &[u8]) {
    let whole = decode([data], usize::MAX);
    for pieces in super::cuts(data) {
        assert_eq!(decode(pieces, usize::MAX), whole);
    }
    assert_eq!(decode(data.chunks(1), usize::MAX), whole, "byte by byte");
    assert_eq!(decode([data], 1), whole, "room for one byte");
    let Ok((body, taken, done)) = whole else { return };
    assert!(taken <= data.len() && body.len() <= taken);
    assert!(done || taken == data.len());
    if done {
        assert!(data[..taken].ends_with(b"\r\n\r\n"));
        let encoded = encode(&body);
        assert_eq!(decode([&encoded[..]], usize::MAX), Ok((body, encoded.len(), true)));
    }
}

/// Body, bytes taken, and whether that was all.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, room: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let (mut decoder, mut body, mut taken) = (Decoder::new(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() && !decoder.is_done() {
            let before = body.len();
            let length = decoder.decode(rest, &mut body, room)?;
            assert!(length > 0 && length <= rest.len(), "it moves on, inside its input");
            assert!(body.len() - before <= room);
            taken += length;
            rest = &rest[length..];
        }
    }
    Ok((body, taken, decoder.is_done()))
}

fn encode(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(300) {
        write_chunk_head(&mut out, chunk.len() as u64);
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(LAST_CHUNK);
    out
}
