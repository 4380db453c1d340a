//! Patterns of the configuration, matched against decoded paths: `deny`, `cache`, `redirects`, scripts.
//!
//! `*` matches any bytes, slashes too, `?` one byte, `{a,b}` either text. A pattern that begins with `/` matches the
//! whole path, any other its last segments: `*.bak` and `.git/*` match at every depth. Matching backtracks to the last
//! `*` only, so it takes at most pattern × path steps.

use std::fmt;

/// Each alternative is a pattern of its own.
const MOST_ALTERNATIVES: usize = 256;

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    /// One for each combination of the braces.
    alternatives: Vec<Alternative>,
}

/// A malformed pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("the pattern is empty")]
    Empty,
    #[error("`{{` without `}}`")]
    Unclosed,
    #[error("`}}` without `{{`")]
    Unopened,
    #[error("`{{` inside `{{…}}`")]
    Nested,
    #[error("more than {MOST_ALTERNATIVES} alternatives")]
    TooMany,
}

/// A pattern without braces.
#[derive(Clone, PartialEq, Eq)]
struct Alternative {
    tokens: Vec<Token>,
    /// Number of tokens added before a pattern for the last segments.
    added: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`
    One,
    /// `*`; several in a row are one.
    Any,
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`GlobError`]: empty, unbalanced braces, or too many alternatives.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        let alternatives = expand(text)?.iter().map(|plain| Alternative::new(plain)).collect();
        Ok(Self {
            text: text.to_owned(),
            alternatives,
        })
    }

    /// True if it matches a path, decoded and beginning with `/`.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let nobody = |_, _, _| ();
        self.alternatives
            .iter()
            .any(|alternative| alternative.matches(path, nobody))
    }

    /// The text that each written `*` matches, in order; `None` if the path does not match.
    #[must_use]
    pub fn stars<'p>(&self, path: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let found = |alternative: &&Alternative| alternative.matches(path, |_, _, _| ());
        let alternative = self.alternatives.iter().find(found)?;
        Some(alternative.stars(path))
    }

    /// Number of written `*`; several in a row are one. Of several alternatives, the one with the most.
    #[must_use]
    pub fn stars_written(&self) -> usize {
        let most = self.alternatives.iter().map(Alternative::stars_written);
        most.max().unwrap_or(0)
    }

    /// Number of literal bytes: of two patterns that match a path, the more literal one counts.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.text.bytes().filter(|byte| !b"*?{},".contains(byte)).count()
    }

    /// The text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Glob {
    type Err = GlobError;

    fn from_str(text: &str) -> Result<Self, GlobError> {
        Self::new(text)
    }
}

/// `a{b,c}` → `ab`, `ac`.
fn expand(text: &str) -> Result<Vec<String>, GlobError> {
    let mut all = vec![String::new()];
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        if rest.as_bytes()[at] == b'}' {
            return Err(GlobError::Unopened);
        }
        let (before, braces) = (&rest[..at], &rest[at + 1..]);
        let end = braces.find(['{', '}']).ok_or(GlobError::Unclosed)?;
        if braces.as_bytes()[end] == b'{' {
            return Err(GlobError::Nested);
        }
        let choices: Vec<&str> = braces[..end].split(',').collect();
        if all.len() * choices.len() > MOST_ALTERNATIVES {
            return Err(GlobError::TooMany);
        }
        all = all
            .iter()
            .flat_map(|start| choices.iter().map(move |choice| format!("{start}{before}{choice}")))
            .collect();
        rest = &braces[end + 1..];
    }
    for start in &mut all {
        start.push_str(rest);
    }
    Ok(all)
}

impl Alternative {
    fn new(plain: &str) -> Self {
        let mut tokens = Vec::with_capacity(plain.len() + 2);
        if !plain.starts_with('/') {
            // The last segments: any text before a slash, then the pattern.
            tokens.extend([Token::Any, Token::Byte(b'/')]);
        }
        let written = tokens.len();
        for byte in plain.bytes() {
            match byte {
                b'*' if tokens.last() == Some(&Token::Any) => {}
                b'*' => tokens.push(Token::Any),
                b'?' => tokens.push(Token::One),
                byte => tokens.push(Token::Byte(byte)),
            }
        }
        Self { tokens, added: written }
    }

    fn stars_written(&self) -> usize {
        let written = self.tokens[self.added..].iter();
        written.filter(|&&token| token == Token::Any).count()
    }

    /// The text that each written `*` matches in a matching path.
    fn stars<'p>(&self, path: &'p [u8]) -> Vec<&'p [u8]> {
        let mut spans = vec![0..0; self.tokens.len()];
        self.matches(path, |star, from, to| spans[star] = from..to);
        let written = (self.added..self.tokens.len()).filter(|&at| self.tokens[at] == Token::Any);
        written.map(|at| &path[spans[at].clone()]).collect()
    }

    /// True if the pattern matches. `takes` is called with the text of a `*`, again whenever it grows.
    ///
    /// Each `*` takes as little as possible. If a later token fails, only the last `*` takes one more byte. An earlier
    /// one could not help, since the tokens between the two matched at the earliest place already.
    fn matches(&self, path: &[u8], mut takes: impl FnMut(usize, usize, usize)) -> bool {
        let (mut token, mut byte) = (0, 0);
        // The last `*`, and the end of its text in the path.
        let mut last: Option<(usize, usize)> = None;
        let mut began = 0;
        while byte < path.len() || token < self.tokens.len() {
            match self.tokens.get(token) {
                Some(Token::Any) => {
                    last = Some((token, byte));
                    began = byte;
                    takes(token, byte, byte);
                    token += 1;
                }
                Some(Token::One) if byte < path.len() => (token, byte) = (token + 1, byte + 1),
                Some(&Token::Byte(wanted)) if path.get(byte) == Some(&wanted) => (token, byte) = (token + 1, byte + 1),
                _ => {
                    let Some((star, taken)) = last.filter(|&(_, taken)| taken < path.len()) else {
                        return false;
                    };
                    last = Some((star, taken + 1));
                    takes(star, began, taken + 1);
                    (token, byte) = (star + 1, taken + 1);
                }
            }
        }
        true
    }
}

impl fmt::Debug for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<u8> = self.tokens.iter().map(|token| token.written()).collect();
        write!(f, "{:?}", String::from_utf8_lossy(&text))
    }
}

impl Token {
    fn written(self) -> u8 {
        match self {
            Self::Byte(byte) => byte,
            Self::One => b'?',
            Self::Any => b'*',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::new(text).expect("a pattern")
    }

    #[test]
    fn a_leading_slash_names_the_whole_path() {
        let rows = [
            ("/secret/*", "/secret/a.txt", true),
            ("/secret/*", "/secret/", true),
            ("/secret/*", "/secret", false),
            ("/secret/*", "/x/secret/a", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/ab", false),
            ("/*", "/anything/at/all", true),
            ("/a/*/b", "/a/x/y/b", true),
            ("/a/*/b", "/a/b", false),
            ("/a?c", "/abc", true),
            ("/a?c", "/ac", false),
            ("/a?c", "/a", false),
            ("/static/version*/", "/static/version12/", true),
            ("/", "/", true),
        ];
        for (pattern, path, expected) in rows {
            assert_eq!(glob(pattern).matches(path.as_bytes()), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn any_other_pattern_names_the_last_segments() {
        let rows = [
            ("*.bak", "/x.bak", true),
            ("*.bak", "/a/b/x.bak", true),
            ("*.bak", "/x.bak/y", false),
            (".git/*", "/.git/config", true),
            (".git/*", "/deep/down/.git/config", true),
            (".git/*", "/x.git/config", false),
            ("debug.log", "/wp-content/debug.log", true),
            ("debug.log", "/wp-content/mydebug.log", false),
            ("wp-content/uploads/**.php", "/wp-content/uploads/2026/evil.php", true),
            ("wp-content/uploads/**.php", "/blog/wp-content/uploads/evil.php", true),
            ("sites/*/files/**.php", "/sites/default/files/a/b.php", true),
            ("sites/*/files/**.php", "/sites/default/modules/b.php", false),
            ("*", "/", true),
            ("*", "/a/b", true),
        ];
        for (pattern, path, expected) in rows {
            assert_eq!(glob(pattern).matches(path.as_bytes()), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn braces_give_alternatives() {
        let several = glob("*.{inc,module,theme}");
        for (path, expected) in [
            ("/a.inc", true),
            ("/x/b.theme", true),
            ("/c.php", false),
            ("/c.in", false),
        ] {
            assert_eq!(several.matches(path.as_bytes()), expected, "{path}");
        }
        let twice = glob("/{a,b}/{c,}");
        for (path, expected) in [("/a/c", true), ("/b/", true), ("/a/", true), ("/c/c", false)] {
            assert_eq!(twice.matches(path.as_bytes()), expected, "{path}");
        }
        let mixed = glob("{/a,b}");
        for (path, expected) in [("/a", true), ("/x/a", false), ("/x/b", true)] {
            assert_eq!(mixed.matches(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn every_star_is_captured() {
        let rows: [(&str, &str, Option<&[&str]>); 11] = [
            ("/blog/*", "/blog/2026/x", Some(&["2026/x"])),
            ("/blog/*", "/blog/", Some(&[""])),
            ("/blog/*", "/news/", None),
            ("/a/*/c/*", "/a/b/c/d/e", Some(&["b", "d/e"])),
            ("/*-s*.xml", "/a-b-s2.xml", Some(&["a-b", "2"])),
            ("/a/*/c", "/a/c/c/c", Some(&["c/c"])),
            ("/old", "/old", Some(&[])),
            ("*.html", "/docs/a.html", Some(&["docs/a"])),
            ("old/*", "/x/old/y", Some(&["y"])),
            ("/*.{htm,html}", "/a.html", Some(&["a"])),
            ("/a/**/b*", "/a/x/b", Some(&["x", ""])),
        ];
        for (pattern, path, expected) in rows {
            let found = glob(pattern).stars(path.as_bytes());
            let expected = expected.map(|stars| stars.iter().map(|star| star.as_bytes()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{pattern} on {path}");
        }
        assert_eq!(glob("/{a,b*}/**/c*").stars_written(), 3);
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let many = "{a,b}".repeat(9);
        let rows = [
            ("", GlobError::Empty),
            ("/a{b", GlobError::Unclosed),
            ("/a}b", GlobError::Unopened),
            ("/{a,{b,c}}", GlobError::Nested),
            (many.as_str(), GlobError::TooMany),
        ];
        for (pattern, expected) in rows {
            assert_eq!(Glob::new(pattern), Err(expected), "{pattern}");
        }
    }

    #[test]
    fn a_hostile_path_costs_pattern_times_path_steps() {
        let pattern = glob(&format!("/{}b", "*a".repeat(30)));
        let path = [b"/".as_slice(), &[b'a'; 16 * 1024]].concat();
        // Backtracking into every star would take longer than the age of the universe.
        assert!(!pattern.matches(&path));
    }

    /// The definition, slow and simple.
    fn slow(pattern: &[u8], path: &[u8]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=path.len()).any(|taken| slow(rest, &path[taken..])),
            ([b'?', rest @ ..], [_, after @ ..]) => slow(rest, after),
            ([wanted, rest @ ..], [byte, after @ ..]) if wanted == byte => slow(rest, after),
            _ => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn it_matches_what_the_definition_matches(pattern in "/[ab*?/]{0,8}", path in "/[ab/]{0,12}") {
            let found = glob(&pattern).matches(path.as_bytes());
            proptest::prop_assert_eq!(found, slow(pattern.as_bytes(), path.as_bytes()));
        }

        #[test]
        fn putting_the_captures_back_gives_the_path(parts in "/[ab/]{0,3}[*][ab/]{1,3}[*][ab/]{0,2}", path in "/[ab/]{0,12}") {
            if let Some(stars) = glob(&parts).stars(path.as_bytes()) {
                let mut stars = stars.into_iter();
                let mut whole = Vec::new();
                for byte in parts.bytes() {
                    match byte {
                        b'*' => whole.extend(stars.next().expect("one for each")),
                        byte => whole.push(byte),
                    }
                }
                proptest::prop_assert_eq!(whole, path.as_bytes());
            }
        }
    }
}
