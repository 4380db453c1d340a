//! The extension by which a php-cgi becomes a master of workers of our own (embed/).
//!
//! It is part of this program, and PHP opens it from memory: no file lies about, and no mount forbids to execute it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

include!(concat!(env!("OUT_DIR"), "/extensions.rs"));

/// Versions of PHP that there is an extension for, such as `8.2`.
pub fn versions() -> impl Iterator<Item = &'static str> {
    EXTENSIONS.iter().map(|(version, _)| *version)
}

/// The extension for this version, such as `8.2`, open in memory for as long as the process lives.
///
/// # Errors
/// There is none for this version; no descriptors, no memory.
pub(crate) fn open(version: &str) -> io::Result<BorrowedFd<'static>> {
    static OPENED: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    let place = EXTENSIONS.iter().position(|(known, _)| *known == version);
    let place =
        place.ok_or_else(|| io::Error::other(format!("no extension for PHP {version} is part of this haulier")))?;
    let opened = match OPENED.get() {
        Some(opened) => opened,
        None => {
            let opened = EXTENSIONS
                .iter()
                .map(|(_, content)| in_memory(content))
                .collect::<io::Result<_>>()?;
            OPENED.get_or_init(|| opened)
        }
    };
    Ok(opened[place].as_fd())
}

fn in_memory(content: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create("haulier-php", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(content)?;
    let memory = OwnedFd::from(file);
    fcntl_add_seals(
        &memory,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(memory)
}
