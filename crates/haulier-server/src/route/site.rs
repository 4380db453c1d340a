//! A site made ready to serve: its settings, and its document root held open.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use haulier_proto::fastcgi::params::EncodedPairs;

use super::Routes;
use crate::body::spool::SpoolBudget;
use crate::filter::compress::dictionary::shell::Shells;
use crate::filter::maintenance::Switch;
use crate::handler::php::constant_params;
use crate::handler::static_files::{Root, SendRoots};
use crate::settings::SiteSettings;

/// One site. Shared by all threads.
#[derive(Debug)]
pub struct Site {
    pub settings: SiteSettings,
    /// A number for cache keys: two sites with the same path are two files.
    pub number: u32,
    /// The document root, without symbolic links. PHP gets this name.
    pub root: PathBuf,
    /// The document root as a directory descriptor; every file is opened beneath it.
    pub root_fd: OwnedFd,
    /// FastCGI parameters that are the same for every request.
    pub(crate) php_params: EncodedPairs,
    /// Where files that scripts name may lie.
    pub(crate) send_roots: SendRoots,
    /// What spooled responses may take.
    pub(crate) spool: SpoolBudget,
    /// What holds for some of its paths.
    pub(crate) routes: Routes,
    /// Whether it is closed.
    pub(crate) maintenance: Switch,
    /// What its pages have in common.
    pub(crate) shells: Shells,
}

impl Site {
    /// Opens the document root.
    ///
    /// # Errors
    /// The root does not exist, is no directory, or may not be read; the configured parameters are too long.
    pub fn open(settings: SiteSettings, number: u32) -> std::io::Result<Self> {
        let root = settings.root.canonicalize()?;
        let root_fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let send_roots = SendRoots::new(&settings.sendfile);
        let php_params = constant_params(&settings, &root, &send_roots)?;
        let spool = SpoolBudget::new(settings.spool_limit);
        let routes = Routes::open(&settings, number)?;
        let shells = Shells::new(&settings.dictionary);
        Ok(Self {
            settings,
            number,
            root,
            root_fd,
            php_params,
            send_roots,
            spool,
            routes,
            maintenance: Switch::new(),
            shells,
        })
    }

    /// The document root, for opening beneath it.
    pub(crate) fn document_root(&self) -> Root<'_> {
        Root {
            path: &self.root,
            directory: self.root_fd.as_fd(),
        }
    }

    /// The site itself and the places within it.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.routes.places())
    }
}
