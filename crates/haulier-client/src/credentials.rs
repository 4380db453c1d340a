//! Credentials: basic, bearer tokens, and the netrc file.
//!
//! Credentials belong to one origin. A client that follows a redirect to another origin looks them up again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The value of Authorization for a user and a password (RFC 7617).
#[must_use]
pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// The value of Authorization for a token (RFC 6750).
#[must_use]
pub fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// The entries of a netrc file.
#[derive(Debug, Clone, Default)]
pub struct Netrc {
    entries: Vec<NetrcEntry>,
}

#[derive(Clone, Default)]
struct NetrcEntry {
    /// `None` is the `default` entry.
    machine: Option<String>,
    login: String,
    password: String,
}

/// Without the password.
impl std::fmt::Debug for NetrcEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} as {}", self.machine, self.login)
    }
}

impl Netrc {
    /// Reads the file's text. Unknown words are ignored, as every other program does.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut entries = Vec::<NetrcEntry>::new();
        let mut words = words(text).into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "machine" => entries.push(NetrcEntry {
                    machine: Some(words.next().unwrap_or_default().to_ascii_lowercase()),
                    ..NetrcEntry::default()
                }),
                "default" => entries.push(NetrcEntry::default()),
                "login" => set(&mut entries, words.next(), |entry| &mut entry.login),
                "password" => set(&mut entries, words.next(), |entry| &mut entry.password),
                _ => {}
            }
        }
        Self { entries }
    }

    /// User and password for a host; the `default` entry is for all other hosts.
    #[must_use]
    pub fn find(&self, host: &str) -> Option<(&str, &str)> {
        let found = self
            .entries
            .iter()
            .find(|entry| entry.machine.as_deref().is_none_or(|machine| machine == host))?;
        Some((&found.login, &found.password))
    }
}

fn set(entries: &mut [NetrcEntry], value: Option<String>, place: impl Fn(&mut NetrcEntry) -> &mut String) {
    if let (Some(entry), Some(value)) = (entries.last_mut(), value) {
        *place(entry) = value;
    }
}

/// Words of all lines; a word may be quoted, a line that begins with `#` is a comment, a macro lasts to an empty line.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut in_macro = false;
    for line in text.lines() {
        let line = line.trim();
        in_macro = (in_macro && !line.is_empty()) || line.starts_with("macdef");
        if in_macro || line.starts_with('#') {
            continue;
        }
        let mut rest = line;
        while !rest.is_empty() {
            let (word, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
                None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
            };
            words.push(word.to_owned());
            rest = after.trim_start();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_7617_is_encoded() {
        assert_eq!(basic("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn netrc_entries_are_found_by_host_and_the_default_is_for_all() {
        let netrc = Netrc::parse(
            "# mine\nmachine dl.example.com login me password \"two words\"\nmacdef init\n machine evil\n\n\
             machine other\n  login you\n  password #1\ndefault login anonymous password x@y\n",
        );
        assert_eq!(netrc.find("dl.example.com"), Some(("me", "two words")));
        assert_eq!(netrc.find("other"), Some(("you", "#1")));
        assert_eq!(netrc.find("evil"), Some(("anonymous", "x@y")));
        assert_eq!(Netrc::parse("machine a login b").find("c"), None);
    }

    #[test]
    fn a_password_is_not_printed() {
        let netrc = Netrc::parse("machine a login b password secret");
        assert!(!format!("{netrc:?}").contains("secret"));
    }
}
