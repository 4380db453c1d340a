//! `dc:creator` and `dc:rights` of an XMP packet (ISO 16684-1 §8.3): RDF arrays of texts.
//!
//! No XML reader: the two elements are looked for by the names every program writes, and the items of their arrays are
//! taken. What is not found like that is not kept.

use super::{Copyright, LONGEST, cut};

/// A packet that is longer is not looked at, bytes.
const LONGEST_PACKET: usize = 1 << 20;
/// Most bytes of a text that are decoded: a character may take this many as written.
const LONGEST_TEXT: usize = LONGEST * LONGEST_REFERENCE;
/// `&#x10FFFF;`, and a little more.
const LONGEST_REFERENCE: usize = 12;

pub(super) fn read(packet: &[u8]) -> Copyright {
    if packet.len() > LONGEST_PACKET {
        return Copyright::default();
    }
    let packet = String::from_utf8_lossy(packet);
    Copyright {
        artist: items(&packet, "dc:creator").join("\n"),
        // One text in several languages: the first is the default one (§8.2.2.4).
        notice: items(&packet, "dc:rights").into_iter().next().unwrap_or_default(),
    }
}

/// The texts of the array in an element.
fn items(packet: &str, name: &str) -> Vec<String> {
    let Some((inside, _)) = element(packet, name) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    let (mut rest, mut length) = (inside, 0);
    while length < LONGEST
        && let Some((text, behind)) = element(rest, "rdf:li")
    {
        let text = unescaped(cut(text, LONGEST_TEXT));
        length += text.len();
        texts.push(text);
        rest = behind;
    }
    texts
}

/// The content of the first element of this name, and the text after it.
fn element<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let open = format!("<{name}");
    let mut from = 0;
    let begin = loop {
        let begin = from + text[from..].find(&open)? + open.len();
        // Not the beginning of a longer name.
        if text[begin..].starts_with(|next: char| next == '>' || next.is_whitespace()) {
            break begin;
        }
        from = begin;
    };
    let (_, inside) = text[begin..].split_once('>')?;
    inside.split_once(&format!("</{name}>"))
}

/// With the five named characters and numbered ones in place (XML 1.0 §4.1, §4.6).
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        plain.push_str(before);
        // Not farther than that: there may be many of these, and none with an end.
        let end = behind.bytes().take(LONGEST_REFERENCE).position(|byte| byte == b';');
        match end.and_then(|end| Some((character(&behind[..end])?, &behind[end + 1..]))) {
            Some((character, behind)) => {
                plain.push(character);
                rest = behind;
            }
            None => {
                plain.push('&');
                rest = behind;
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        number => {
            let number = number.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creators_and_the_first_notice_are_taken() {
        let packet = "<rdf:Description xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:creators/>\
             <dc:rights><rdf:Alt><rdf:li xml:lang=\"x-default\">&#xa9; A &amp; B &unknown;</rdf:li>\
             <rdf:li xml:lang=\"de\">andere</rdf:li></rdf:Alt></dc:rights>\n\
             <dc:creator>\n<rdf:Seq><rdf:li>Zoë</rdf:li>\n<rdf:li>Max</rdf:li></rdf:Seq></dc:creator>";
        let found = read(packet.as_bytes());
        assert_eq!(found.artist, "Zoë\nMax");
        assert_eq!(found.notice, "© A & B &unknown;");
    }

    #[test]
    fn hostile_packets_cost_little_and_say_little() {
        let packet = |text: &str| format!("<dc:rights><rdf:li>{text}</rdf:li></dc:rights>");
        let notice = |text: &str| read(packet(text).as_bytes()).notice;
        // The end is not searched after each of them.
        assert_eq!(notice(&"&".repeat(900_000)), "&".repeat(LONGEST_TEXT));
        assert_eq!(notice(&"x".repeat(1 << 20)), "", "too long a packet");
        assert_eq!(notice("&#x10FFFF;&#000000000169;"), "\u{10FFFF}&#000000000169;");
        let long = format!("x{}", "é".repeat(10_000));
        assert_eq!(notice(&long), &long[..LONGEST_TEXT - 1], "cut between two characters");
        let many = format!("<dc:creator>{}</dc:creator>", "<rdf:li>name</rdf:li>".repeat(10_000));
        assert!(read(many.as_bytes()).artist.len() < 2 * LONGEST);
    }

    #[test]
    fn what_ends_early_says_nothing() {
        for packet in [
            "",
            "<dc:rights",
            "<dc:rights>",
            "<dc:rights><rdf:li>x",
            "<dc:rights><rdf:li>x</rdf:li>",
            "<dc:creator/>",
        ] {
            assert_eq!(read(packet.as_bytes()), Copyright::default(), "{packet}");
        }
    }
}
