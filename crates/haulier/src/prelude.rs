//! The PHP file that runs before every script of our own pools: it defines `zend_send_file`, related functions, and
//! `fastcgi_finish_request`.
//!
//! With opcache it costs a request 2 µs: 40 µs of PHP instead of 38 for a script of one header (php-cgi 8.2, quiet
//! machine, within the spread of the rounds). Preloading the functions would spare no more than that, and would need
//! opcache in every pool and a start of PHP for every change.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::leftovers;

const TEXT: &str = include_str!("prelude.php");
/// The part with the marker of this server.
const FINISH: &str = include_str!("finish.php");
/// Placeholder for the line by which a script says that its answer is complete.
const MARKER: &str = "MARKER";
/// The expression for the token. It tells a script that haulier sends the file it names, and tells haulier that the prelude
/// named it.
const ASKED: &str = "getenv('HAULIER_SEND')";

/// The setting of PHP that names the file.
pub(crate) const SETTING: &str = "auto_prepend_file";

/// Age of the file's time stamp: more than any `opcache.file_update_protection`.
const SETTLED: Duration = Duration::from_secs(3600);

/// The account that has to read the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The account that runs haulier.
    Ourselves,
    /// Any other account.
    Anybody,
}

/// The kind of sites that a pool serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sites {
    /// All may send files, so the token is written into the file: getenv() would take 1.5 µs of the 190 of a download.
    Sending,
    Any,
}

/// The file in a directory of its own, which every account may read. Removed with the value.
#[derive(Debug)]
pub(crate) struct Prelude {
    directory: PathBuf,
    /// The directory, locked: systemd-tmpfiles does not remove a locked directory, however old it is.
    _lock: File,
}

impl Prelude {
    /// Writes it with the marker of [`haulier_php::finish_marker`], for [`Sites::Sending`] with the token. `bases` are tried
    /// in their order; those that the reader cannot enter are skipped.
    ///
    /// # Errors
    /// The file can be written in none of them.
    pub(crate) fn create(bases: impl Iterator<Item = PathBuf>, reader: Reader, token: &str) -> io::Result<Self> {
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "no directory that PHP could read");
        for base in bases.filter(|base| reader == Reader::Ourselves || may_be_entered(base)) {
            match Self::create_in(&base, token) {
                Ok(prelude) => return Ok(prelude),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn create_in(base: &Path, token: &str) -> io::Result<Self> {
        // In a shared folder another user may have taken the name.
        for attempt in 0..100 {
            let directory = base.join(format!("haulier-{}-prelude-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o755).create(&directory) {
                Ok(()) => return Self::fill(directory, token),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(directory: PathBuf, token: &str) -> io::Result<Self> {
        // Independent of the umask: PHP's account must be able to read it.
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
        let lock = leftovers::hold(&directory)?;
        let prelude = Self { directory, _lock: lock };
        let text = with_marker(haulier_php::finish_marker());
        write(&prelude.path(Sites::Any), &text)?;
        write(
            &prelude.path(Sites::Sending),
            &text.replace(ASKED, &format!("'{token}'")),
        )?;
        Ok(prelude)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, sites: Sites) -> PathBuf {
        self.directory.join(match sites {
            Sites::Sending => "sending.php",
            Sites::Any => "prelude.php",
        })
    }
}

/// Both parts as one file.
fn with_marker(marker: &str) -> String {
    let rest = TEXT.strip_prefix("<?php\n").expect("PHP begins so");
    FINISH.replace(MARKER, marker) + rest
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)?;
    fs::set_permissions(file, Permissions::from_mode(0o644))?;
    // opcache does not cache files changed within two seconds (opcache.file_update_protection): the first requests would
    // each compile it.
    File::open(file)?.set_modified(SystemTime::now() - SETTLED)
}

impl Drop for Prelude {
    fn drop(&mut self) {
        // A failure is harmless: the next start takes another name.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// True if every account may enter this directory and all above it.
fn may_be_entered(directory: &Path) -> bool {
    let Ok(real) = directory.canonicalize() else {
        return false;
    };
    real.ancestors()
        .all(|above| fs::metadata(above).is_ok_and(|found| found.mode() & 0o001 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_may_read_the_prelude_and_it_goes_with_its_owner() {
        let bases = [std::env::temp_dir()].into_iter();
        let prelude = Prelude::create(bases, Reader::Anybody, "0af7").expect("a shared folder");
        let paths = [Sites::Any, Sites::Sending].map(|sites| prelude.path(sites));
        let [any, sending] = paths.each_ref().map(|path| fs::read_to_string(path).expect("readable"));
        assert_eq!(any, with_marker(haulier_php::finish_marker()));
        assert!(any.contains("function zend_send_file") && any.contains("function fastcgi_finish_request"));
        assert!(
            sending.contains("$token = '0af7';") && !sending.contains("$token = getenv"),
            "{sending}"
        );
        for path in &paths {
            let found = fs::metadata(path).expect("there");
            assert_eq!(found.mode() & 0o777, 0o644);
            let age = found.modified().expect("known").elapsed().expect("in the past");
            assert!(
                age > Duration::from_secs(60),
                "opcache keeps it from the start: {age:?}"
            );
            assert!(may_be_entered(path.parent().expect("a directory")));
        }
        drop(prelude);
        assert!(paths.iter().all(|path| !path.exists()));
    }

    #[test]
    fn a_private_directory_is_no_place_for_what_php_reads() {
        let private = tempfile::tempdir().expect("a directory");
        fs::set_permissions(private.path(), Permissions::from_mode(0o700)).expect("it is ours");
        let create = |reader| Prelude::create([private.path().to_owned()].into_iter(), reader, "");
        assert!(create(Reader::Anybody).is_err());
        assert!(create(Reader::Ourselves).is_ok());
    }
}
