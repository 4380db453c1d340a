//! Text for people: characters that are not visible signs, and escaping for markup.

use std::fmt::{self, Display, Formatter, Write};

/// True for characters that a terminal or browser interprets or does not show: control characters, marks that change
/// the writing direction (U+202E makes `gpj.exe` appear as `exe.jpg`), other invisible format characters, and line
/// separators.
///
/// These are the general categories Cc, Zl, Zp and Cf (Unicode 16) but the signs of Cf that are visible, and the tags
/// of plane 14, assigned or not.
#[must_use]
pub fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{13430}'..='\u{13440}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The text with U+FFFD in place of every character that [`is_unseen`].
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if is_unseen(character) { '\u{fffd}' } else { character })
        .collect()
}

/// Text escaped for HTML and XML, between tags and between double quotes.
///
/// Control characters, which XML forbids, and marks that change the writing direction become U+FFFD.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;"),
                '<' => f.write_str("&lt;"),
                '>' => f.write_str("&gt;"),
                '"' => f.write_str("&quot;"),
                '\'' => f.write_str("&#39;"),
                '\n' | '\t' => f.write_char(letter),
                _ if is_unseen(letter) => f.write_char('\u{fffd}'),
                _ => f.write_char(letter),
            }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_a_line_around_or_breaks_it_is_not_text() {
        let marks = "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}";
        let others = "\n\r\x1b\x7f\u{85}\u{2028}\u{2029}\u{200b}\u{feff}\u{ad}\u{e0041}";
        for character in marks.chars().chain(others.chars()) {
            assert!(is_unseen(character), "{character:?}");
        }
    }

    #[test]
    fn what_is_seen_stays() {
        let text = "aé ß漢字العربية🎉\u{600}\u{301}\u{a0}";
        assert_eq!(printable(text), text);
        assert_eq!(printable("a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn nothing_in_a_text_is_markup_or_acts_on_a_terminal() {
        let text = "<a href=\"x\" onclick='y'>&amp;\u{1b}[31m\u{0}\u{85}\u{202e}é\n";
        assert_eq!(
            Escaped(text).to_string(),
            "&lt;a href=&quot;x&quot; onclick=&#39;y&#39;&gt;&amp;amp;\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}é\n"
        );
    }
}
