//! A site in a temporary directory, for the tests of handlers.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haulier_php::{External, Pool, PoolKind, PoolSettings};
use haulier_proto::field::Fields;
use haulier_proto::head::{HeadLimits, RequestHead};
use tempfile::TempDir;

use super::{FileSettings, ScriptSettings, SiteFiles};
use crate::pattern::glob::Glob;
use crate::site::{PhpSettings, SharedParts, Site, SiteSettings};

/// A document root that is removed when the test ends, and the settings of its site.
pub(crate) struct Root {
    directory: TempDir,
    settings: SiteSettings,
}

impl Root {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("a document root");
        Self {
            directory,
            settings: settings(root),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.settings.files.root
    }

    /// The directory that contains the document root.
    pub(crate) fn outside(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }

    /// Adds a file to the document root, modified an hour ago.
    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directories");
        std::fs::write(&path, content).expect("a file");
        age(&path, Duration::from_secs(3600));
        self
    }

    pub(crate) fn link(self, name: &str, to: impl AsRef<Path>) -> Self {
        symlink(to, self.path().join(name)).expect("a symbolic link");
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut SiteSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Adds PHP, with scripts that may run and scripts that never do.
    pub(crate) fn php(self, scripts: &[&str], never: &[&str]) -> Self {
        let globs = |texts: &[&str]| texts.iter().map(|text| Glob::new(text).expect("a pattern")).collect();
        let php = PhpSettings {
            scripts: ScriptSettings {
                allow: globs(scripts),
                never: globs(never),
                ..ScriptSettings::default()
            },
            ..PhpSettings::default()
        };
        self.with(|settings| settings.php = Some(php))
    }

    /// The files of the site.
    pub(crate) fn files(&self) -> SiteFiles {
        self.site().files
    }

    pub(crate) fn site(&self) -> Site {
        open(self.settings.clone(), 1)
    }
}

/// A site with these settings and an idle pool.
pub(crate) fn open(settings: SiteSettings, series: u32) -> Site {
    with_parts(|shared| Site::open(settings, shared, series)).expect("a document root")
}

/// Parts that sites share: an idle pool, and no compressed copies.
pub(crate) fn with_parts<T>(work: impl FnOnce(SharedParts<'_>) -> T) -> T {
    let pools = [pool()];
    work(SharedParts {
        pools: &pools,
        compressed_copies: None,
    })
}

/// Sets the modification time of a file to `age` ago.
pub(crate) fn age(path: &Path, age: Duration) {
    let file = std::fs::File::options().write(true).open(path).expect("a file to age");
    file.set_modified(std::time::SystemTime::now() - age).expect("a time");
}

fn settings(root: PathBuf) -> SiteSettings {
    SiteSettings {
        name: "test".into(),
        hosts: vec!["*".into()],
        files: FileSettings {
            root,
            index: vec!["index.html".into(), "index.php".into()],
            ..FileSettings::default()
        },
        ..SiteSettings::default()
    }
}

/// A pool that gets no requests: its server is external, so nothing is started.
fn pool() -> Arc<Pool> {
    let external = External::new(vec![haulier_php::Address::Unix("/nowhere".into())]);
    Pool::start(PoolSettings::new("test", PoolKind::External(external))).expect("a pool")
}

/// A request head; `lines` are field lines with their line ends.
pub(crate) fn head(method: &str, target: &str, lines: &str) -> RequestHead {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").into_bytes();
    let limits = HeadLimits {
        request_line: 4096,
        header: 65536,
        fields: 100,
    };
    RequestHead::parse(&mut bytes, &limits, &mut Fields::new())
        .expect("a valid head")
        .expect("a whole head")
}
