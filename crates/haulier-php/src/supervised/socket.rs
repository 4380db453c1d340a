//! Listening sockets for php-cgi, in a private directory.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::StartError;

/// Backlog of the socket. There are no more connections than workers, unless some are stuck.
const BACKLOG: i32 = 1024;

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    pub(super) path: PathBuf,
}

impl Socket {
    /// Binds a new socket for this pool.
    ///
    /// # Errors
    /// The directory or the socket in it cannot be used.
    pub(super) fn bind(directory: &Path, pool: &str) -> Result<Self, StartError> {
        private_directory(directory).map_err(|source| StartError::SocketDir {
            path: directory.to_owned(),
            source,
        })?;
        let path = directory.join(file_name(pool));
        let listening = UnixListener::bind(&path).and_then(|listener| {
            rustix::net::listen(&listener, BACKLOG)?; // again: the standard library asks for less
            Ok(listener)
        });
        match listening {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(StartError::Listen { path, source }),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // may be gone with its directory
    }
}

/// Creates the directory, or makes an existing one of ours private: any process that can connect to PHP can run any
/// file by it.
fn private_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = std::fs::metadata(directory)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        ));
    }
    if found.mode() & 0o777 != 0o700 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A new file name for each start: during a reload two pools have the same name, and a killed process leaves its file.
fn file_name(pool: &str) -> String {
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            letter
        } else {
            '_'
        }
    };
    let pool: String = pool.chars().take(32).map(plain).collect();
    format!(
        "{pool}.{}.{}.sock",
        std::process::id(),
        STARTS.fetch_add(1, Ordering::Relaxed)
    )
}
