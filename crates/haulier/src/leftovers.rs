//! Folders of killed processes, removed by the next start.
//!
//! A folder qualifies if its name is one of ours with the number of a dead process, and if it belongs to our account or
//! the future serving account. Its lock must be free, too: in another PID namespace the number may be a running haulier.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

const PREFIX: &str = "haulier-";
/// Optional part between the number of the process and that of the attempt.
const PRELUDE: &str = "prelude-";

/// Locks a folder that is in use.
///
/// # Errors
/// The folder cannot be locked.
pub(crate) fn hold(folder: &Path) -> std::io::Result<File> {
    let lock = File::open(folder)?;
    rustix::fs::flock(&lock, FlockOperation::LockShared)?;
    Ok(lock)
}

/// Removes the folders of dead processes of these accounts.
pub(crate) fn clear(places: impl Iterator<Item = PathBuf>, accounts: &[u32]) {
    for place in places {
        let entries = fs::read_dir(&place).into_iter().flatten().flatten();
        let named = entries.filter(|entry| process_of(&entry.file_name().to_string_lossy()).is_some_and(is_dead));
        for entry in named {
            let path = entry.path();
            if is_abandoned(&path, accounts) {
                match fs::remove_dir_all(&path) {
                    Ok(()) => tracing::debug!(path = %path.display(), "removed what a dead haulier left"),
                    Err(error) => tracing::debug!(path = %path.display(), %error, "a dead haulier left this"),
                }
            }
        }
    }
}

/// The process number in a name of ours: `haulier-812-0`, `haulier-812-prelude-0`.
fn process_of(name: &str) -> Option<i32> {
    let (process, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let attempt = rest.strip_prefix(PRELUDE).unwrap_or(rest);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(process) || !is_number(attempt) {
        return None;
    }
    process.parse().ok()
}

fn is_dead(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// Tells whether this is an unlocked folder of one of these accounts, and not a link.
fn is_abandoned(path: &Path, accounts: &[u32]) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(path, flags, Mode::empty()) else {
        return false;
    };
    let folder = File::from(folder);
    folder.metadata().is_ok_and(|found| accounts.contains(&found.uid()))
        && rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn ours() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// The number of a process that has ended.
    fn dead() -> u32 {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        child.wait().expect("it ends");
        child.id()
    }

    #[test]
    fn only_folders_of_dead_processes_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let (dead, alive) = (dead(), std::process::id());
        let make = |name: String| {
            let path = place.path().join(name);
            fs::create_dir(&path).expect("the directory is ours");
            fs::write(path.join("php.sock"), "").expect("the directory is ours");
            path
        };
        let gone = [format!("haulier-{dead}-0"), format!("haulier-{dead}-prelude-3")].map(make);
        let stays = [
            format!("haulier-{alive}-0"),
            format!("haulier-{dead}-0x"),
            format!("haulier-{dead}"),
            format!("haulier-variants-{dead}"),
            format!("other-{dead}-0"),
        ]
        .map(make);
        let held = make(format!("haulier-{dead}-7"));
        let _lock = hold(&held).expect("it is ours");
        clear([place.path().to_owned()].into_iter(), &[ours()]);
        assert!(gone.iter().all(|path| !path.exists()), "{gone:?}");
        assert!(stays.iter().chain([&held]).all(|path| path.exists()), "{stays:?}");
    }

    #[test]
    fn links_and_folders_of_others_stay() {
        let place = tempfile::tempdir().expect("a directory");
        let precious = place.path().join("precious");
        fs::create_dir(&precious).expect("the directory is ours");
        fs::write(precious.join("file"), "").expect("the directory is ours");
        let link = place.path().join(format!("haulier-{}-0", dead()));
        symlink(&precious, &link).expect("the directory is ours");
        clear([place.path().to_owned()].into_iter(), &[ours()]);
        assert!(link.is_symlink() && precious.join("file").exists());
        fs::remove_file(&link).expect("it is ours");
        fs::create_dir(&link).expect("the directory is ours");
        clear([place.path().to_owned()].into_iter(), &[ours().wrapping_add(1)]);
        assert!(link.exists(), "it is not of that account");
    }
}
