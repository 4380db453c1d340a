//! Finds a php-cgi on this machine and asks for its version and settings.

use std::env;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::own_workers::{self, NoOwnWorkers, PhpBuild};

/// Newest first: the default is the newest.
const VERSIONS: [&str; 7] = ["8.5", "8.4", "8.3", "8.2", "8.1", "8.0", "7.4"];

/// Variables of a pool's environment that name the places of php.ini.
pub(crate) const INI_PLACES: [&str; 2] = ["PHPRC", "PHP_INI_SCAN_DIR"];

/// A script that prints version and settings, one value a line.
const QUESTION: &[u8] =
    b"<?php echo implode(\"\\n\", [PHP_SAPI, PHP_VERSION, PHP_ZTS ? 'threads' : (PHP_DEBUG ? 'debug' : ''), ini_get('memory_limit'), ini_get('post_max_size'), \
    extension_loaded('Zend OPcache') && ini_get('opcache.enable') ? 'on' : 'off', (string) php_ini_loaded_file(), \
    ini_get('open_basedir'), (function () { $prepended = ''; \
    foreach (preg_split('/,\\s*/', php_ini_loaded_file() . ',' . php_ini_scanned_files()) as $file) { \
    $read = $file === '' ? [] : (array) @parse_ini_file($file); \
    $prepended = $read['auto_prepend_file'] ?? $prepended; } return $prepended; })(), \
    md5(implode(',', array_map(function ($file) { return $file . '|' . @filemtime($file) . '|' . @filesize($file); }, \
    preg_split('/[,\\s]+/', php_ini_loaded_file() . ',' . php_ini_scanned_files()))))]);";

/// A php-cgi that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhpCgi {
    /// The program.
    pub(crate) path: PathBuf,
    /// Such as `8.2.36`.
    pub(crate) version: String,
    /// Version of haulier's own workers that run in it, or why none do.
    pub(crate) own_workers: Result<String, NoOwnWorkers>,
    /// `memory_limit` in bytes; `None` is no limit.
    pub(crate) memory_limit: Option<u64>,
    /// `post_max_size` in bytes; `None` is no limit.
    pub(crate) post_max_size: Option<u64>,
    /// True if opcache is loaded and enabled.
    pub(crate) opcache: bool,
    /// The php.ini it read.
    pub(crate) ini_file: Option<PathBuf>,
    /// `open_basedir`, if it is set.
    pub(crate) open_basedir: Option<String>,
    /// The `auto_prepend_file` of php.ini and the files beside it.
    pub(crate) auto_prepend_file: Option<String>,
    /// A fingerprint of its ini files and of the program.
    pub(crate) state: String,
}

/// No php-cgi that can be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PhpError {
    /// None was found.
    #[error("there is no php-cgi (nor php-cgi8.x) on this machine")]
    Missing,
    /// The program could not be started, or did not answer as php-cgi does.
    #[error("{} is no php-cgi: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
}

impl PhpError {
    /// Advice, line by line.
    pub(crate) fn advice(&self) -> Vec<String> {
        if let Self::Unusable { .. } = self {
            return vec!["`php = \"…\"` and --php name a php-cgi program; `php` and `php-fpm` are others".to_owned()];
        }
        let mut lines = vec![
            "looked for: php-cgi, php-cgi8.5 … php-cgi7.4 in PATH, /usr/bin and /usr/sbin".to_owned(),
            "Debian, Ubuntu:  apt install php-cgi        Fedora:  dnf install php-cli".to_owned(),
        ];
        if let Some(version) = cli_version() {
            lines.push(format!(
                "(`php` is here, {version}, but that build cannot speak FastCGI)"
            ));
        }
        lines
    }
}

/// Finds php-cgi: `wanted` itself, or the best one in PATH. It is asked with `ini` and with the [`INI_PLACES`] in `env`
/// applied.
///
/// # Errors
/// There is none, or it does not answer as php-cgi does.
pub(crate) fn find(
    wanted: Option<&Path>,
    ini: &[(String, String)],
    env: &[(String, String)],
) -> Result<PhpCgi, PhpError> {
    if let Some(path) = wanted {
        return ask(path, ini, env);
    }
    let mut candidates = candidates().peekable();
    if candidates.peek().is_none() {
        return Err(PhpError::Missing);
    }
    let mut first_error = None;
    for path in candidates {
        match ask(&path, ini, env) {
            Ok(php) => return Ok(php),
            Err(error) => first_error.get_or_insert(error),
        };
    }
    Err(first_error.unwrap_or(PhpError::Missing))
}

/// `php-cgi` first: on Debian it is the version the administrator chose.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let names = ["php-cgi".to_owned()]
        .into_iter()
        .chain(VERSIONS.iter().map(|version| format!("php-cgi{version}")));
    names.filter_map(|name| in_path(&name))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

fn ask(path: &Path, ini: &[(String, String)], env: &[(String, String)]) -> Result<PhpCgi, PhpError> {
    let unusable = |why: String| PhpError::Unusable {
        path: path.to_owned(),
        why,
    };
    let output = run(path, ini, env).map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8_lossy(&output);
    let mut lines = text.lines();
    let sapi = lines.next().unwrap_or_default();
    if sapi != "cgi-fcgi" {
        let what = if sapi.is_empty() {
            "it prints nothing".to_owned()
        } else {
            format!("it calls itself \"{sapi}\"")
        };
        return Err(unusable(what));
    }
    let mut next = || lines.next().unwrap_or_default();
    let version = next().to_owned();
    let build = match next() {
        "threads" => PhpBuild::Threads,
        "debug" => PhpBuild::Debug,
        _ => PhpBuild::Usual,
    };
    let places = ini_places(env).cloned().collect::<Vec<_>>();
    Ok(PhpCgi {
        path: path.to_owned(),
        own_workers: own_workers::find(path, &version, build, ini, &places),
        version,
        memory_limit: size(next()),
        post_max_size: size(next()),
        opcache: next() == "on",
        ini_file: Some(next()).filter(|file| !file.is_empty()).map(PathBuf::from),
        open_basedir: Some(next()).filter(|list| !list.is_empty()).map(str::to_owned),
        auto_prepend_file: Some(next()).filter(|file| !file.is_empty()).map(str::to_owned),
        state: format!("{} {}", next(), state_of(path)),
    })
}

/// PHP's own notation of sizes: `8M`, `128K`, `1G`, or plain bytes; `-1` and `0` are no limit.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1u64 << 10),
        'm' | 'M' => (&text[..text.len() - 1], 1 << 20),
        'g' | 'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: i64 = digits.trim().parse().ok()?;
    u64::try_from(number)
        .ok()
        .filter(|number| *number > 0)?
        .checked_mul(factor)
}

/// The identity of a program. A package update often keeps its size, but not its time and inode.
fn state_of(program: &Path) -> String {
    std::fs::metadata(program).map_or_else(
        |_| String::new(),
        |found| format!("{} {} {}", found.ino(), found.ctime(), found.size()),
    )
}

/// The variables that name the places of php.ini.
fn ini_places(env: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    env.iter().filter(|(name, _)| INI_PLACES.contains(&name.as_str()))
}

/// Runs the script. The environment is nearly empty: a CGI variable would make php-cgi answer a request instead.
fn run(path: &Path, ini: &[(String, String)], env: &[(String, String)]) -> std::io::Result<Vec<u8>> {
    let mut command = Command::new(path);
    command
        .arg("-q")
        .env_clear()
        .envs(ini_places(env).cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    for (name, value) in ini {
        command.arg("-d").arg(format!("{name}={value}"));
    }
    // An error in the user's own prepended file must not spoil the answer.
    command.args([
        "-d",
        "auto_prepend_file=",
        "-d",
        "display_errors=0",
        "-d",
        "display_startup_errors=0",
    ]);
    let mut child = command.spawn()?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(QUESTION));
    let output = child.wait_with_output()?;
    written?;
    Ok(output.stdout)
}

/// The version of the `php` command line, if there is one.
fn cli_version() -> Option<String> {
    let output = Command::new(in_path("php")?)
        .arg("-v")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.strip_prefix("PHP ")?.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_cgi_says_what_it_is_and_obeys_ini() {
        let php = find(None, &[("memory_limit".to_owned(), "77M".to_owned())], &[])
            .expect("php-cgi is installed for the tests");
        assert!(php.version.split('.').count() >= 3, "{php:?}");
        assert_eq!(php.memory_limit, Some(77 << 20));
    }

    #[test]
    fn php_ini_is_read_where_the_environment_says() {
        let ask = |text: &str| {
            let place = tempfile::tempdir().expect("a directory");
            std::fs::write(place.path().join("php.ini"), text).expect("it is ours");
            let env = [("PHPRC".to_owned(), place.path().display().to_string())];
            find(None, &[], &env).expect("php-cgi is installed for the tests")
        };
        let php = ask("auto_prepend_file = \"/srv/first.php\"\nmemory_limit = 66M\n");
        assert_eq!(php.auto_prepend_file.as_deref(), Some("/srv/first.php"));
        assert_eq!((php.memory_limit, php.open_basedir), (Some(66 << 20), None));
        let php = ask("auto_prepend_file = none\nopen_basedir = /srv\n");
        assert_eq!(php.open_basedir.as_deref(), Some("/srv"));
        assert_eq!(php.auto_prepend_file, None);
    }

    #[test]
    fn sizes_of_php_have_one_letter_and_no_limit_is_none() {
        assert_eq!(size("8M"), Some(8 << 20));
        assert_eq!(size("1g"), Some(1 << 30));
        assert_eq!(size("-1"), None);
        assert_eq!(size("0"), None);
    }

    #[test]
    fn a_machine_without_php_cgi_is_told_what_to_install() {
        let advice = PhpError::Missing.advice().join("\n");
        assert!(advice.starts_with("looked for: php-cgi"), "{advice}");
        assert!(
            advice.contains("apt install php-cgi") && advice.contains("dnf install php-cli"),
            "{advice}"
        );
    }

    #[test]
    fn a_program_that_is_no_php_cgi_is_named() {
        let error = find(Some(Path::new("/bin/true")), &[], &[]).expect_err("true is no php-cgi");
        assert!(error.to_string().contains("/bin/true is no php-cgi"), "{error}");
        let error = find(Some(Path::new("/no/such/program")), &[], &[]).expect_err("nothing is there");
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
