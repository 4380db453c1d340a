//! Field lines that are sent often, encoded once.

use std::sync::OnceLock;

use haulier_proto::encode;
use haulier_proto::field::Fields;

/// Field lines with their encoded form.
#[derive(Debug)]
pub struct PreparedHead {
    fields: Fields,
    /// `Name: value\r\n` of every line, without the status line and the empty line at the end.
    http1: Vec<u8>,
    /// The lines as other protocols send them, one slot for each [`FieldEncoding`], encoded on first use.
    others: [OnceLock<Box<[u8]>>; FieldEncoding::MOST],
    /// It has a Server field of the site, which replaces the default one.
    pub has_server: bool,
    /// The content has coded variants, so a client with another Accept-Encoding may get one.
    pub is_negotiable: bool,
}

impl PreparedHead {
    /// Encodes the lines for HTTP/1.1.
    #[must_use]
    pub fn new(fields: Fields) -> Self {
        let mut http1 = Vec::with_capacity(256);
        encode::fields(&mut http1, &fields);
        Self {
            has_server: fields.contains("Server"),
            is_negotiable: false,
            fields,
            http1,
            others: Default::default(),
        }
    }

    /// Marks the content as one with coded variants.
    #[must_use]
    pub fn negotiable(mut self) -> Self {
        self.is_negotiable = true;
        self
    }

    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The lines encoded for HTTP/1.1.
    #[must_use]
    pub fn http1(&self) -> &[u8] {
        &self.http1
    }

    /// The lines encoded for another protocol, without its status field.
    #[must_use]
    pub fn encoded(&self, encoding: &FieldEncoding) -> &[u8] {
        self.others[encoding.slot].get_or_init(|| {
            let mut block = Vec::with_capacity(self.http1.len());
            (encoding.encode)(&mut block, &self.fields);
            block.into_boxed_slice()
        })
    }
}

/// Encoder of field lines for a protocol other than HTTP/1.1.
#[derive(Debug)]
pub struct FieldEncoding {
    slot: usize,
    encode: fn(&mut Vec<u8>, &Fields),
}

impl FieldEncoding {
    /// Number of protocols other than HTTP/1.1.
    const MOST: usize = 1;

    /// The encoding of HTTP/2.
    #[must_use]
    pub const fn http2(encode: fn(&mut Vec<u8>, &Fields)) -> Self {
        Self { slot: 0, encode }
    }
}
