//! Checksums: given, listed in a file, or sent by the server (RFC 9530).
//!
//! A thread of its own hashes the file while it is written, and reads it from the page cache, so a checksum costs no
//! time on a second core.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haulier_proto::field::Fields;
use sha2::Digest;

/// The hash function of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Sha256,
    Sha512,
    Blake3,
    /// It finds damage, but stops no attacker.
    Md5,
}

impl Algorithm {
    /// By its name in any letter case, with or without the dash.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().replace('-', "").as_str() {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            "blake3" => Some(Self::Blake3),
            "md5" => Some(Self::Md5),
            _ => None,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
            Self::Blake3 => "blake3",
            Self::Md5 => "md5",
        }
    }

    fn length(self) -> usize {
        match self {
            Self::Sha256 | Self::Blake3 => 32,
            Self::Sha512 => 64,
            Self::Md5 => 16,
        }
    }
}

/// The origin of a checksum; the more trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChecksumSource {
    Given,
    ListFile,
    ReprDigest,
    Digest,
    ContentMd5,
}

impl ChecksumSource {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "the given checksum",
            Self::ListFile => "the checksum file",
            Self::ReprDigest => "Repr-Digest",
            Self::Digest => "Digest",
            Self::ContentMd5 => "Content-MD5",
        }
    }
}

/// A checksum that the file must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub value: Vec<u8>,
    pub source: ChecksumSource,
}

impl Checksum {
    /// Hexadecimal digits of the algorithm's length; `None` for anything else.
    #[must_use]
    pub fn from_hex(algorithm: Algorithm, hex: &str, source: ChecksumSource) -> Option<Self> {
        let digits = hex.trim().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pairs = digits.chunks(2).map(|pair| match *pair {
            [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
            _ => None,
        });
        let value: Vec<u8> = pairs.collect::<Option<_>>()?;
        (value.len() == algorithm.length()).then_some(Self {
            algorithm,
            value,
            source,
        })
    }

    fn from_base64(algorithm: Algorithm, text: &str, source: ChecksumSource) -> Option<Self> {
        let value = STANDARD.decode(text.trim()).ok()?;
        (value.len() == algorithm.length()).then_some(Self {
            algorithm,
            value,
            source,
        })
    }

    /// Hexadecimal, as sha256sum prints it.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.value)
    }
}

#[must_use]
pub(crate) fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The checksum of `name` in a file as sha256sum, b3sum and their kin write it; also the tagged form of BSD. The
/// algorithm follows from the length; `prefer` decides between those of equal length.
#[must_use]
pub fn in_list(list: &str, name: &str, prefer: Algorithm) -> Option<Checksum> {
    list.lines().find_map(|line| {
        if let Some((tag, hex)) = line.split_once(") = ") {
            let (algorithm, listed) = tag.split_once(" (")?;
            let found = Checksum::from_hex(Algorithm::of(algorithm)?, hex, ChecksumSource::ListFile)?;
            return (listed == name).then_some(found);
        }
        let (hex, listed) = line.split_once([' ', '\t'])?;
        let listed = listed.trim_start().trim_start_matches('*');
        if listed.trim_start_matches("./") != name {
            return None;
        }
        let candidates = [prefer, Algorithm::Sha256, Algorithm::Sha512, Algorithm::Md5];
        candidates
            .into_iter()
            .find_map(|algorithm| Checksum::from_hex(algorithm, hex, ChecksumSource::ListFile))
    })
}

/// The checksums a response states of the whole representation. `is_whole`: the response is a 200, so fields about the
/// content count as well.
#[must_use]
pub fn stated(fields: &Fields, is_whole: bool) -> Vec<Checksum> {
    let mut found = Vec::new();
    let mut from = |name: &str, source: ChecksumSource| {
        for value in fields.get_all(name) {
            let value = String::from_utf8_lossy(value).into_owned();
            found.extend(value.split(',').filter_map(|member| digest_member(member, source)));
        }
    };
    from("repr-digest", ChecksumSource::ReprDigest);
    from("digest", ChecksumSource::Digest);
    if is_whole {
        from("content-digest", ChecksumSource::ReprDigest);
        let md5 = fields
            .get("content-md5")
            .and_then(|value| std::str::from_utf8(value).ok());
        found.extend(md5.and_then(|text| Checksum::from_base64(Algorithm::Md5, text, ChecksumSource::ContentMd5)));
    }
    found
}

/// `sha-256=:base64:` (RFC 9530), or without the colons (RFC 3230).
fn digest_member(member: &str, source: ChecksumSource) -> Option<Checksum> {
    let (name, value) = member.trim().split_once('=')?;
    let value = match value.strip_prefix(':') {
        Some(inner) => inner.split(':').next()?,
        None => value,
    };
    Checksum::from_base64(Algorithm::of(name)?, value, source)
}

enum Hasher {
    Sha256(Box<sha2::Sha256>),
    Sha512(Box<sha2::Sha512>),
    Blake3(Box<blake3::Hasher>),
    Md5(Box<md5::Md5>),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Box::default()),
            Algorithm::Sha512 => Self::Sha512(Box::default()),
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Md5 => Self::Md5(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
            Self::Blake3(hasher) => drop(hasher.update(bytes)),
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
            Self::Blake3(hasher) => hasher.finalize().as_bytes().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
        }
    }
}

/// The extent of the file that may be read.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    whole_up_to: u64,
    is_final: bool,
    is_given_up: bool,
}

/// A thread that hashes a file while it grows.
#[derive(Debug)]
pub struct Follower {
    reach: Arc<(Mutex<Reach>, Condvar)>,
    thread: Option<JoinHandle<io::Result<Vec<Vec<u8>>>>>,
    expected: Vec<Checksum>,
}

impl Follower {
    /// Starts at the first byte of `file`, which may still be empty.
    ///
    /// # Errors
    /// If no further thread or descriptor can be had.
    pub fn start(file: &File, expected: Vec<Checksum>) -> io::Result<Self> {
        let reach = Arc::new((Mutex::new(Reach::default()), Condvar::new()));
        let (file, shared) = (file.try_clone()?, Arc::clone(&reach));
        let algorithms: Vec<_> = expected.iter().map(|checksum| checksum.algorithm).collect();
        let thread = std::thread::Builder::new()
            .name("checksum".to_owned())
            .spawn(move || follow(&file, &shared, &algorithms))?;
        Ok(Self {
            reach,
            thread: Some(thread),
            expected,
        })
    }

    /// Notes that the file is whole up to here.
    pub fn reached(&self, whole_up_to: u64) {
        self.update(|reach| reach.whole_up_to = whole_up_to);
    }

    fn update(&self, change: impl FnOnce(&mut Reach)) {
        let (reach, changed) = &*self.reach;
        change(&mut reach.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_one();
    }

    /// Waits for the rest, blocking, and compares. `Ok(Err(…))` is the first checksum that does not match, with the one
    /// found.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn finish(mut self, length: u64) -> io::Result<Result<Vec<Checksum>, (Checksum, String)>> {
        self.update(|reach| {
            reach.whole_up_to = length;
            reach.is_final = true;
        });
        let thread = self.thread.take().expect("it ends here only");
        let values = thread
            .join()
            .map_err(|_| io::Error::other("the checksum thread panicked"))??;
        let expected = std::mem::take(&mut self.expected);
        for (checksum, value) in expected.iter().zip(values) {
            if checksum.value != value {
                return Ok(Err((checksum.clone(), hex(&value))));
            }
        }
        Ok(Ok(expected))
    }
}

/// Stops the thread: a download that failed needs no checksum.
impl Drop for Follower {
    fn drop(&mut self) {
        self.update(|reach| reach.is_given_up = true);
    }
}

fn follow(file: &File, shared: &(Mutex<Reach>, Condvar), algorithms: &[Algorithm]) -> io::Result<Vec<Vec<u8>>> {
    let mut hashers: Vec<_> = algorithms.iter().map(|&algorithm| Hasher::new(algorithm)).collect();
    let mut buffer = vec![0; 256 * 1024];
    let mut at = 0;
    loop {
        let reach = wait_beyond(shared, at, buffer.len() as u64);
        while at < reach.whole_up_to && !reach.is_given_up {
            let most = (reach.whole_up_to - at).min(buffer.len() as u64) as usize;
            let read = file.read_at(&mut buffer[..most], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[..read]));
            at += read as u64;
        }
        if reach.is_final || reach.is_given_up {
            return Ok(hashers.into_iter().map(Hasher::finish).collect());
        }
    }
}

/// Waits until a whole piece can be read, or the end is known.
fn wait_beyond(shared: &(Mutex<Reach>, Condvar), at: u64, piece: u64) -> Reach {
    let (reach, changed) = shared;
    let guard = reach.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = |reach: &mut Reach| reach.whole_up_to < at + piece && !reach.is_final && !reach.is_given_up;
    *changed
        .wait_while(guard, waiting)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const ABC_SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const ABC_MD5: &str = "900150983cd24fb0d6963f7d28e17f72";
    const ABC_BLAKE3: &str = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";

    fn sha256(hex: &str) -> Checksum {
        Checksum::from_hex(Algorithm::Sha256, hex, ChecksumSource::Given).expect("64 digits")
    }

    #[test]
    fn a_growing_file_is_hashed_as_it_grows() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let md5 = Checksum::from_hex(Algorithm::Md5, ABC_MD5, ChecksumSource::Given).expect("32 digits");
        let blake3 = Checksum::from_hex(Algorithm::Blake3, ABC_BLAKE3, ChecksumSource::Given).expect("64 digits");
        let expected = vec![sha256(ABC_SHA256), md5, blake3];
        let follower = Follower::start(&file, expected.clone()).expect("a thread");
        for byte in [b"a", b"b", b"c"] {
            file.write_all(byte).expect("written");
        }
        follower.reached(3);
        assert_eq!(follower.finish(3).expect("read"), Ok(expected));
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(b"abd").expect("written");
        let follower = Follower::start(&file, vec![sha256(ABC_SHA256)]).expect("a thread");
        let (expected, found) = follower.finish(3).expect("read").expect_err("another file");
        assert_eq!(expected.hex(), ABC_SHA256);
        assert_ne!(found, ABC_SHA256);
    }

    #[test]
    fn lists_of_every_common_form_are_read() {
        let list = format!(
            "{0}  other\n{ABC_SHA256} *a b.iso\nMD5 (c.iso) = {ABC_MD5}\n",
            "0".repeat(64)
        );
        let found = in_list(&list, "a b.iso", Algorithm::Sha256).expect("listed");
        assert_eq!(
            (found.algorithm, found.hex()),
            (Algorithm::Sha256, ABC_SHA256.to_owned())
        );
        let found = in_list(&list, "c.iso", Algorithm::Sha256).expect("listed");
        assert_eq!(found.algorithm, Algorithm::Md5);
        let list = format!("{ABC_BLAKE3}  ./d.iso\n");
        let found = in_list(&list, "d.iso", Algorithm::Blake3).expect("listed");
        assert_eq!(found.algorithm, Algorithm::Blake3);
        assert_eq!(in_list(&list, "iso", Algorithm::Sha256), None);
    }

    #[test]
    fn digests_that_come_along_are_read_old_and_new() {
        let mut fields = Fields::new();
        let base64 = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
        fields.append("Repr-Digest", format!("unknown=:AA==:, sha-256=:{base64}:"));
        fields.append("Digest", format!("SHA-256={base64}"));
        fields.append("Content-MD5", "kAFQmDzST7DWlj99KOF/cg==");
        let found = stated(&fields, true);
        let sources: Vec<_> = found.iter().map(|checksum| checksum.source).collect();
        assert_eq!(
            sources,
            [
                ChecksumSource::ReprDigest,
                ChecksumSource::Digest,
                ChecksumSource::ContentMd5
            ]
        );
        assert!(found[..2].iter().all(|checksum| checksum.hex() == ABC_SHA256));
        assert_eq!(found[2].hex(), ABC_MD5);
        assert_eq!(
            stated(&fields, false).len(),
            2,
            "MD5 is of the content, which is a part"
        );
    }

    #[test]
    fn what_is_no_checksum_is_refused() {
        assert_eq!(Checksum::from_hex(Algorithm::Sha256, "ab", ChecksumSource::Given), None);
        assert_eq!(
            Checksum::from_hex(Algorithm::Md5, &"xy".repeat(16), ChecksumSource::Given),
            None
        );
        assert_eq!(Algorithm::of("crc32"), None);
    }
}
