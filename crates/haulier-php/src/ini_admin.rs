//! Settings of PHP that no script can change, for php-cgi, which has no `php_admin_value`.
//!
//! A `[PATH=/x]` section of an ini file holds for scripts below that directory, and neither `ini_set` nor a `.user.ini`
//! changes what it sets. PHP looks such sections up for every directory above a script except the root itself, so there
//! is one for each directory that stands in the root.
//!
//! The directory lies in a private one that PHP's user cannot enter, so PHP gets it as an open descriptor.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A directory with one ini file, removed with the value.
#[derive(Debug)]
pub(crate) struct AdminIni {
    directory: PathBuf,
    opened: OwnedFd,
}

impl AdminIni {
    /// Writes the file for these settings into a new directory.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn write(directory: PathBuf, settings: &[(String, String)]) -> io::Result<Self> {
        fs::create_dir(&directory)?;
        let opened = fs::File::open(&directory)?.into();
        let made = Self { directory, opened };
        let file = made.directory.join("admin.ini");
        fs::write(&file, sections(&top_directories(), settings))?;
        // PHP reads it as another user.
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        fs::set_permissions(&made.directory, Permissions::from_mode(0o755))?;
        Ok(made)
    }

    /// The open directory; a process that inherits it has it at [`path`](Self::path).
    pub(crate) fn opened(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.opened.as_raw_fd())
    }
}

impl Drop for AdminIni {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory); // may be gone with the directory above it
    }
}

fn top_directories() -> Vec<String> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.contains([']', '\n']))
        .collect();
    names.sort();
    names
}

fn sections(directories: &[String], settings: &[(String, String)]) -> String {
    let lines: String = settings
        .iter()
        .map(|(name, value)| format!("{name} = {}\n", quoted(value)))
        .collect();
    directories
        .iter()
        .map(|directory| format!("[PATH=/{directory}]\n{lines}"))
        .collect()
}

/// In PHP's ini syntax, where a backslash stands in front of a quote or another backslash and `${` begins a variable.
fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\' | '$') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_of_the_root_has_its_section() {
        let directories = ["home".to_owned(), "srv".to_owned()];
        let settings = [
            ("memory_limit".to_owned(), "64M".to_owned()),
            ("x".to_owned(), "a\"$b\\".to_owned()),
        ];
        let lines = "memory_limit = \"64M\"\nx = \"a\\\"\\$b\\\\\"\n";
        assert_eq!(
            sections(&directories, &settings),
            format!("[PATH=/home]\n{lines}[PATH=/srv]\n{lines}")
        );
        assert!(top_directories().iter().any(|name| name == "usr"));
    }

    #[test]
    fn the_file_goes_with_its_owner() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let directory = place.path().join("ini");
        let written = AdminIni::write(directory.clone(), &[("a".into(), "1".into())]).expect("it can be written");
        assert!(
            fs::read_to_string(format!("{}/admin.ini", written.path()))
                .expect("it is there")
                .contains("a = \"1\"")
        );
        drop(written);
        assert!(!directory.exists());
    }
}
