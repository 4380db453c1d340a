//! `dc:creator` and `dc:rights` of an XMP packet (ISO 16684-1 §8.3): RDF arrays of texts.
//!
//! No XML reader: the two elements are looked for by the names every program writes, and the items of their arrays are
//! taken. What is not found like that is not kept.

use super::Copyright;

pub(super) fn read(packet: &[u8]) -> Copyright {
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
    let mut rest = inside;
    while let Some((text, behind)) = element(rest, "rdf:li") {
        texts.push(unescaped(text));
        rest = behind;
    }
    texts
}

/// What is in the first element of this name, and what is behind it.
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
        match behind
            .split_once(';')
            .and_then(|(name, behind)| Some((character(name)?, behind)))
        {
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
