//! Password files with user names and hashes, as Apache's `htpasswd` writes them: bcrypt, apr1 and SHA-1.
//!
//! The file is read again when it changes. A verified password is cached for a while as a salted hash: browsers send it
//! with every request, and bcrypt is slow on purpose.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use sha1::{Digest, Sha1};

use super::{apr1, base64};
use crate::clock::now;

/// Time that a verified password is cached.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Most passwords in the cache; then it is cleared.
const MOST_REMEMBERED: usize = 1024;
/// Time between two checks of the file.
const FRESH: Duration = Duration::from_secs(1);
/// bcrypt ignores further bytes (htpasswd(1) says so too), so a longer password is refused.
const LONGEST: usize = 255;

/// Users with their passwords, shared by all threads.
#[derive(Debug)]
pub struct Htpasswd {
    path: PathBuf,
    users: RwLock<Users>,
    checked: Mutex<Instant>,
    remembered: Mutex<HashMap<[u8; 20], Instant>>,
    /// Random for the process: the cached hashes are useless outside it.
    salt: [u8; 16],
}

#[derive(Debug)]
struct Users {
    hashes: HashMap<String, Hash>,
    modified: Option<SystemTime>,
}

/// A password's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hash {
    /// `$2y$…`
    Bcrypt(String),
    /// `$apr1$SALT$…`
    Apr1 { salt: String, letters: String },
    /// `{SHA}…`
    Sha1(Vec<u8>),
}

/// An unusable password file.
#[derive(Debug, thiserror::Error)]
pub enum HtpasswdError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no users", path.display())]
    Empty { path: PathBuf },
    #[error("line {line} of {} is no `name:hash` with a bcrypt, apr1 or SHA hash", path.display())]
    Line { path: PathBuf, line: usize },
}

impl Htpasswd {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, has no users, or has a malformed line.
    pub fn open(path: &Path) -> Result<Self, HtpasswdError> {
        let random = RandomState::new();
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&random.hash_one(0).to_ne_bytes());
        salt[8..].copy_from_slice(&random.hash_one(1).to_ne_bytes());
        Ok(Self {
            path: path.to_owned(),
            users: RwLock::new(Users::read(path)?),
            checked: Mutex::new(now()),
            remembered: Mutex::default(),
            salt,
        })
    }

    /// True if this password of this user is in the cache.
    pub(crate) fn remembers(&self, user: &str, password: &[u8]) -> bool {
        self.read_again_if_changed(now());
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let until = remembered.get(&self.fingerprint(user, password));
        until.is_some_and(|until| now() < *until)
    }

    /// Verifies a password. bcrypt takes long, so not on a serving thread.
    pub(crate) fn verify(&self, user: &str, password: &[u8]) -> bool {
        let fits = {
            let hash = self.users.read().unwrap_or_else(PoisonError::into_inner).hash_for(user);
            // An unknown user takes as long as a known one, so that the time does not reveal user names.
            hash.is_some_and(|(hash, is_known)| hash.fits(password) && is_known)
        };
        if fits {
            let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() >= MOST_REMEMBERED {
                remembered.clear();
            }
            remembered.insert(self.fingerprint(user, password), now() + REMEMBERED);
        }
        fits
    }

    fn fingerprint(&self, user: &str, password: &[u8]) -> [u8; 20] {
        let digest = Sha1::new().chain_update(self.salt).chain_update(user).chain_update([0]);
        digest.chain_update(password).finalize().into()
    }

    /// A file that has become unreadable or malformed leaves the users unchanged.
    fn read_again_if_changed(&self, now: Instant) {
        {
            let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            if now.saturating_duration_since(*checked) < FRESH {
                return;
            }
            *checked = now;
        }
        let before = self.users.read().unwrap_or_else(PoisonError::into_inner).modified;
        if modified(&self.path) == before {
            return;
        }
        match Users::read(&self.path) {
            Ok(users) => {
                *self.users.write().unwrap_or_else(PoisonError::into_inner) = users;
                self.remembered.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            Err(error) => tracing::error!(%error, "the users stay unchanged"),
        }
    }
}

impl Users {
    fn read(path: &Path) -> Result<Self, HtpasswdError> {
        let modified = modified(path);
        let text = std::fs::read_to_string(path).map_err(|source| HtpasswdError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut hashes = HashMap::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, hash) = parse(line).ok_or_else(|| HtpasswdError::Line {
                path: path.to_owned(),
                line: number,
            })?;
            hashes.insert(user, hash);
        }
        if hashes.is_empty() {
            return Err(HtpasswdError::Empty { path: path.to_owned() });
        }
        Ok(Self { hashes, modified })
    }

    /// The user's hash, or another one with `false`.
    fn hash_for(&self, user: &str) -> Option<(Hash, bool)> {
        match self.hashes.get(user) {
            Some(hash) => Some((hash.clone(), true)),
            None => self.hashes.values().next().map(|hash| (hash.clone(), false)),
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

fn parse(line: &str) -> Option<(String, Hash)> {
    let (user, hash) = line.trim_end().split_once(':')?;
    let hash = if let Some(rest) = hash.strip_prefix("$apr1$") {
        let (salt, letters) = rest.split_once('$')?;
        (salt.len() <= 8 && letters.len() == 22).then(|| Hash::Apr1 {
            salt: salt.to_owned(),
            letters: letters.to_owned(),
        })?
    } else if let Some(encoded) = hash.strip_prefix("{SHA}") {
        Hash::Sha1(base64::decode(encoded.as_bytes()).filter(|digest| digest.len() == 20)?)
    } else if is_bcrypt(hash) {
        Hash::Bcrypt(hash.to_owned())
    } else {
        return None;
    };
    (!user.is_empty()).then(|| (user.to_owned(), hash))
}

fn is_bcrypt(hash: &str) -> bool {
    hash.parse::<bcrypt::HashParts>()
        .is_ok_and(|parts| (4..=17).contains(&parts.get_cost()))
}

impl Hash {
    fn fits(&self, password: &[u8]) -> bool {
        if password.len() > LONGEST {
            return false;
        }
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Apr1 { salt, letters } => same(apr1::hash(password, salt.as_bytes()).as_bytes(), letters.as_bytes()),
            Self::Sha1(digest) => same(&Sha1::digest(password), digest),
        }
    }
}

/// Compares in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `htpasswd -nbB -C 4`, `-nbm` and `-nbs` for the password "horse battery".
    const FILE: &str = "# staff\n\nanna:$2y$04$UCHc1UAf9OIK9.zZ0LvfcenAMLJxF0Wc2SElnRuTL1OZwvmQG4l6i\nbert:$apr1$eej4gbAL$ktl6xkOLzoWp/AoQoHF3S.\ncarl:{SHA}BRJldvYqIcbsNASAoVxPfY2d3fA=\n";

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("users");
        std::fs::write(&path, text).expect("a file");
        (directory, path)
    }

    #[test]
    fn the_three_kinds_of_htpasswd_are_understood() {
        let (_directory, path) = file(FILE);
        let users = Htpasswd::open(&path).expect("three users");
        for user in ["anna", "bert", "carl"] {
            assert!(!users.remembers(user, b"horse battery"));
            assert!(!users.verify(user, b"horse batter"), "{user}");
            assert!(!users.verify(user, b""), "{user}");
            assert!(users.verify(user, b"horse battery"), "{user}");
            assert!(users.remembers(user, b"horse battery") && !users.remembers(user, b"horse batter"));
        }
        assert!(!users.verify("dora", b"horse battery"), "nobody of that name");
        assert!(!users.verify("", b"horse battery"));
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let (_directory, path) = file(FILE);
        let users = Htpasswd::open(&path).expect("three users");
        assert!(users.verify("anna", b"horse battery"));
        let later = |seconds| users.read_again_if_changed(now() + Duration::from_secs(seconds));
        let age = |seconds| {
            let file = std::fs::File::options().write(true).open(&path).expect("the file");
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
                .expect("a time");
        };
        std::fs::write(&path, "anna:plain\n").expect("writable");
        age(100);
        later(2);
        assert!(users.remembers("anna", b"horse battery"), "the users are as they were");
        std::fs::write(&path, "bert:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").expect("writable");
        age(50);
        later(4);
        assert!(!users.remembers("anna", b"horse battery") && !users.verify("anna", b"horse battery"));
        assert!(users.verify("bert", b"password"));
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        let rows = [
            ("anna:secret\n", "line 1"),
            ("# x\nanna\n", "line 2"),
            (
                "anna:$2y$99$abcdefghijklmnopqrstuvabcdefghijklmnopqrstuvwxyzabcde\n",
                "line 1",
            ),
            (":{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n", "line 1"),
            ("anna:{SHA}W6ph\n", "line 1"),
            ("anna:$apr1$saltsaltsalt$abcdefghijklmnopqrstuv\n", "line 1"),
            ("# nobody\n", "no users"),
        ];
        for (text, expected) in rows {
            let (_directory, path) = file(text);
            let error = Htpasswd::open(&path).expect_err("not understood").to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let error = Htpasswd::open(Path::new("/nowhere/users")).expect_err("not there");
        assert!(matches!(error, HtpasswdError::Read { .. }), "{error}");
    }
}
