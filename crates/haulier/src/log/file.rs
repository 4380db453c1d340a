//! A log file that can be reopened after a rotation has moved it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haulier_php::User;
use rustix::fs::OFlags;

use crate::account;

/// Has every file that was opened with it reopened before its next line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reopen(Arc<AtomicU64>);

impl Reopen {
    /// Has every file reopened.
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
    /// The count of `reopen` when the file was opened.
    opened_at: u64,
    /// The last write failed, and was logged.
    is_failing: bool,
    /// The last write ended a line.
    is_between_lines: bool,
    /// The rest of a line is skipped: the file with its beginning is closed.
    skips_line: bool,
}

impl LogFile {
    /// Opens or creates the file. A new file is readable by its owner and group only, and is given to `owner`, which
    /// must be able to open it again; an existing file keeps its owner.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or not be given away, or is a link of `owner` that root would follow.
    pub(crate) fn open(path: &Path, reopen: Reopen, owner: Option<&User>) -> io::Result<Self> {
        let opened_at = reopen.asked();
        let file = match owner {
            Some(owner) => open_for(owner, path)?,
            None => open(path)?,
        };
        let mut opened = Self {
            path: path.to_owned(),
            file,
            reopen,
            opened_at,
            is_failing: false,
            is_between_lines: true,
            skips_line: false,
        };
        opened.end_last_line();
        Ok(opened)
    }

    /// Ends the half line that a full disk left to an earlier process.
    fn end_last_line(&mut self) {
        if is_cut(&self.path).unwrap_or(false) {
            // A disk that is still full takes this byte with the first line, or neither.
            let _ = self.file.write(b"\n");
        }
    }

    /// Opens the file anew after a request. If that fails the old file stays in use: lines in the wrong place are better
    /// than none.
    fn open_anew_if_asked(&mut self) {
        let asked = self.reopen.asked();
        if asked == self.opened_at {
            return;
        }
        self.opened_at = asked;
        match open(&self.path) {
            Ok(file) => {
                self.file = file;
                self.skips_line = !self.is_between_lines;
            }
            Err(error) => tracing::error!(path = %self.path.display(), %error, "cannot open the log file anew"),
        }
    }
}

/// Tells whether a file ends within a line.
fn is_cut(path: &Path) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, found.len() - 1)?;
    Ok(last != *b"\n")
}

fn open(path: &Path) -> io::Result<File> {
    appending().create(true).mode(0o640).open(path)
}

/// Opens the file as root for the account that will serve. The directory often belongs to that account, which may have
/// left anything there: only a new file is given away, and no link of that account is followed. Links of others, such as
/// /dev/stdout, are followed.
fn open_for(owner: &User, path: &Path) -> io::Result<File> {
    match appending().create_new(true).mode(0o640).open(path) {
        Ok(made) => {
            fchown(&made, Some(owner.uid), Some(owner.gid))?;
            return Ok(made);
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_symlink() {
        // It may have become a link since.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        return appending().custom_flags(no_link).open(path);
    }
    if account::is_root() && found.uid() != 0 && found.uid() == owner.uid {
        let reason = format!("a link of `{}`, which root does not follow", owner.name);
        return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    match appending().open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(Path::new(""));
            open_for(owner, &above.join(fs::read_link(path)?))
        }
        opened => opened,
    }
}

fn appending() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true);
    options
}

impl Write for LogFile {
    /// Writes lines. The rest of a line that began in a file that is closed now is skipped.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.open_anew_if_asked();
        if self.skips_line {
            let end = lines.iter().position(|&byte| byte == b'\n');
            self.skips_line = end.is_none();
            self.is_between_lines = end.is_some();
            return Ok(end.map_or(lines.len(), |at| at + 1));
        }
        let written = self.file.write(lines);
        match &written {
            Ok(0) => {}
            Ok(count) => self.is_between_lines = lines[count - 1] == b'\n',
            Err(error) if error.kind() == ErrorKind::Interrupted => return written,
            Err(error) if !self.is_failing => {
                tracing::error!(path = %self.path.display(), %error, "cannot write to the log file");
            }
            Err(_) => {}
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
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn user(uid: u32) -> User {
        User {
            name: "somebody".to_owned(),
            uid,
            gid: uid,
        }
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").uid()
    }

    fn is_root() -> bool {
        let is_root = account::is_root();
        if !is_root {
            eprintln!("SKIPPED: only root gives files away");
        }
        is_root
    }

    #[test]
    fn only_a_file_that_is_made_here_is_given_away() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("there.log"), "before\n").expect("the folder is ours");
        fs::write(path("target.log"), "before\n").expect("the folder is ours");
        symlink("target.log", path("link.log")).expect("a link");
        symlink("made.log", path("nowhere.log")).expect("a link");
        for name in ["new.log", "there.log", "link.log", "nowhere.log"] {
            let file = LogFile::open(&path(name), Reopen::default(), Some(&user(12_345)));
            file.and_then(|mut file| file.write_all(b"line\n")).expect(name);
        }
        for made in ["new.log", "made.log"] {
            assert_eq!(owner(&path(made)), 12_345, "{made}");
            assert_eq!(fs::read_to_string(path(made)).expect(made), "line\n");
        }
        for there in ["there.log", "target.log"] {
            assert_eq!(owner(&path(there)), 0, "{there}");
            assert_eq!(fs::read_to_string(path(there)).expect(there), "before\nline\n");
        }
        assert_eq!((owner(&path("link.log")), owner(&path("nowhere.log"))), (0, 0));
    }

    #[test]
    fn root_follows_no_link_of_the_account_that_will_serve() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (link, target) = (folder.path().join("link.log"), folder.path().join("target"));
        fs::write(&target, "before\n").expect("the folder is ours");
        symlink(&target, &link).expect("a link");
        lchown(&link, Some(12_345), Some(12_345)).expect("root may");
        let opened = |user: &User| LogFile::open(&link, Reopen::default(), Some(user)).map(drop);
        let refused = opened(&user(12_345)).expect_err("it may lead anywhere");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        fs::remove_file(&target).expect("the folder is ours");
        opened(&user(12_345)).expect_err("it leads nowhere");
        assert!(!target.exists(), "nothing is made there");
        opened(&user(12_346)).expect("somebody else's link is none of this account");
        assert_eq!(owner(&target), 12_346);
    }

    #[test]
    fn an_account_that_serves_as_itself_may_log_through_its_links() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (link, target) = (folder.path().join("link.log"), folder.path().join("target"));
        symlink(&target, &link).expect("a link");
        let ourselves = User {
            name: "ourselves".to_owned(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        LogFile::open(&link, Reopen::default(), Some(&ourselves)).expect("root's, or our own");
        assert!(target.exists());
    }

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
    fn the_half_line_of_an_earlier_process_is_ended() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.log");
        fs::write(&path, "whole\nha").expect("the folder is ours");
        let open = || LogFile::open(&path, Reopen::default(), None).expect("the folder is ours");
        open().write_all(b"next\n").expect("room");
        open().write_all(b"last\n").expect("room");
        let text = fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, "whole\nha\nnext\nlast\n");
    }

    #[test]
    fn the_rest_of_a_line_does_not_begin_the_next_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.log");
        let reopen = Reopen::default();
        let mut file = LogFile::open(&path, reopen.clone(), None).expect("the folder is ours");
        file.write_all(b"whole\nha").expect("room");
        fs::rename(&path, folder.path().join("a.log.1")).expect("the folder is ours");
        reopen.ask();
        file.write_all(b"l").expect("room");
        file.write_all(b"f\nnext\n").expect("room");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "next\n");
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
