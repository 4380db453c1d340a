//! File name extension → media type. Text is UTF-8 unless its site sets another charset.

use std::borrow::Cow;

/// The type of unknown files (RFC 2046 §4.5.1): browsers save them and do not guess.
const UNKNOWN: &str = "application/octet-stream";

/// The longest extension in the table.
const LONGEST: usize = 11;

/// The parameter of text types in the table.
const SAYS_UTF8: &str = "; charset=utf-8";

/// The media type for a path, by its extension in any letter case. Text gets `charset`; `None` adds no charset.
pub(super) fn of(path: &[u8], charset: Option<&str>) -> Cow<'static, str> {
    let listed = listed(path);
    match (listed.strip_suffix(SAYS_UTF8), charset) {
        (None, _) | (Some(_), Some("utf-8")) => listed.into(),
        (Some(bare), None) => bare.into(),
        (Some(bare), Some(charset)) => format!("{bare}; charset={charset}").into(),
    }
}

/// The media type in the table.
fn listed(path: &[u8]) -> &'static str {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return UNKNOWN;
    };
    let mut lower = [0; LONGEST];
    let Some(extension) = lower.get_mut(..name.len() - dot - 1) else {
        return UNKNOWN;
    };
    extension.copy_from_slice(&name[dot + 1..]);
    extension.make_ascii_lowercase();
    match TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(extension)) {
        Ok(place) => TYPES[place].1,
        Err(_) => UNKNOWN,
    }
}

/// Sorted by extension. Names as registered by IANA, or as known to every browser.
const TYPES: &[(&str, &str)] = &[
    ("3g2", "video/3gpp2"),
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("aif", "audio/aiff"),
    ("aiff", "audio/aiff"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("appcache", "text/cache-manifest; charset=utf-8"),
    ("asc", "text/plain; charset=utf-8"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("bmp", "image/bmp"),
    ("br", "application/octet-stream"),
    ("bz2", "application/x-bzip2"),
    ("cer", "application/pkix-cert"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("crt", "application/x-x509-ca-cert"),
    ("crx", "application/x-chrome-extension"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("cur", "image/x-icon"),
    ("deb", "application/vnd.debian.binary-package"),
    ("der", "application/x-x509-ca-cert"),
    ("dmg", "application/octet-stream"),
    ("doc", "application/msword"),
    ("docm", "application/vnd.ms-word.document.macroEnabled.12"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("dot", "application/msword"),
    (
        "dotx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
    ),
    ("dtd", "application/xml-dtd"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("exe", "application/octet-stream"),
    ("f4v", "video/mp4"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htc", "text/x-component; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("img", "application/octet-stream"),
    ("iso", "application/octet-stream"),
    ("jar", "application/java-archive"),
    ("jfif", "image/jpeg"),
    ("jp2", "image/jp2"),
    ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("key", "application/vnd.apple.keynote"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("less", "text/css; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("markdown", "text/markdown; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mka", "audio/x-matroska"),
    ("mkv", "video/x-matroska"),
    ("mml", "application/mathml+xml"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/octet-stream"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("p7s", "application/pkcs7-signature"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-x509-ca-cert"),
    ("pgp", "application/pgp-encrypted"),
    ("png", "image/png"),
    ("pot", "application/vnd.ms-powerpoint"),
    ("pps", "application/vnd.ms-powerpoint"),
    ("ppt", "application/vnd.ms-powerpoint"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("ps", "application/postscript"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("rtf", "application/rtf"),
    ("scss", "text/x-scss; charset=utf-8"),
    ("sh", "text/plain; charset=utf-8"),
    ("srt", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("svgz", "image/svg+xml"),
    ("swf", "application/x-shockwave-flash"),
    ("tar", "application/x-tar"),
    ("text", "text/plain; charset=utf-8"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vcard", "text/vcard; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wma", "audio/x-ms-wma"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsm", "application/vnd.ms-excel.sheet.macroEnabled.12"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "application/xml; charset=utf-8"),
    ("xsl", "application/xslt+xml"),
    ("xslt", "application/xslt+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_within_its_bounds() {
        for pair in TYPES.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} before {}", pair[0].0, pair[1].0);
        }
        for (extension, kind) in TYPES {
            assert!(extension.len() <= LONGEST, "{extension}");
            assert_eq!(*extension, extension.to_ascii_lowercase(), "looked up in lower case");
            assert!(kind.contains('/'), "{kind}");
            let says_utf8 = kind.ends_with(SAYS_UTF8);
            assert!(
                says_utf8 || !kind.starts_with("text/"),
                "{extension} is text of an unknown charset"
            );
        }
        assert!(TYPES.iter().any(|(extension, _)| extension.len() == LONGEST));
    }

    #[test]
    fn the_last_extension_of_the_name_decides() {
        let rows = [
            ("/a.html", "text/html; charset=utf-8"),
            ("/A.JpG", "image/jpeg"),
            ("/a.min.js", "text/javascript; charset=utf-8"),
            ("/v1.2/README", UNKNOWN),
            ("/a.", UNKNOWN),
            ("/a.unheard-of-extension", UNKNOWN),
            ("/archive.tar.gz", "application/gzip"),
            ("/site.webmanifest", "application/manifest+json"),
            ("/", UNKNOWN),
        ];
        for (path, expected) in rows {
            assert_eq!(of(path.as_bytes(), Some("utf-8")), expected, "{path}");
        }
    }

    #[test]
    fn text_names_the_charset_of_its_site_and_nothing_else_does() {
        let rows = [
            ("/a.html", Some("windows-1252"), "text/html; charset=windows-1252"),
            ("/a.svg", None, "image/svg+xml"),
            ("/a.html", None, "text/html"),
            ("/a.json", Some("windows-1252"), "application/json"),
            ("/a.jpg", Some("windows-1252"), "image/jpeg"),
        ];
        for (path, charset, expected) in rows {
            assert_eq!(of(path.as_bytes(), charset), expected, "{path} {charset:?}");
        }
    }
}
