//! `dc:creator` and `dc:rights` of an XMP packet (ISO 16684-1 §8.3): RDF arrays of texts.
//!
//! This is no XML parser: the two elements are searched by their usual names, and the items of their arrays are taken.
//! Other spellings are not found.

use super::{Copyright, LONGEST, cut};

/// Longest packet that is read, bytes.
const LONGEST_PACKET: usize = 1 << 20;
/// Most bytes of a text that are decoded: a character reference may take this many.
const LONGEST_TEXT: usize = LONGEST * LONGEST_REFERENCE;
/// Longest character reference: `&#x10FFFF;` and some leading zeros.
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
        // Skips a longer name with the same beginning.
        if text[begin..].starts_with(|next: char| next == '>' || next.is_whitespace()) {
            break begin;
        }
        from = begin;
    };
    let (_, inside) = text[begin..].split_once('>')?;
    inside.split_once(&format!("</{name}>"))
}

/// Replaces the five named and all numeric character references (XML 1.0 §4.1, §4.6).
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        plain.push_str(before);
        // The search is bounded, since there may be many `&` without an end.
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
