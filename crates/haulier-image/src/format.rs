//! The image formats, by name and by content.
//!
//! The list is closed: bytes that do not begin like one of these formats never reach a decoder.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A format of originals and variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// ITU-T T.81, in JFIF, Exif or bare.
    Jpeg,
    /// W3C PNG; of an animated one the first picture is read.
    Png,
    /// GIF87a and GIF89a.
    Gif,
    /// RFC 9649.
    WebP,
    /// AV1 in HEIF. Written only with the feature `avif`.
    Avif,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Jpeg, Self::Png, Self::Gif, Self::WebP, Self::Avif];

    /// Its name in queries and settings: lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::WebP => "webp",
            Self::Avif => "avif",
        }
    }

    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
            Self::Avif => "image/avif",
        }
    }

    /// The format of this name, in any case; `jpg` is jpeg.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("jpg") {
            return Some(Self::Jpeg);
        }
        Self::ALL
            .into_iter()
            .find(|format| name.eq_ignore_ascii_case(format.as_str()))
    }

    /// The format by the first bytes of a file; 16 are enough. File names and media types are not trusted.
    #[must_use]
    pub fn of_bytes(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some(Self::Avif),
            _ => None,
        }
    }

    /// True if this build can write it.
    #[must_use]
    pub fn is_written(self) -> bool {
        self != Self::Avif || cfg!(feature = "avif")
    }

    /// True if this build can read it.
    #[must_use]
    pub fn is_read(self) -> bool {
        self != Self::Avif
    }

    /// True if this crate reads and writes animations in this format.
    #[must_use]
    pub fn is_animated(self) -> bool {
        matches!(self, Self::Gif | Self::WebP)
    }

    /// True if its pixels may be transparent.
    #[must_use]
    pub fn has_alpha(self) -> bool {
        self != Self::Jpeg
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_its_bytes() {
        let heads: [(&[u8], Option<Format>); 8] = [
            (b"\xff\xd8\xff\xe0\x00\x10JFIF", Some(Format::Jpeg)),
            (b"\x89PNG\r\n\x1a\n\x00\x00", Some(Format::Png)),
            (b"GIF89a\x01\x00", Some(Format::Gif)),
            (b"RIFF\x10\x00\x00\x00WEBPVP8 ", Some(Format::WebP)),
            (b"\x00\x00\x00\x1cftypavif\x00", Some(Format::Avif)),
            (b"\x00\x00\x00\x1cftypheic\x00", None),
            (b"<svg xmlns='http://www.w3.org/2000/svg'>", None),
            (b"push graphic-context\n", None),
        ];
        for (head, format) in heads {
            assert_eq!(Format::of_bytes(head), format, "{head:?}");
        }
    }

    #[test]
    fn a_few_bytes_are_nothing_yet() {
        for length in 0..12 {
            assert_eq!(Format::of_bytes(&b"RIFF\x10\x00\x00\x00WEBPVP8 "[..length]), None);
        }
    }

    #[test]
    fn names_are_read_in_any_case() {
        assert_eq!(Format::of_name("JPG"), Some(Format::Jpeg));
        assert_eq!(Format::of_name("WebP"), Some(Format::WebP));
        assert_eq!(Format::of_name("txt"), None);
        for format in Format::ALL {
            assert_eq!(Format::of_name(&format.to_string()), Some(format));
        }
    }
}
