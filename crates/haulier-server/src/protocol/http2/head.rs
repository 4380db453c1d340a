//! The field block of a response, with the fields that the protocol adds.

use haulier_http::{FieldEncoding, Head};
use haulier_proto::h2::hpack::encode;

use super::super::head_fields;
use crate::thread::Thread;

/// `server: haulier`, a literal with a static name.
const SERVER: &[u8] = b"\x0f\x27\x07haulier";

/// The encoding of field lines in HTTP/2.
const HPACK: FieldEncoding = FieldEncoding::http2(encode::fields);

/// Appends the block of a head; `length` is the Content-Length, if there is one.
pub(super) fn write(out: &mut Vec<u8>, thread: &Thread, status: u16, head: &Head, length: Option<u64>) {
    encode::status(out, status);
    let missing = head_fields::write(out, head, |prepared| prepared.encoded(&HPACK), encode::field);
    if missing.server {
        out.extend_from_slice(SERVER);
    }
    if missing.date {
        thread.io.clock.append_date_block(out);
    }
    if let Some(length) = length {
        encode::content_length(out, length);
    }
}

#[cfg(test)]
mod tests {
    use haulier_proto::h2::hpack::decode::Decoder;

    use super::*;

    #[test]
    fn the_server_field_is_what_an_encoder_would_make_of_it() {
        let mut lines = Vec::new();
        let mut decoder = Decoder::new(0);
        let decoded = decoder.decode(SERVER, |name, value| lines.push((name.to_vec(), value.to_vec())));
        assert_eq!(decoded, Ok(()));
        assert_eq!(lines, [(b"server".to_vec(), b"haulier".to_vec())]);
    }
}
