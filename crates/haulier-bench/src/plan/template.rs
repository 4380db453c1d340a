//! `@NAME@` in templates and in the plan itself.
//!
//! Configurations of servers use `$`, `%` and braces; capitals between two `@` have no meaning in any of them.

use std::ops::Range;

/// Beginning of a line that is kept only if root runs the plan.
const ROOT_LINE: &str = "@ROOT@ ";

/// Names with their texts; the last one of a name wins.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    pairs: Vec<(String, String)>,
}

/// A name without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`@{name}@` has no value")]
pub struct MissingValue {
    pub name: String,
    /// Its bytes in the text.
    pub span: Range<usize>,
}

impl Values {
    /// Sets the value of a name.
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.pairs.push((name.into(), value.into()));
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().rev().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Replaces the names of a text by their values.
    ///
    /// # Errors
    /// The first name without a value.
    pub(super) fn fill(&self, text: &str) -> Result<String, MissingValue> {
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        for span in placeholders(text) {
            let name = &text[span.start + 1..span.end - 1];
            let value = self.get(name).ok_or_else(|| MissingValue {
                name: name.to_owned(),
                span: span.clone(),
            })?;
            out.push_str(&text[end..span.start]);
            out.push_str(value);
            end = span.end;
        }
        out.push_str(&text[end..]);
        Ok(out)
    }

    /// Fills in a template; keeps its `@ROOT@` lines only if `root`.
    ///
    /// # Errors
    /// The first name without a value.
    pub(super) fn render(&self, template: &str, root: bool) -> Result<String, MissingValue> {
        self.fill(&root_lines(template, root))
    }
}

/// The names in a text, with their positions; `@ROOT@` itself is none.
pub(super) fn names_in(template: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    placeholders(template)
        .into_iter()
        .map(|span| (&template[span.start + 1..span.end - 1], span))
        .filter(|(name, _)| *name != "ROOT")
}

/// `@NAME@`: capitals, digits and `_`, beginning with a letter.
fn placeholders(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find('@').map(|at| from + at) {
        let name = &text[at + 1..];
        let length = name
            .bytes()
            .take_while(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_')
            .count();
        let is_name = length > 0 && name.as_bytes()[0].is_ascii_uppercase() && name[length..].starts_with('@');
        from = if is_name {
            found.push(at..at + length + 2);
            at + length + 2
        } else {
            at + 1
        };
    }
    found
}

fn root_lines(template: &str, root: bool) -> String {
    let mut text = String::with_capacity(template.len());
    for line in template.split_inclusive('\n') {
        let inner = line.trim_start_matches([' ', '\t']);
        match inner.strip_prefix(ROOT_LINE) {
            None => text.push_str(line),
            Some(rest) if root => {
                text.push_str(&line[..line.len() - inner.len()]);
                text.push_str(rest);
            }
            Some(_) => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.set("PORT", "80");
        values.set("PORT", "8080");
        values.set("RUN", "/tmp/a b");
        values
    }

    #[test]
    fn names_between_two_signs_become_their_values() {
        let filled = values().fill("listen 127.0.0.1:@PORT@; log @RUN@/x@y.z; @matcher @ @@PORT@");
        assert_eq!(
            filled.unwrap(),
            "listen 127.0.0.1:8080; log /tmp/a b/x@y.z; @matcher @ @8080"
        );
    }

    #[test]
    fn a_name_without_a_value_is_found_at_its_place() {
        let error = values().fill("a @PORT@ @DOCROOT@").unwrap_err();
        assert_eq!((error.name.as_str(), error.span), ("DOCROOT", 9..18));
    }

    #[test]
    fn lines_for_root_are_left_out_for_others() {
        let template = "a\n  @ROOT@ user @PORT@;\nb @PORT@\n";
        assert_eq!(values().render(template, true).unwrap(), "a\n  user 8080;\nb 8080\n");
        assert_eq!(values().render(template, false).unwrap(), "a\nb 8080\n");
    }

    #[test]
    fn values_are_not_filled_in_again() {
        let mut values = values();
        values.set("X", "@PORT@");
        assert_eq!(values.fill("@X@").unwrap(), "@PORT@");
    }

    #[test]
    fn the_names_of_a_template_can_be_listed() {
        let names: Vec<&str> = names_in("@ROOT@ user @USER@\n@PORT@ é@PORT@")
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["USER", "PORT", "PORT"]);
    }
}
