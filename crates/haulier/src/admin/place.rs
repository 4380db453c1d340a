//! The usual places of control sockets, and the search for a running haulier.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Beginning and end of a socket's name; the port it serves is in between.
const PREFIX: &str = "haulier-";
const SUFFIX: &str = ".sock";
/// The directory that systemd made for this service (RuntimeDirectory=), or for the service that runs this command.
const OF_SERVICE: &str = "RUNTIME_DIRECTORY";

/// The socket for a server on this port: `/run/haulier/haulier-80.sock`. `None` if no directory can be used.
pub(crate) fn place_for(port: u16) -> Option<PathBuf> {
    let name = format!("{PREFIX}{port}{SUFFIX}");
    directories()
        .into_iter()
        .find(|directory| is_usable(directory))
        .map(|directory| directory.join(name))
}

/// The directories in the order they are tried: those that systemd or the session made, then one of our own.
fn directories() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    [
        given(OF_SERVICE),
        Some(PathBuf::from("/run/haulier")),
        given("XDG_RUNTIME_DIR"),
    ]
    .into_iter()
    .flatten()
    .chain([std::env::temp_dir().join(format!("haulier-{user}"))])
    .collect()
}

/// A directory that the environment names.
fn given(name: &str) -> Option<PathBuf> {
    // systemd names several with colons between them.
    let value = std::env::var(name).ok()?;
    let first = value.split(':').next().map(PathBuf::from);
    first.filter(|path| path.is_absolute())
}

/// Tells whether this process may create a socket there. Creates the directory for temporary files, unless another user
/// has taken its name in the shared folder.
fn is_usable(directory: &Path) -> bool {
    if directory.starts_with(std::env::temp_dir()) {
        let _ = DirBuilder::new().mode(0o700).create(directory); // it may be there already
        let ours = rustix::process::geteuid().as_raw();
        return fs::symlink_metadata(directory)
            .is_ok_and(|found| found.is_dir() && found.uid() == ours && found.mode() & 0o077 == 0);
    }
    directory.is_dir() && rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The control sockets in the usual places that belong to our account or root. Run by a service manager (ExecReload=),
/// only that of its service.
pub(crate) fn find_running() -> Vec<PathBuf> {
    let of_service = given(OF_SERVICE).map(|directory| sockets_in(&directory));
    if let Some(found) = of_service.filter(|found| !found.is_empty()) {
        return found;
    }
    let mut found: Vec<PathBuf> = directories()
        .iter()
        .flat_map(|directory| sockets_in(directory))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| is_control_socket(path))
        .collect()
}

fn is_control_socket(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ours = rustix::process::geteuid().as_raw();
    let fits = name.strip_prefix(PREFIX).is_some_and(|rest| rest.ends_with(SUFFIX));
    // A socket that another user put into a shared folder does not count.
    fits && fs::symlink_metadata(path).is_ok_and(|found| found.uid() == ours || found.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_on_two_ports_have_two_places() {
        let (first, second) = (place_for(8080).expect("a place"), place_for(8081).expect("a place"));
        assert_ne!(first, second);
        assert_eq!(first.parent(), second.parent());
        assert!(first.ends_with("haulier-8080.sock"));
    }

    #[test]
    fn only_files_named_like_one_are_taken_for_control_sockets() {
        let place = tempfile::tempdir().expect("a directory");
        for (name, fits) in [("haulier-80.sock", true), ("haulier-80", false), ("other.sock", false)] {
            let path = place.path().join(name);
            fs::write(&path, "").expect("the directory is ours");
            assert_eq!(is_control_socket(&path), fits, "{name}");
        }
    }
}
