//! Field lines that are sent often, encoded once.

use std::sync::OnceLock;

use haulier_proto::encode;
use haulier_proto::field::Fields;

/// Field lines with their bytes on the wire beside them.
#[derive(Debug)]
pub struct PreparedHead {
    fields: Fields,
    /// `Name: value\r\n` of every line, without status line and closing empty line.
    http1: Vec<u8>,
    /// The lines as other protocols send them, in the order of [`FieldEncoding`]s, from the first use on.
    others: [OnceLock<Box<[u8]>>; FieldEncoding::MOST],
    /// The site's own Server field stands in place of ours.
    pub has_server: bool,
    /// Another client may get the same content coded.
    pub is_negotiable: bool,
}

impl PreparedHead {
    /// Encodes once what every answer will need.
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

    /// Of content that has codings.
    #[must_use]
    pub fn negotiable(mut self) -> Self {
        self.is_negotiable = true;
        self
    }

    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The lines as HTTP/1.1 sends them.
    #[must_use]
    pub fn http1(&self) -> &[u8] {
        &self.http1
    }

    /// The lines in the encoding of another protocol, without what stands for the status line.
    #[must_use]
    pub fn encoded(&self, encoding: &FieldEncoding) -> &[u8] {
        self.others[encoding.slot].get_or_init(|| {
            let mut block = Vec::with_capacity(self.http1.len());
            (encoding.encode)(&mut block, &self.fields);
            block.into_boxed_slice()
        })
    }
}

/// How a protocol beside HTTP/1.1 encodes field lines.
#[derive(Debug)]
pub struct FieldEncoding {
    slot: usize,
    encode: fn(&mut Vec<u8>, &Fields),
}

impl FieldEncoding {
    /// Most protocols beside HTTP/1.1.
    const MOST: usize = 1;

    /// The encoding of HTTP/2.
    #[must_use]
    pub const fn http2(encode: fn(&mut Vec<u8>, &Fields)) -> Self {
        Self { slot: 0, encode }
    }
}
