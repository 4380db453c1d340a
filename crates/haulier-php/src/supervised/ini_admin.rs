//! PHP settings that scripts cannot change, for php-cgi, which has no `php_admin_value`.
//!
//! A `[PATH=/x]` section of an ini file applies to scripts below that directory, and neither `ini_set` nor `.user.ini`
//! can change its settings. PHP looks up such sections for every directory above a script except the root itself, so
//! the file has one for each directory in the root.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::directory::OpenDirectory;

/// Writes the ini file of these settings into a new directory.
///
/// # Errors
/// The system error.
pub(crate) fn write(path: PathBuf, settings: &[(String, String)]) -> io::Result<OpenDirectory> {
    let directory = OpenDirectory::create(path)?;
    let file = format!("{}/admin.ini", directory.path());
    fs::write(&file, sections(&top_directories(), settings))?;
    // PHP reads it as another user.
    fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
    Ok(directory)
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

/// A value in PHP's ini syntax, which escapes quotes and backslashes by a backslash, and in which `${` begins a
/// variable.
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
        let written = write(directory.clone(), &[("a".into(), "1".into())]).expect("it can be written");
        assert!(
            fs::read_to_string(format!("{}/admin.ini", written.path()))
                .expect("it is there")
                .contains("a = \"1\"")
        );
        drop(written);
        assert!(!directory.exists());
    }
}
