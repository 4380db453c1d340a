//! Decompression bombs: small files that would fill a machine's memory.

use std::io::Write;

/// A JPEG header of this size and little after it.
pub(crate) fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut frame = vec![0xff, 0xc2, 0, 17, 8];
    frame.extend(height.to_be_bytes());
    frame.extend(width.to_be_bytes());
    frame.extend([3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0]);
    [
        &[0xff, 0xd8][..],
        &frame,
        &[0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0xff, 0xd9],
    ]
    .concat()
}

/// A valid PNG of one colour, whose pixels deflate to a thousandth.
pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().expect("a header");
    let mut stream = writer.stream_writer().expect("a stream");
    let row = vec![0x55; width as usize * 4];
    for _ in 0..height {
        stream.write_all(&row).expect("a row");
    }
    stream.finish().expect("an end");
    drop(writer);
    bytes
}

/// A PNG with a false header: a single pixel that claims this size.
pub(crate) fn lying_png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(1, 1);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A PNG with a text chunk that inflates to this many bytes.
pub(crate) fn text_png(inflated: usize) -> Vec<u8> {
    let whole = png(16, 16);
    let mut deflated = Vec::new();
    // A zlib stream of stored blocks would be as long as its content, so an image encoder makes a compressed one.
    let mut encoder = png::Encoder::new(&mut deflated, 1, 1);
    let text = " ".repeat(inflated);
    encoder.add_ztxt_chunk("Comment".into(), text).expect("a text");
    drop(encoder.write_header().expect("a header"));
    let at = deflated.windows(4).position(|name| name == b"zTXt").expect("the chunk") - 4;
    let length = u32::from_be_bytes(deflated[at..at + 4].try_into().expect("four bytes")) as usize + 12;
    [&whole[..33], &deflated[at..at + length], &whole[33..]].concat()
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |mut sum, &byte| {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
        sum
    })
}

/// A GIF of this canvas with this many frames of one pixel each.
pub(crate) fn gif(width: u16, height: u16, frames: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, width, height, &[0, 0, 0, 255, 255, 255]).expect("an encoder");
    for _ in 0..frames {
        let frame = gif::Frame {
            width: 1,
            height: 1,
            buffer: vec![1].into(),
            ..gif::Frame::default()
        };
        encoder.write_frame(&frame).expect("a frame");
    }
    drop(encoder);
    bytes
}

/// A GIF whose only frame claims to be larger than the canvas.
pub(crate) fn lying_gif() -> Vec<u8> {
    let mut bytes = gif(16, 16, 1);
    let at = bytes.iter().position(|&byte| byte == 0x2c).expect("a frame");
    bytes[at + 5..at + 9].copy_from_slice(&[0xff; 4]);
    bytes
}

/// A WebP header of the largest size.
pub(crate) fn webp() -> Vec<u8> {
    let bits: u32 = 0x3fff | 0x3fff << 14;
    let mut chunk = b"VP8L".to_vec();
    chunk.extend(9_u32.to_le_bytes());
    chunk.push(0x2f);
    chunk.extend(bits.to_le_bytes());
    chunk.extend([0; 5]);
    [&b"RIFF\x20\0\0\0WEBP"[..], &chunk].concat()
}
