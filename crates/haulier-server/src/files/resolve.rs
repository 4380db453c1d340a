//! Resolves a path of a site by asking the file system. Nothing is cached here.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::names::{self, NameKind};
use super::open::{self, Opened, Regular, Version};
use super::site_files::SiteFiles;

/// The meaning of a path on a site.
#[derive(Debug)]
pub(super) enum Resolved {
    /// A regular file that may be sent.
    File {
        name: Vec<u8>,
        regular: Regular,
    },
    /// A script that may run.
    Script {
        script: Script,
        version: Version,
    },
    /// A directory requested without its slash.
    SlashMissing,
    /// A directory without index.
    Directory,
    Missing,
    Denied,
    Failed(io::Error),
}

/// A script that exists and may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    /// Its path below the document root, as requested: `/sub/index.php`.
    pub(crate) name: Vec<u8>,
    /// The file found, absolute and without symbolic links.
    pub(crate) filename: PathBuf,
    /// The rest of the requested path: empty, or with a leading `/`.
    pub(crate) path_info: Vec<u8>,
}

/// Resolves a path, without looking for PATH_INFO in it.
pub(super) fn resolve(site: &SiteFiles, path: &[u8]) -> Resolved {
    if names::is_denied(site, path) || names::is_hidden(path) {
        return Resolved::Denied;
    }
    let resolved = if path.ends_with(b"/") {
        directory(site, path)
    } else {
        file(site, path)
    };
    resolved.unwrap_or_else(Resolved::Failed)
}

/// The first index that exists and may be sent or run; others are skipped.
fn directory(site: &SiteFiles, path: &[u8]) -> io::Result<Resolved> {
    if !open::is_directory(site.document_root(), path)? {
        return Ok(Resolved::Missing);
    }
    for index in &site.settings.index {
        let name = [path, index.as_bytes()].concat();
        if names::is_denied(site, &name) || names::is_hidden(&name) {
            continue;
        }
        match file(site, &name)? {
            Resolved::Missing | Resolved::SlashMissing | Resolved::Denied => {}
            found => return Ok(found),
        }
    }
    Ok(Resolved::Directory)
}

fn file(site: &SiteFiles, name: &[u8]) -> io::Result<Resolved> {
    let kind = names::kind(site, name);
    if !is_allowed(site, kind, name) {
        return Ok(Resolved::Denied);
    }
    let regular = match open::open(site.document_root(), name)? {
        Opened::File(regular) => regular,
        Opened::Directory => return Ok(Resolved::SlashMissing),
        Opened::Missing => return Ok(Resolved::Missing),
        Opened::Outside => return Ok(Resolved::Denied),
    };
    if regular
        .real
        .as_ref()
        .is_some_and(|real| !link_is_allowed(site, kind, real))
    {
        return Ok(Resolved::Denied);
    }
    Ok(match kind {
        NameKind::Script => Resolved::Script {
            version: regular.version,
            script: Script::new(site, name, &regular),
        },
        NameKind::Plain | NameKind::Source => Resolved::File {
            name: name.to_vec(),
            regular,
        },
    })
}

/// True if a file of this name may be sent or run, if it exists.
fn is_allowed(site: &SiteFiles, kind: NameKind, name: &[u8]) -> bool {
    match kind {
        NameKind::Plain => true,
        NameKind::Source => false,
        NameKind::Script => site
            .scripts
            .as_ref()
            .is_some_and(|scripts| names::may_run(scripts, name)),
    }
}

/// True if a symbolic link may lead to this path below the root. A script's source stays one under the name of a
/// picture, and a directory of uploads stays one by another path.
fn link_is_allowed(site: &SiteFiles, kind: NameKind, real: &[u8]) -> bool {
    let last = real.rsplit(|&byte| byte == b'/').next().unwrap_or(real);
    let is_never = || {
        site.scripts
            .as_ref()
            .is_some_and(|scripts| scripts.never.iter().any(|glob| glob.matches(real)))
    };
    let same_kind = names::kind(site, real) == kind;
    same_kind && !names::is_hidden_name(last) && (kind != NameKind::Script || !is_never())
}

impl Script {
    fn new(site: &SiteFiles, name: &[u8], regular: &Regular) -> Self {
        let real = regular.real.as_deref().unwrap_or(name);
        let filename = site
            .root
            .join(OsStr::from_bytes(real.strip_prefix(b"/").unwrap_or(real)));
        Self {
            name: name.to_vec(),
            filename,
            path_info: Vec::new(),
        }
    }
}
