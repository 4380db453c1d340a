//! The extension by which a php-cgi becomes a master of workers of our own (embed/).
//!
//! It is part of this program, and PHP opens it from memory: no file lies about, and no mount forbids to execute it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
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

/// Lets this PHP load the extension for `version`, and ends it. `ini` and `env` are the settings and variables of its pool.
///
/// # Errors
/// PHP's own words, or those of the system, if it does not load it.
pub fn try_embedded(
    php: &Path,
    version: &str,
    ini: &[(String, String)],
    env: &[(String, String)],
) -> Result<(), String> {
    let extension = open(version).map_err(|error| error.to_string())?;
    let extension = extension.try_clone_to_owned().map_err(|error| error.to_string())?;
    let settings = ini
        .iter()
        .flat_map(|(name, value)| ["-d".to_owned(), format!("{name}={value}")]);
    let output = Command::new(php)
        .args(["-q", "-d", "extension=/proc/self/fd/0"])
        .args(settings)
        .args([
            "-d",
            "display_errors=0",
            "-d",
            "display_startup_errors=1",
            "-d",
            "html_errors=0",
        ])
        .args(["-d", "log_errors=1", "-d", "error_log=", "-m"])
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(extension))
        .output()
        .map_err(|error| error.to_string())?;
    if String::from_utf8_lossy(&output.stdout)
        .lines()
        .any(|module| module == "haulier")
    {
        return Ok(());
    }
    Err(complaint(&String::from_utf8_lossy(&output.stderr)))
}

/// Lines of a complaint of PHP about a module: the first names it, the others compare versions.
const COMPLAINT: usize = 4;

/// What PHP's messages say about the extension, in one line.
fn complaint(stderr: &str) -> String {
    let names = |line: &&str| line.contains("haulier") || line.contains("/proc/self/fd/0");
    let lines = stderr.lines().skip_while(|line| !names(line)).take(COMPLAINT);
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    if words.is_empty() {
        "it is not among its modules".to_owned()
    } else {
        words.join(" ")
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_php_that_the_extension_was_built_for_loads_it_and_another_program_does_not() {
        let php = |version: &str| format!("/usr/bin/php-cgi{version}");
        let version = versions().find(|version| Path::new(&php(version)).exists());
        let version = version.expect("the headers of the PHP that is here are installed for the tests");
        assert_eq!(try_embedded(Path::new(&php(version)), version, &[], &[]), Ok(()));
        let other = try_embedded(Path::new("/bin/true"), version, &[], &[]);
        assert_eq!(other, Err("it is not among its modules".to_owned()));
    }

    #[test]
    fn the_words_of_php_about_the_extension_are_found_among_others() {
        let stderr = "PHP Warning: Module \"xdebug\" is already loaded\nPHP Warning:  haulier: Unable to initialize module\n\
            Module compiled with module API=20220829\nPHP    compiled with module API=20240924\nThese options need to match\n\nmore";
        assert_eq!(
            complaint(stderr),
            "PHP Warning: haulier: Unable to initialize module Module compiled with module API=20220829 PHP compiled with \
             module API=20240924 These options need to match"
        );
    }
}
