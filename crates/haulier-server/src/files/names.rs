//! Rules on the name of a path alone: hidden files, and scripts.
//!
//! A name that any PHP installation could take for a script is run here or not sent at all: its source never leaves.

use super::settings::ScriptSettings;
use super::site_files::SiteFiles;
use crate::pattern::glob::Glob;

/// Suffixes of backups left by editors and packagers; the original may be a script or a configuration.
const BACKUPS: [&[u8]; 6] = [b"~", b".bak", b".swp", b".orig", b".save", b".swo"];

/// Files that list a site's components with their versions.
const MANIFESTS: [&[u8]; 4] = [
    b"composer.json",
    b"composer.lock",
    b"package.json",
    b"package-lock.json",
];

/// Extensions of source code in PHP and its distributions, whatever the site's settings.
const SOURCES: [&[u8]; 12] = [
    b".php", b".phps", b".phtml", b".pht", b".phar", b".inc", b".php3", b".php4", b".php5", b".php6", b".php7",
    b".php8",
];

/// NameKind of a file by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Sent unchanged.
    Plain,
    /// Run by PHP.
    Script,
    /// Source that is not run here, or a spelling some system would take for it: `.PHP`, `.php.`.
    Source,
}

/// The kind of the last name of this path.
pub(super) fn kind(site: &SiteFiles, path: &[u8]) -> NameKind {
    let scripts = site.scripts.as_ref();
    if scripts.is_some_and(|scripts| is_script(scripts, path)) {
        return NameKind::Script;
    }
    let trailing = path.iter().rev().take_while(|byte| matches!(byte, b'.' | b' ')).count();
    let name = &path[..path.len() - trailing];
    let own = scripts.map_or(&[][..], |scripts| &scripts.extensions);
    let looks_like_script = is_source(name)
        || own
            .iter()
            .any(|extension| ends_with_any_case(name, extension.as_bytes()));
    if looks_like_script {
        NameKind::Source
    } else {
        NameKind::Plain
    }
}

/// True for the name of a script in PHP or its distributions; such a file is never sent.
pub fn is_source(name: &[u8]) -> bool {
    SOURCES.iter().any(|source| ends_with_any_case(name, source))
}

/// True if the path ends in an extension that PHP runs, in exactly this spelling: rules for scripts are case-sensitive
/// patterns, which another spelling would evade.
fn is_script(scripts: &ScriptSettings, path: &[u8]) -> bool {
    scripts
        .extensions
        .iter()
        .any(|extension| path.ends_with(extension.as_bytes()))
}

/// True if `scripts` and `never` let this script run.
pub(super) fn may_run(scripts: &ScriptSettings, name: &[u8]) -> bool {
    (scripts.allow.is_empty() || any_matches(&scripts.allow, name)) && !any_matches(&scripts.never, name)
}

/// Positions after a script's extension where PATH_INFO may begin: `/a.php/x` gives 6.
pub(super) fn script_ends<'a>(site: &'a SiteFiles, path: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let scripts = site.scripts.as_ref();
    let slashes = path
        .iter()
        .enumerate()
        .filter(|&(at, &byte)| byte == b'/' && at > 0)
        .map(|(at, _)| at);
    slashes.filter(move |&at| scripts.is_some_and(|scripts| is_script(scripts, &path[..at])))
}

/// True if `deny` of the site matches this path.
pub(crate) fn is_denied(site: &SiteFiles, path: &[u8]) -> bool {
    any_matches(&site.settings.deny, path)
}

/// True if a segment of this path is never served: dotfiles, backups, manifests. `.well-known` at the root is public
/// (RFC 8615).
pub(crate) fn is_hidden(path: &[u8]) -> bool {
    let mut segments = path.split(|&byte| byte == b'/').skip(1);
    let first = segments.next().unwrap_or_default();
    (first != b".well-known" && is_hidden_name(first)) || segments.any(is_hidden_name)
}

/// The same for one name.
pub(super) fn is_hidden_name(name: &[u8]) -> bool {
    name.first() == Some(&b'.')
        || BACKUPS.iter().any(|backup| ends_with_any_case(name, backup))
        || MANIFESTS.iter().any(|manifest| name.eq_ignore_ascii_case(manifest))
}

fn any_matches(globs: &[Glob], path: &[u8]) -> bool {
    globs.iter().any(|glob| glob.matches(path))
}

fn ends_with_any_case(name: &[u8], ending: &[u8]) -> bool {
    name.len() >= ending.len() && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotfiles_backups_and_manifests_are_hidden_at_every_depth() {
        let hidden = [
            "/.env",
            "/.git/config",
            "/a/.htaccess",
            "/a.php~",
            "/a.bak",
            "/a.BAK",
            "/a.swp",
            "/a.orig",
            "/a.save",
            "/composer.json",
            "/sub/package-lock.json",
            "/Composer.JSON",
            "/.well-known/.env",
            "/a/.well-known/x",
            "/...",
        ];
        for path in hidden {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        let shown = [
            "/",
            "/a.txt",
            "/.well-known/acme-challenge/x",
            "/.well-known",
            "/a/",
            "/my-composer.json",
            "/bak",
            "/a.b",
        ];
        for path in shown {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }
}
