//! A site made ready to serve: its settings, and its document root held open.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags, Stat};

use haulier_proto::fastcgi::params::EncodedPairs;

use super::Routes;
use crate::body::spool::SpoolBudget;
use crate::compress::dictionary::shell::Shells;
use crate::files::{Root, SendRoots};
use crate::filter::maintenance::Switch;
use crate::handler::php::constant_params;
use crate::settings::SiteSettings;

/// Sites opened so far.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// One site. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Site {
    pub settings: SiteSettings,
    /// A number for cache keys: two sites with the same path are two files, and so are those of a site before and
    /// after a reload.
    pub number: u32,
    /// What it is counted as; a reload keeps it for a site of the same name.
    pub series: u32,
    /// The document root, without symbolic links. PHP gets this name.
    pub root: PathBuf,
    /// The document root as a directory descriptor; every file is opened beneath it.
    pub root_fd: OwnedFd,
    /// Device and inode of it.
    identity: (u64, u64),
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
    pub(crate) fn open(settings: SiteSettings, series: u32) -> std::io::Result<Self> {
        let root = settings.root.canonicalize()?;
        let root_fd = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let identity = identity(&rustix::fs::fstat(&root_fd)?);
        let send_roots = SendRoots::new(&settings.sendfile);
        let php_params = constant_params(&settings, &root, &send_roots)?;
        let spool = SpoolBudget::new(settings.memory_limit, settings.spool_limit);
        let routes = Routes::open(&settings, series)?;
        let shells = Shells::new(&settings.dictionary);
        Ok(Self {
            settings,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            series,
            root,
            root_fd,
            identity,
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

    /// Whether the name of its document root, or of that of a place within it, stands for another directory by now: a
    /// deployment has made a symbolic link point elsewhere. A name that stands for nothing has not been given away.
    pub(crate) fn has_moved(&self) -> bool {
        self.places().any(|site| {
            let named = rustix::fs::stat(&site.settings.root);
            named.is_ok_and(|named| identity(&named) != site.identity)
        })
    }

    /// The site itself and the places within it.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.routes.places())
    }
}

/// Device and inode.
fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::fixture;

    #[test]
    fn a_site_whose_root_is_a_link_has_moved_once_the_link_points_elsewhere() {
        let root = fixture::Root::new();
        let outside = root.outside();
        let (current, next) = (outside.join("current"), outside.join("next"));
        for release in ["1", "2"] {
            std::fs::create_dir(outside.join(release)).expect("a directory");
        }
        symlink("1", &current).expect("a link");
        let root = root.with(|settings| settings.root.clone_from(&current));
        let site = root.site();
        assert!(!site.has_moved());
        symlink("2", &next).expect("a link");
        std::fs::rename(&next, &current).expect("a link takes the place of the other");
        assert!(site.has_moved());
        let again = Site::open(site.settings.clone(), site.series).expect("a document root");
        assert!(!again.has_moved() && again.root.ends_with("2"));
        assert_ne!(
            again.number, site.number,
            "what was cached of the old release is not found"
        );
        std::fs::remove_file(&current).expect("a link");
        assert!(!again.has_moved(), "a link that is being made again");
    }
}
