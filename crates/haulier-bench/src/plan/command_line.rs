//! A command as one line of text: words separated by white space, with quotes around words that contain some.
//!
//! There is no shell and no expansion. Values are filled in after splitting, so a path with a blank stays one word.

use super::template::{MissingValue, Values};

/// A program and its arguments, before values are filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine(pub(crate) Vec<String>);

/// The reason that a text is no command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    #[error("a quote is not closed")]
    OpenQuote,
    #[error("no program is named")]
    Empty,
}

impl CommandLine {
    /// Parses a line that names a program.
    ///
    /// # Errors
    /// A quote stays open, or there is no word.
    pub fn parse(line: &str) -> Result<Self, CommandLineError> {
        let words = words(line)?;
        match words.is_empty() {
            true => Err(CommandLineError::Empty),
            false => Ok(Self(words)),
        }
    }

    /// The words with their values.
    ///
    /// # Errors
    /// The first name without a value.
    pub(super) fn fill(&self, values: &Values) -> Result<Vec<String>, MissingValue> {
        self.0.iter().map(|word| values.fill(word)).collect()
    }
}

/// The words of a line. `'…'` and `"…"` keep white space in a word; a backslash has no meaning.
///
/// # Errors
/// A quote stays open.
pub fn words(line: &str) -> Result<Vec<String>, CommandLineError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match quote {
            Some(end) if character == end => quote = None,
            Some(_) => word.get_or_insert_default().push(character),
            None if character == '\'' || character == '"' => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(CommandLineError::OpenQuote);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parted_by_white_space_outside_quotes() {
        assert_eq!(
            words("nginx  -c '@RUN@/a b.conf' -g \"daemon off;\"").unwrap(),
            ["nginx", "-c", "@RUN@/a b.conf", "-g", "daemon off;"]
        );
        assert_eq!(words("ab -H 'A: \"b\"' ''").unwrap(), ["ab", "-H", "A: \"b\"", ""]);
        assert_eq!(words("a\n b\t").unwrap(), ["a", "b"]);
        assert!(words(" ").unwrap().is_empty());
    }

    #[test]
    fn an_invalid_command_is_refused() {
        assert_eq!(CommandLine::parse("nginx -c 'x"), Err(CommandLineError::OpenQuote));
        assert_eq!(CommandLine::parse("  "), Err(CommandLineError::Empty));
    }
}
