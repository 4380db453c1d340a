//! A log file that can be opened anew, after a rotation has moved it away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haulier_php::User;

/// Tells every file opened with it to be opened anew before its next line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reopen(Arc<AtomicU64>);

impl Reopen {
    /// Says so.
    pub(crate) fn ask(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn asked(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A file that lines are added to.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
    reopen: Reopen,
    /// What `reopen` said when the file was opened.
    opened_at: u64,
    /// The last write failed, and that was said.
    is_failing: bool,
}

impl LogFile {
    /// Opens or makes the file, readable by its owner and group only; it is given to `owner`, who must be able to
    /// open it again later.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or not be given away.
    pub(crate) fn open(path: &Path, reopen: Reopen, owner: Option<&User>) -> io::Result<Self> {
        let opened_at = reopen.asked();
        let file = open(path)?;
        if let Some(owner) = owner {
            std::os::unix::fs::fchown(&file, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            reopen,
            opened_at,
            is_failing: false,
        })
    }

    /// Where the file cannot be opened the old one is kept: lines in the wrong place are better than none.
    fn open_anew_if_asked(&mut self) {
        let asked = self.reopen.asked();
        if asked == self.opened_at {
            return;
        }
        self.opened_at = asked;
        match open(&self.path) {
            Ok(file) => self.file = file,
            Err(error) => tracing::error!(path = %self.path.display(), %error, "cannot open the log file anew"),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    /// Whole lines: a file is changed only in between.
    fn write_all(&mut self, lines: &[u8]) -> io::Result<()> {
        self.open_anew_if_asked();
        let written = self.file.write_all(lines);
        match &written {
            Err(error) if !self.is_failing => {
                tracing::error!(path = %self.path.display(), %error, "cannot write to the log file");
            }
            _ => {}
        }
        self.is_failing = written.is_err();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_made_anew_when_asked_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, moved) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
        let reopen = Reopen::default();
        let mut file = LogFile::open(&path, reopen.clone(), None).expect("the folder is ours");
        file.write_all(b"1\n").expect("room");
        fs::rename(&path, &moved).expect("the folder is ours");
        file.write_all(b"2\n").expect("room");
        reopen.ask();
        file.write_all(b"3\n").expect("room");
        file.write_all(b"4\n").expect("room");
        let read = |path| fs::read_to_string(path).expect("it is there");
        assert_eq!((read(&moved), read(&path)), ("1\n2\n".to_owned(), "3\n4\n".to_owned()));
    }

    #[test]
    fn the_old_file_goes_on_where_no_new_one_can_be_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (inner, moved) = (folder.path().join("logs"), folder.path().join("moved"));
        fs::create_dir(&inner).expect("the folder is ours");
        let reopen = Reopen::default();
        let mut file = LogFile::open(&inner.join("a.log"), reopen.clone(), None).expect("the folder is ours");
        fs::rename(&inner, &moved).expect("the folder is ours");
        reopen.ask();
        file.write_all(b"kept\n").expect("room");
        assert_eq!(fs::read_to_string(moved.join("a.log")).expect("it is there"), "kept\n");
    }
}
