//! MD5 sums, which are the ids of images.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use md5::{Digest, Md5};

use crate::runtime::blocking;
use crate::store::{ObjectContent, StoreError};

/// Bytes per read.
const PIECE: usize = 32 * 1024;

/// An MD5 sum of data that comes in pieces.
#[derive(Default)]
pub struct Md5Sum(Md5);

impl Md5Sum {
    /// Adds a piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The sum as 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The sum of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> String {
        let mut sum = Self::default();
        sum.add(bytes);
        sum.finish()
    }

    /// The sum of the first `length` bytes of a file, or of all if it is shorter. For threads that may block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(file: &File, length: u64) -> io::Result<String> {
        let mut sum = Self::default();
        let mut piece = [0; PIECE];
        let mut place = 0;
        while place < length {
            let most = PIECE.min(usize::try_from(length - place).unwrap_or(PIECE));
            match file.read_at(&mut piece[..most], place) {
                Ok(0) => break,
                Ok(read) => {
                    sum.add(&piece[..read]);
                    place += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum.finish())
    }

    /// The sum of a whole object, which is read in pieces.
    ///
    /// # Errors
    /// It cannot be read, or is cut before its end.
    pub async fn of_content(content: ObjectContent) -> Result<String, StoreError> {
        match content {
            ObjectContent::File(file, state) => Ok(blocking(move || Self::of_file(&file, state.length())).await?),
            ObjectContent::Stream { length, mut pieces } => {
                let (mut sum, mut received) = (Self::default(), 0);
                while let Some(piece) = pieces.recv().await {
                    let piece = piece?;
                    sum.add(&piece);
                    received += piece.len() as u64;
                }
                match received == length {
                    true => Ok(sum.finish()),
                    false => Err(StoreError::Short { length, received }),
                }
            }
        }
    }
}

impl std::fmt::Debug for Md5Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Md5Sum").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn pieces_and_files_have_the_sum_of_the_whole() {
        assert_eq!(Md5Sum::of(b""), "d41d8cd98f00b204e9800998ecf8427e");
        let content: Vec<u8> = (0..3 * PIECE + 7).map(|place| (place % 251) as u8).collect();
        let mut sum = Md5Sum::default();
        content.chunks(1000).for_each(|piece| sum.add(piece));
        assert_eq!(sum.finish(), Md5Sum::of(&content));
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content).expect("written");
        let length = content.len() as u64;
        assert_eq!(
            Md5Sum::of_file(&file, length).expect("it can be read"),
            Md5Sum::of(&content)
        );
        assert_eq!(
            Md5Sum::of_file(&file, length + 5).expect("it can be read"),
            Md5Sum::of(&content)
        );
    }
}
