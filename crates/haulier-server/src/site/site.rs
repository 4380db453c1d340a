//! A site that can serve: its settings and its parts.

use std::sync::Arc;

use haulier_php::Pool;

use super::filters::MaintenanceSwitch;
use super::{Routes, SitePhp, SiteSettings};
use crate::body::SpoolBudget;
use crate::compress::SiteCoding;
use crate::compress::store::CompressedStore;
use crate::files::SiteFiles;

/// A site, shared by all threads.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) settings: SiteSettings,
    /// Its number in the metrics; a reload keeps it for a site of the same name.
    pub(crate) series: u32,
    pub(crate) files: SiteFiles,
    pub(crate) php: Option<SitePhp>,
    pub(crate) coding: Arc<SiteCoding>,
    /// Budgets of its spooled responses.
    pub(crate) spool: Arc<SpoolBudget>,
    /// Rules for some of its paths.
    pub(crate) routes: Routes,
    pub(crate) maintenance: MaintenanceSwitch,
}

/// Parts of a server that its sites share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedParts<'a> {
    pub(crate) pools: &'a [Arc<Pool>],
    pub(crate) compressed_copies: Option<&'a Arc<CompressedStore>>,
}

impl Site {
    /// Opens the document root and makes the parts.
    ///
    /// # Errors
    /// The root does not exist, is not a directory, or is not readable; the configured parameters are too long.
    pub(crate) fn open(settings: SiteSettings, shared: SharedParts<'_>, series: u32) -> std::io::Result<Self> {
        let coding = Arc::new(SiteCoding::new(
            &settings.name,
            settings.development,
            &settings.compress,
            &settings.dictionary,
            shared.compressed_copies.cloned(),
        ));
        let scripts = settings.php.as_ref().map(|php| php.scripts.clone());
        let headers = settings.filters.headers.clone();
        let files = SiteFiles::open(settings.files.clone(), scripts, headers, &coding)?;
        let php = settings
            .php
            .as_ref()
            .map(|php| SitePhp::open(php, shared.pools, &files.root))
            .transpose()?;
        Ok(Self {
            series,
            files,
            php,
            coding,
            spool: SpoolBudget::new(&settings.name, settings.spool.memory, settings.spool.disk),
            routes: Routes::open(&settings, shared, series)?,
            maintenance: MaintenanceSwitch::new(),
            settings,
        })
    }

    /// True if its document root, or that of a mount, has been replaced.
    pub(crate) fn has_moved(&self) -> bool {
        self.mounts().any(|site| site.files.has_moved())
    }

    /// True if a script of it stays booted, which must boot anew before the site can follow its document root.
    pub(crate) fn is_booted(&self) -> bool {
        self.mounts()
            .any(|site| site.php.as_ref().is_some_and(SitePhp::is_booted))
    }

    /// The site itself and the sites mounted in it.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.routes.mounts())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        let root = root.with(|settings| settings.files.root.clone_from(&current));
        let site = root.site();
        assert!(!site.has_moved());
        symlink("2", &next).expect("a link");
        std::fs::rename(&next, &current).expect("a link takes the place of the other");
        assert!(site.has_moved());
        let again = fixture::open(site.settings.clone(), site.series);
        assert!(!again.has_moved() && again.files.root.ends_with("2"));
        assert_ne!(
            again.files.number, site.files.number,
            "what was cached of the old release is not found"
        );
        std::fs::remove_file(&current).expect("a link");
        assert!(!again.has_moved(), "a link that is being made again");
    }
}
