//! Author and copyright: the only metadata of an original that its variants may keep.
//!
//! It is read from Exif, then IPTC, then XMP, in the order of the Metadata Working Group (guidelines 2.0 §3.3), and
//! written as Exif. A GIF gets a comment instead.

mod iptc;
mod xmp;

use crate::exif::{self, ARTIST, COPYRIGHT};
use crate::format::Format;
use crate::original::{jpeg, png, webp};

/// Most bytes of a text; a longer one is cut, so that a thumbnail stays small.
const LONGEST: usize = 512;

/// Author and copyright; at least one of them is not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Copyright {
    /// The author; empty if unknown.
    pub(crate) artist: String,
    /// The owner of the rights; empty if unknown.
    pub(crate) notice: String,
}

impl Copyright {
    /// The copyright of an original.
    pub(crate) fn of(bytes: &[u8], format: Format) -> Option<Self> {
        let mut found = Self::default();
        let blocks = match format {
            Format::Jpeg => of_jpeg(bytes),
            Format::Png => of_png(bytes),
            Format::WebP => of_webp(bytes),
            Format::Gif | Format::Avif => Vec::new(),
        };
        for rank in Block::RANKS {
            for block in blocks.iter().filter(|block| block.rank() == rank) {
                if found.is_complete() {
                    return Some(found);
                }
                found.complete(block);
            }
        }
        (found != Self::default()).then_some(found)
    }

    /// True if neither text is empty.
    fn is_complete(&self) -> bool {
        !self.artist.is_empty() && !self.notice.is_empty()
    }

    /// Takes missing texts from a block.
    fn complete(&mut self, block: &Block<'_>) {
        let found = block.read();
        for (text, more) in [(&mut self.artist, found.artist), (&mut self.notice, found.notice)] {
            if text.is_empty() {
                *text = tidy(&more);
            }
        }
    }

    /// The texts as Exif, a TIFF structure.
    pub(crate) fn exif(&self) -> Vec<u8> {
        let texts = [(ARTIST, &*self.artist), (COPYRIGHT, &*self.notice)];
        let said: Vec<_> = texts.into_iter().filter(|(_, text)| !text.is_empty()).collect();
        exif::of_texts(&said)
    }

    /// The texts as one readable line.
    pub(crate) fn line(&self) -> String {
        let texts = [&*self.notice, &*self.artist];
        let said: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        said.join(", ")
    }
}

/// A block of metadata in a file.
#[derive(Debug)]
enum Block<'a> {
    /// A TIFF structure.
    Exif(&'a [u8]),
    /// Image resources of Photoshop, with IPTC in one of them.
    Photoshop(&'a [u8]),
    Xmp(&'a [u8]),
    /// A text of a PNG: its keyword, and Latin-1.
    Text(&'a [u8], &'a [u8]),
}

impl Block<'_> {
    /// Ranks of the kinds of blocks; the lowest takes precedence.
    const RANKS: std::ops::Range<u8> = 0..4;

    fn rank(&self) -> u8 {
        match self {
            Self::Exif(_) => 0,
            Self::Photoshop(_) => 1,
            Self::Xmp(_) => 2,
            Self::Text(..) => 3,
        }
    }

    fn read(&self) -> Copyright {
        match *self {
            Self::Exif(tiff) => {
                // A NUL may separate the copyrights of photographer and editor.
                let text = |tag| exif::text(tiff, tag).map(decoded).unwrap_or_default();
                Copyright {
                    artist: text(ARTIST),
                    notice: text(COPYRIGHT),
                }
            }
            Self::Photoshop(resources) => iptc::read(resources),
            Self::Xmp(packet) => xmp::read(packet),
            Self::Text(b"Author", text) => Copyright {
                artist: latin1(text),
                ..Copyright::default()
            },
            Self::Text(b"Copyright", text) => Copyright {
                notice: latin1(text),
                ..Copyright::default()
            },
            Self::Text(..) => Copyright::default(),
        }
    }
}

fn of_jpeg(bytes: &[u8]) -> Vec<Block<'_>> {
    let segments = jpeg::Segments::of(bytes).take_while(|segment| !matches!(segment.marker, jpeg::SCAN | jpeg::END));
    let blocks = segments.filter_map(|segment| match (segment.marker, segment.content) {
        (0xe1, content) => {
            let exif = content.strip_prefix(b"Exif\0\0").map(Block::Exif);
            let xmp = || content.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0").map(Block::Xmp);
            exif.or_else(xmp)
        }
        (0xed, content) => content.strip_prefix(b"Photoshop 3.0\0").map(Block::Photoshop),
        _ => None,
    });
    blocks.collect()
}

fn of_png(bytes: &[u8]) -> Vec<Block<'_>> {
    let blocks = png::Chunks::of(bytes).filter_map(|(name, content)| match &name {
        b"eXIf" => Some(Block::Exif(content)),
        // Keyword, not compressed, no language, no translated keyword.
        b"iTXt" => content.strip_prefix(b"XML:com.adobe.xmp\0\0\0\0\0").map(Block::Xmp),
        b"tEXt" => {
            let end = content.iter().position(|&byte| byte == 0)?;
            Some(Block::Text(&content[..end], &content[end + 1..]))
        }
        _ => None,
    });
    blocks.collect()
}

fn of_webp(bytes: &[u8]) -> Vec<Block<'_>> {
    let blocks = webp::Chunks::of(bytes).filter_map(|(name, content)| match &name {
        b"EXIF" => Some(Block::Exif(content.strip_prefix(b"Exif\0\0").unwrap_or(content))),
        b"XMP " => Some(Block::Xmp(content)),
        _ => None,
    });
    blocks.collect()
}

/// Decodes text of unknown encoding: UTF-8 if valid, otherwise Latin-1.
fn decoded(text: &[u8]) -> String {
    std::str::from_utf8(text).map_or_else(|_| latin1(text), str::to_owned)
}

fn latin1(text: &[u8]) -> String {
    text.iter().map(|&byte| char::from(byte)).collect()
}

/// The text as one line of at most [`LONGEST`] bytes; parts between control characters are joined by commas.
fn tidy(text: &str) -> String {
    let parts = text.split(char::is_control).map(str::trim);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    cut(&parts.join(", "), LONGEST).to_owned()
}

/// The beginning of a text, at most this many bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut ends = (0..=most.min(text.len())).rev();
    let end = ends.find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

/// Inserts the copyright into a JPEG as Exif, after the JFIF segment if there is one.
pub(crate) fn into_jpeg(bytes: Vec<u8>, copyright: Option<&Copyright>) -> Vec<u8> {
    let Some(copyright) = copyright else { return bytes };
    let first = jpeg::Segments::of(&bytes).next();
    let place = first
        .filter(|segment| segment.marker == 0xe0)
        .map_or(2, |segment| segment.end);
    let exif = copyright.exif();
    let length = u16::try_from(2 + 6 + exif.len()).expect("two short texts");
    let segment = [&[0xff, 0xe1][..], &length.to_be_bytes(), b"Exif\0\0", &exif].concat();
    [&bytes[..place], &segment, &bytes[place..]].concat()
}

/// Appends the copyright to a WebP as Exif (RFC 9649 §2.7).
pub(crate) fn into_webp(bytes: Vec<u8>, copyright: Option<&Copyright>, (width, height): (u32, u32)) -> Vec<u8> {
    const HAS_EXIF: u8 = 0x08;
    let Some(copyright) = copyright else { return bytes };
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let length = (content.len() as u32).to_le_bytes();
        [&name[..], &length, content, &[0][..content.len() % 2]].concat()
    };
    let mut chunks = bytes[12..].to_vec();
    if chunks.starts_with(b"VP8X") {
        chunks[8] |= HAS_EXIF;
    } else {
        // Transparent files and animations have this chunk already.
        let side = |side: u32| (side - 1).to_le_bytes();
        let extended = [&[HAS_EXIF, 0, 0, 0][..], &side(width)[..3], &side(height)[..3]].concat();
        chunks = [chunk(b"VP8X", &extended), chunks].concat();
    }
    chunks.extend(chunk(b"EXIF", &copyright.exif()));
    let length = (4 + chunks.len() as u32).to_le_bytes();
    [b"RIFF", &length[..], b"WEBP", &chunks].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copyright(artist: &str, notice: &str) -> Copyright {
        Copyright {
            artist: artist.into(),
            notice: notice.into(),
        }
    }

    fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u16 + 2).to_be_bytes();
        [&[0xff, marker], &length[..], content].concat()
    }

    fn jpeg(segments: &[Vec<u8>]) -> Vec<u8> {
        [&[0xff, 0xd8], &segments.concat()[..], &segment(0xda, b"")].concat()
    }

    fn exif(artist: &str, notice: &str) -> Vec<u8> {
        segment(0xe1, &[b"Exif\0\0", &copyright(artist, notice).exif()[..]].concat())
    }

    fn xmp(artist: &str, notice: &str) -> Vec<u8> {
        let packet = format!(
            "<x:xmpmeta><dc:creator><rdf:Seq><rdf:li>{artist}</rdf:li></rdf:Seq></dc:creator>\
             <dc:rights><rdf:Alt><rdf:li xml:lang=\"x-default\">{notice}</rdf:li></rdf:Alt></dc:rights></x:xmpmeta>"
        );
        segment(0xe1, &[b"http://ns.adobe.com/xap/1.0/\0", packet.as_bytes()].concat())
    }

    #[test]
    fn exif_is_believed_first_and_the_others_complete_it() {
        let bytes = jpeg(&[xmp("of XMP", "also of XMP"), exif("", "of Exif")]);
        assert_eq!(
            Copyright::of(&bytes, Format::Jpeg),
            Some(copyright("of XMP", "of Exif"))
        );
        let bytes = jpeg(&[exif("one", "two"), xmp("x", "y")]);
        assert_eq!(Copyright::of(&bytes, Format::Jpeg), Some(copyright("one", "two")));
        assert_eq!(Copyright::of(&jpeg(&[]), Format::Jpeg), None);
        assert_eq!(Copyright::of(&jpeg(&[exif(" ", "\n")]), Format::Jpeg), None);
    }

    #[test]
    fn a_png_tells_by_its_texts() {
        let chunk = |name: &[u8; 4], content: &[u8]| {
            let length = (content.len() as u32).to_be_bytes();
            [&length[..], name, content, &[0; 4]].concat()
        };
        let png = |chunks: &[Vec<u8>]| [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.concat()].concat();
        let bytes = png(&[
            chunk(b"tEXt", b"Author\0Andr\xe9"),
            chunk(b"tEXt", b"Copyright\0me"),
            chunk(b"tEXt", b"Comment\0no"),
        ]);
        assert_eq!(Copyright::of(&bytes, Format::Png), Some(copyright("André", "me")));
        let bytes = png(&[chunk(b"eXIf", &copyright("a", "b").exif())]);
        assert_eq!(Copyright::of(&bytes, Format::Png), Some(copyright("a", "b")));
    }

    #[test]
    fn texts_become_one_short_line() {
        assert_eq!(tidy(" photographer\0 editor\0"), "photographer, editor");
        assert_eq!(tidy("a\r\nb"), "a, b");
        let long = tidy(&"é".repeat(10_000));
        assert_eq!(long.len(), LONGEST);
        assert_eq!(tidy(&format!("x{}", "é".repeat(10_000))).len(), LONGEST - 1);
    }

    #[test]
    fn bytes_that_are_no_utf_8_are_latin_1() {
        assert_eq!(decoded("Zoë".as_bytes()), "Zoë");
        assert_eq!(decoded(b"Zo\xeb"), "Zoë");
    }

    #[test]
    fn what_is_written_into_a_jpeg_or_a_webp_is_found_there() {
        let written = copyright("A. Müller", "© 2026 A. Müller");
        for start in [jpeg(&[]), jpeg(&[segment(0xe0, b"JFIF\0\x01\x02")])] {
            let bytes = into_jpeg(start.clone(), Some(&written));
            assert_eq!(Copyright::of(&bytes, Format::Jpeg), Some(written.clone()));
            assert_eq!(into_jpeg(start.clone(), None), start);
        }
        let lossy = b"VP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a\x40\x01\xc8\0";
        let plain = [&b"RIFF\x16\0\0\0WEBP"[..], lossy].concat();
        let bytes = into_webp(plain, Some(&written), (320, 200));
        assert_eq!(Copyright::of(&bytes, Format::WebP), Some(written.clone()));
        let original = crate::Original::read(&bytes, &crate::Limits::default()).expect("a header");
        assert_eq!((original.width, original.height, original.alpha), (320, 200, false));
        assert_eq!(
            bytes.len() as u32 - 8,
            u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
        );
        let again = into_webp(bytes, Some(&written), (320, 200));
        assert_eq!(again.windows(4).filter(|window| window == b"VP8X").count(), 1);
    }
}
