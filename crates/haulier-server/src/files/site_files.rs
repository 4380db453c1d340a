//! The files of a site: its open document root, and the rules for serving it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, Stat};

use super::open::Root;
use super::settings::{FileSettings, ScriptSettings};
use crate::compress::SiteCoding;

/// Number of document roots opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The files of one site.
#[derive(Debug)]
pub(crate) struct SiteFiles {
    pub(crate) settings: FileSettings,
    /// Rules for scripts; `None` without PHP.
    pub(crate) scripts: Option<ScriptSettings>,
    /// Field lines of the site, included in prepared heads.
    pub(super) headers: Vec<(String, String)>,
    pub(super) coding: Arc<SiteCoding>,
    /// The document root without symbolic links, as passed to PHP.
    pub(crate) root: PathBuf,
    /// Descriptor of the document root; every file is opened below it.
    root_fd: OwnedFd,
    /// Device and inode of the document root.
    identity: (u64, u64),
    /// A number for cache keys. It differs between sites with the same path, and before and after a reload.
    pub(crate) number: u32,
}

impl SiteFiles {
    /// Opens the document root.
    ///
    /// # Errors
    /// The root does not exist, is no directory, or may not be read.
    pub(crate) fn open(
        settings: FileSettings,
        scripts: Option<ScriptSettings>,
        headers: Vec<(String, String)>,
        coding: &Arc<SiteCoding>,
    ) -> io::Result<Self> {
        let root = settings.root.canonicalize()?;
        let root_fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let identity = identity(&rustix::fs::fstat(&root_fd)?);
        Ok(Self {
            settings,
            scripts,
            headers,
            coding: Arc::clone(coding),
            root,
            root_fd,
            identity,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// The document root, for opening files below it.
    pub(crate) fn document_root(&self) -> Root<'_> {
        Root {
            path: &self.root,
            directory: self.root_fd.as_fd(),
        }
    }

    /// True if the path of the document root leads to another directory now, because a deployment changed a symbolic
    /// link. A missing path does not count.
    pub(crate) fn has_moved(&self) -> bool {
        let named = rustix::fs::stat(&self.settings.root);
        named.is_ok_and(|named| identity(&named) != self.identity)
    }

    /// The name of the site, for the log.
    pub(super) fn name(&self) -> &str {
        &self.coding.site
    }

    /// True if the site is in development, so that nothing is cached.
    pub(super) fn is_in_development(&self) -> bool {
        self.coding.development
    }
}

/// Device and inode.
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
