//! Targets of redirects and rewrites: literal text, and the text that the stars of the path match.
//!
//! Each `*` takes the star with the same position, `$1`, `$2` … the star with that number. A resulting path never
//! begins with `//`, which would name another host (RFC 3986 §4.2), and contains nothing that could end its line.

use std::fmt;

use haulier_proto::path;

use super::glob::Glob;

/// A parsed target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    text: String,
    /// The text before the first star, and after each of them.
    literals: Vec<String>,
    /// The star between two literals, as its index in the path.
    stars: Vec<usize>,
}

/// A target that does not fit its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the target has a `*`, the path has none")]
    NoStar,
    #[error("the target has {target} `*`, the path has {path}")]
    Count { path: usize, target: usize },
    #[error("the target has `${wanted}`, the path has {path} `*`")]
    Beyond { path: usize, wanted: usize },
    #[error("the target has `*` and `$1`")]
    Mixed,
}

/// A part of the target's text.
enum TargetPiece<'t> {
    Literal(&'t str),
    /// `*`; several in a row are one, as in a pattern.
    Star,
    /// `$1`
    Number(usize),
}

impl Target {
    /// Parses a target for the paths of `from`.
    ///
    /// # Errors
    /// [`TargetError`]: the stars do not correspond.
    pub fn new(from: &Glob, text: &str) -> Result<Self, TargetError> {
        let mut target = Self {
            text: text.to_owned(),
            literals: vec![String::new()],
            stars: Vec::new(),
        };
        let (path, mut written, mut numbered) = (from.stars_written(), 0, 0);
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = next(rest);
            rest = behind;
            let star = match piece {
                TargetPiece::Literal(literal) => {
                    target.literals.last_mut().expect("one at least").push_str(literal);
                    continue;
                }
                TargetPiece::Star => {
                    written += 1;
                    written - 1
                }
                TargetPiece::Number(wanted) if (1..=path).contains(&wanted) => {
                    numbered += 1;
                    wanted - 1
                }
                TargetPiece::Number(wanted) => return Err(TargetError::Beyond { path, wanted }),
            };
            target.stars.push(star);
            target.literals.push(String::new());
        }
        match (written, numbered) {
            (0, _) => Ok(target),
            (_, 1..) => Err(TargetError::Mixed),
            _ if path == 0 => Err(TargetError::NoStar),
            _ if path != written => Err(TargetError::Count { path, target: written }),
            _ => Ok(target),
        }
    }

    /// The text of the target.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The target with the text of the stars. A star outside the matching alternative is empty.
    #[must_use]
    pub fn filled(&self, stars: &[&[u8]]) -> Vec<u8> {
        let captured: usize = stars.iter().map(|star| star.len()).sum();
        let mut location = Vec::with_capacity(self.text.len() + captured);
        append_checked(&mut location, self.literals[0].as_bytes());
        for (star, literal) in self.stars.iter().zip(&self.literals[1..]) {
            append_captured(&mut location, stars.get(*star).copied().unwrap_or_default());
            append_literal(&mut location, literal.as_bytes());
        }
        location
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The first part of a target that is not empty, and the rest.
fn next(text: &str) -> (TargetPiece<'_>, &str) {
    if text.starts_with('*') {
        return (TargetPiece::Star, text.trim_start_matches('*'));
    }
    if let Some(behind) = text.strip_prefix('$') {
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let number = behind[..digits].parse().unwrap_or(usize::MAX);
            return (TargetPiece::Number(number), &behind[digits..]);
        }
    }
    let end = text[1..].find(['*', '$']).map_or(text.len(), |at| at + 1);
    let (literal, behind) = text.split_at(end);
    (TargetPiece::Literal(literal), behind)
}

fn append_captured(location: &mut Vec<u8>, captured: &[u8]) {
    if ends_in_authority(location) && captured.first() != Some(&b'/') {
        // `https://example.com*` must not become `https://example.com.evil.example`.
        location.push(b'/');
    }
    let mut rest = captured;
    while location.ends_with(b"/") && rest.first() == Some(&b'/') {
        rest = &rest[1..];
    }
    let start = location.len();
    path::encode(rest, location);
    if location[..start].contains(&b'?') {
        keep_in_one_parameter(location, start);
    }
}

/// Appends the text after a star. An empty star leaves no `//` in the path.
fn append_literal(location: &mut Vec<u8>, literal: &[u8]) {
    let mut rest = literal;
    while !location.contains(&b'?') && location.ends_with(b"/") && rest.first() == Some(&b'/') {
        rest = &rest[1..];
    }
    append_checked(location, rest);
}

/// Encodes bytes that are valid in a path but would end a parameter of a query.
fn keep_in_one_parameter(location: &mut Vec<u8>, start: usize) {
    let captured = location.split_off(start);
    for byte in captured {
        match byte {
            b'&' => location.extend(b"%26"),
            b'+' => location.extend(b"%2B"),
            byte => location.push(byte),
        }
    }
}

/// True if the next bytes would still belong to scheme or host: no `/` of a path so far.
fn ends_in_authority(location: &[u8]) -> bool {
    let scheme = location.windows(3).position(|bytes| bytes == b"://");
    let behind_scheme = scheme.map_or(location, |at| &location[at + 3..]);
    !behind_scheme.contains(&b'/')
}

/// Appends encoded text; bytes that are invalid in a field or a URL are encoded.
pub(crate) fn append_checked(location: &mut Vec<u8>, encoded: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in encoded {
        if matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'<' | b'>' | b'\\') {
            location.push(byte);
        } else {
            location.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Path and query of a target.
pub(crate) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Adds the client's query after the target's own, before a fragment.
pub(crate) fn with_query(mut location: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return location;
    };
    let fragment = location.iter().position(|&byte| byte == b'#').unwrap_or(location.len());
    let fragment = location.split_off(fragment);
    location.push(if location.contains(&b'?') { b'&' } else { b'?' });
    append_checked(&mut location, query);
    location.extend(fragment);
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(from: &str, to: &str) -> Result<Target, TargetError> {
        Target::new(&Glob::new(from).expect("a pattern"), to)
    }

    #[test]
    fn each_star_takes_the_star_of_its_place_and_a_number_the_star_it_names() {
        let rows = [
            ("/*-s*.xml", "/i.php?a=*&b=*", "/posts-s3.xml", "/i.php?a=posts&b=3"),
            ("/*/wp-*", "/wp-$2", "/blog/wp-admin/x.js", "/wp-admin/x.js"),
            ("/*/wp-*", "/$2/$1/$1", "/blog/wp-admin", "/admin/blog/blog"),
            ("/a/**", "/b/**", "/a/x/y", "/b/x/y"),
            ("/cost/*", "/price$/*", "/cost/1", "/price$/1"),
            ("/{a*,b}/*", "/c/$1/$2", "/b/x", "/c/x/"),
            ("/x*y*", "/*/*", "/xy/evil.example", "/evil.example"),
            ("/x*", "/*/index.html", "/x", "/index.html"),
            ("/x*", "/q?a=*/b", "/x", "/q?a=/b"),
        ];
        for (from, to, path, expected) in rows {
            let glob = Glob::new(from).expect("a pattern");
            let stars = glob.stars(path.as_bytes()).expect("it matches");
            let filled = target(from, to).expect("a target").filled(&stars);
            assert_eq!(String::from_utf8_lossy(&filled), expected, "{from} → {to} on {path}");
        }
    }

    #[test]
    fn a_target_that_does_not_say_which_star_goes_where_is_refused() {
        let rows = [
            ("/a", "/b/*", TargetError::NoStar),
            ("/*/wp-*", "/wp-*", TargetError::Count { path: 2, target: 1 }),
            ("/a/*", "/*/*", TargetError::Count { path: 1, target: 2 }),
            ("/a/*", "/$2", TargetError::Beyond { path: 1, wanted: 2 }),
            ("/a/*", "/$0", TargetError::Beyond { path: 1, wanted: 0 }),
            ("/*/*", "/$1/*", TargetError::Mixed),
        ];
        for (from, to, expected) in rows {
            assert_eq!(target(from, to), Err(expected), "{from} → {to}");
        }
    }
}
