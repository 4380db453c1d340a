//! Tells whether workers of our own run in a PHP, by trying it.

use std::path::Path;

use haulier_php::embedded_versions;

/// The build of a PHP, as far as an extension must fit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PhpBuild {
    /// That of distributions.
    Usual,
    /// With threads (ZTS).
    Threads,
    /// With `--enable-debug`.
    Debug,
}

/// The reason why a PHP does not run workers of our own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoOwnWorkers {
    #[error("this haulier was built without the headers of any PHP; build it where php{version}-dev is installed")]
    BuiltWithout { version: String },
    #[error(
        "this haulier was built for PHP {}, and this PHP is {version}; install php{}-cgi, or build haulier where \
         php{version}-dev is installed",
        known.join(" and "),
        known.last().map_or("", String::as_str)
    )]
    OtherVersion { version: String, known: Vec<String> },
    #[error("this PHP is built with threads (ZTS); install the usual build without them, such as Debian's php-cgi")]
    Threads,
    #[error("this PHP is built for debugging; install the usual build, such as Debian's php-cgi")]
    Debug,
    #[error("this PHP does not load the extension: {why}")]
    NotLoaded { why: String },
}

/// Version of the extension that runs in this PHP, such as `8.2`. `ini` and `env` are those of the pool.
///
/// # Errors
/// There is none for this PHP, or PHP does not load it.
pub(crate) fn find(
    php: &Path,
    version: &str,
    build: PhpBuild,
    ini: &[(String, String)],
    env: &[(String, String)],
) -> Result<String, NoOwnWorkers> {
    let version = minor(version);
    let known = check(&version, build, &embedded_versions().collect::<Vec<_>>())?;
    haulier_php::try_embedded(php, known, ini, env).map_err(|why| NoOwnWorkers::NotLoaded { why })?;
    Ok(version)
}

/// The version that fits, of those that this program was built for.
fn check<'k>(version: &str, build: PhpBuild, known: &[&'k str]) -> Result<&'k str, NoOwnWorkers> {
    let version = version.to_owned();
    match build {
        _ if known.is_empty() => Err(NoOwnWorkers::BuiltWithout { version }),
        PhpBuild::Threads => Err(NoOwnWorkers::Threads),
        PhpBuild::Debug => Err(NoOwnWorkers::Debug),
        PhpBuild::Usual => known.iter().find(|known| **known == version).copied().ok_or_else(|| {
            let known = known.iter().map(|&known| known.to_owned()).collect();
            NoOwnWorkers::OtherVersion { version, known }
        }),
    }
}

/// `8.2` of `8.2.36`.
fn minor(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_php_that_does_not_fit_is_told_apart_and_the_package_is_named() {
        let why = |version: &str, build, known: &[&str]| {
            let refused = check(version, build, known).expect_err("it does not fit");
            refused.to_string()
        };
        let other = why("8.4", PhpBuild::Usual, &["8.2"]);
        assert!(
            other.contains("php8.2-cgi") && other.contains("php8.4-dev"),
            "both ways out: {other}"
        );
        let between = why("8.3", PhpBuild::Usual, &["8.2", "8.4"]);
        assert!(
            between.contains("PHP 8.2 and 8.4, ") && between.contains("php8.4-cgi"),
            "{between}"
        );
        assert!(why("8.4", PhpBuild::Usual, &[]).contains("php8.4-dev"));
        assert!(why("8.2", PhpBuild::Threads, &["8.2"]).contains("ZTS"));
        assert!(why("8.2", PhpBuild::Debug, &["8.2"]).contains("debugging"));
        assert_eq!(check("8.2", PhpBuild::Usual, &["8.2", "8.4"]), Ok("8.2"));
        assert_eq!(minor("8.2.36"), "8.2");
    }
}
