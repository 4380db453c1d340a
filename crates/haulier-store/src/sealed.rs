//! Sealed files: the content is followed by its length and a checksum of content and name.
//!
//! A power cut may truncate such a file, the disk may corrupt it, or a person may copy it over another one. The seal is
//! at the end, so that the content can be sent by sendfile(2) from the beginning of the file.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::checked::{Checked, FileState};

/// First bytes of a seal; a new layout gets a new number.
const MAGIC: &[u8; 8] = b"haulier2";
/// Bytes of a seal: magic, length, checksum.
pub const SEAL: u64 = 48;
/// Bytes per read.
const PIECE: usize = 32 * 1024;

/// Writes content and its seal. `name` is a hash of the content's name.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &mut File, name: &[u8; 32], content: &[u8]) -> io::Result<()> {
    let sum = blake3::keyed_hash(name, content);
    file.write_all(content)?;
    file.write_all(&seal(content.len() as u64, &sum))
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealState {
    /// The content is what was written under this name; its length in bytes.
    Whole(u64),
    /// There is no seal: the file is truncated, or from an older haulier.
    Unsealed,
    /// The seal does not match content or name.
    Damaged,
}

/// Checks a file against its seal, unless it was checked in this state before. Reads the whole file, so it is for
/// threads that may block.
///
/// # Errors
/// The file cannot be read.
pub fn open(file: &File, state: &FileState, name: &[u8; 32], checked: &Checked) -> io::Result<SealState> {
    if let Some(length) = known(state, name, checked) {
        return Ok(SealState::Whole(length));
    }
    let Some(length) = state.length().checked_sub(SEAL) else {
        return Ok(SealState::Unsealed);
    };
    let mut found = [0; SEAL as usize];
    if !is_there(file.read_exact_at(&mut found, length))? || !found.starts_with(MAGIC) {
        return Ok(SealState::Unsealed);
    }
    let mut hasher = blake3::Hasher::new_keyed(name);
    let mut piece = [0; PIECE];
    let mut place = 0;
    while place < length {
        let piece = &mut piece[..PIECE.min((length - place) as usize)];
        if !is_there(file.read_exact_at(piece, place))? {
            return Ok(SealState::Damaged);
        }
        hasher.update(piece);
        place += piece.len() as u64;
    }
    if found != seal(length, &hasher.finalize()) {
        return Ok(SealState::Damaged);
    }
    checked.note(name, state);
    Ok(SealState::Whole(length))
}

/// Length of the content of a file that was checked before, without reading it.
pub fn known(state: &FileState, name: &[u8; 32], checked: &Checked) -> Option<u64> {
    let length = state.length().checked_sub(SEAL)?;
    checked.contains(name, state).then_some(length)
}

fn seal(length: u64, sum: &blake3::Hash) -> [u8; SEAL as usize] {
    let mut seal = [0; SEAL as usize];
    seal[..8].copy_from_slice(MAGIC);
    seal[8..16].copy_from_slice(&length.to_le_bytes());
    seal[16..].copy_from_slice(sum.as_bytes());
    seal
}

/// False if the file was truncated meanwhile.
fn is_there(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(file: &File, name: &[u8; 32], checked: &Checked) -> SealState {
        let state = FileState::of(&file.metadata().expect("its state"));
        open(file, &state, name, checked).expect("it can be read")
    }

    fn sealed(content: &[u8], name: &[u8; 32]) -> Vec<u8> {
        let mut file = tempfile::tempfile().expect("a file");
        write(&mut file, name, content).expect("written");
        let mut bytes = vec![0; content.len() + SEAL as usize];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        bytes
    }

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file
    }

    #[test]
    fn only_the_whole_content_under_its_own_name_is_believed() {
        let (name, other) = ([1; 32], [2; 32]);
        for content in [&b""[..], b"a picture", &vec![7; 3 * PIECE + 5]] {
            let whole = sealed(content, &name);
            let found = look(&file_of(&whole), &name, &Checked::default());
            assert_eq!(found, SealState::Whole(content.len() as u64));
            assert_eq!(look(&file_of(&whole), &other, &Checked::default()), SealState::Damaged);
            let places = (0..whole.len()).step_by(whole.len() / 50 + 1);
            for place in places.chain([whole.len() - 1]) {
                let cut = file_of(&whole[..place]);
                assert_eq!(
                    look(&cut, &name, &Checked::default()),
                    SealState::Unsealed,
                    "cut to {place}"
                );
                let mut damaged = whole.clone();
                damaged[place] ^= 1;
                let found = look(&file_of(&damaged), &name, &Checked::default());
                assert!(
                    matches!(found, SealState::Damaged | SealState::Unsealed),
                    "byte {place}"
                );
            }
        }
    }

    #[test]
    fn what_was_read_before_is_not_read_again() {
        let (name, checked) = ([1; 32], Checked::default());
        let file = file_of(&sealed(b"content", &name));
        let state = FileState::of(&file.metadata().expect("its state"));
        assert_eq!(known(&state, &name, &checked), None);
        assert_eq!(look(&file, &name, &checked), SealState::Whole(7));
        assert_eq!(known(&state, &name, &checked), Some(7));
        assert_eq!(known(&state, &[2; 32], &checked), None, "it lies under another name");
        // Opened for writing alone it cannot be read: who asks now gets what is remembered.
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let mut written = File::create(&path).expect("a file");
        write(&mut written, &name, b"content").expect("written");
        let state = FileState::of(&written.metadata().expect("its state"));
        assert!(open(&written, &state, &name, &checked).is_err());
        checked.note(&name, &state);
        assert_eq!(
            open(&written, &state, &name, &checked).expect("known"),
            SealState::Whole(7)
        );
    }
}
