//! Text that goes into HTML and SVG.

use std::fmt::{self, Display, Formatter, Write};

use haulier_proto::text::is_unseen;

/// Text as HTML and XML take it, between tags and between double quotes: nothing in it is markup any more.
///
/// Control characters, which XML forbids and terminals act on, and what turns the direction of a line become U+FFFD.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

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
    fn nothing_in_a_text_is_markup_or_acts_on_a_terminal() {
        let text = "<a href=\"x\" onclick='y'>&amp;\u{1b}[31m\u{0}\u{85}\u{202e}é\n";
        assert_eq!(
            Escaped(text).to_string(),
            "&lt;a href=&quot;x&quot; onclick=&#39;y&#39;&gt;&amp;amp;\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}é\n"
        );
    }
}
