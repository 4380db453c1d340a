//! A cache of resolved paths: a hit costs a hash and a comparison of times.
//!
//! Each thread has one, so nothing is locked. An entry is trusted for a second. A file changed in the last two seconds
//! is checked on every request, since it is probably being written; so is every file of a site in development.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use super::entry::{self, FileEntry};
use super::names;
use super::open::{Version, out_of_descriptors};
use super::resolve::{self, Resolved, Script};
use super::site_files::SiteFiles;

/// Time an entry is trusted without asking the file system.
const FRESH: Duration = Duration::from_secs(1);

/// A file modified more recently may change again within the resolution of its times.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// Bytes of small files kept in memory by one thread.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The meaning of a normalised path on a site.
#[derive(Debug)]
pub(crate) enum FoundPath {
    /// A regular file, ready to send.
    File(Rc<FileEntry>),
    /// A script that exists and may run; also the index of a directory.
    Script(Script),
    /// A directory requested without its slash.
    SlashMissing,
    /// A directory without index.
    Directory,
    /// No file that can be sent.
    Missing,
    /// Never sent: hidden, denied by a rule, a script that may not run, a link out of the root.
    Denied,
    /// It may exist, but cannot be opened.
    Failed(io::Error),
}

/// The files one thread holds open, of all sites.
#[derive(Debug)]
pub(crate) struct FileCache {
    state: RefCell<Generations>,
    hasher: foldhash::fast::RandomState,
    most: Cell<usize>,
}

/// Two generations. A hit moves an entry to the young one. Once that holds half of the limit, it replaces the old one,
/// whose entries are dropped. The effect is that of LRU without a list.
#[derive(Debug, Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    /// By hash of site and path; the entry holds both, to detect collisions.
    entries: HashMap<u64, CachedPath, foldhash::fast::RandomState>,
    /// Content in memory, bytes.
    bytes: usize,
}

#[derive(Debug)]
struct CachedPath {
    site: u32,
    path: Box<[u8]>,
    /// Path of the file below the root; differs from `path` for an index.
    name: Box<[u8]>,
    what: CachedTarget,
    version: Version,
    /// The next moment to check the file.
    check_at: Instant,
    /// The moment to open the file anew, even if it looks unchanged.
    expires: Option<Instant>,
}

#[derive(Debug, Clone)]
enum CachedTarget {
    File(Rc<FileEntry>),
    Script(Rc<Script>),
}

impl FileCache {
    /// A cache of at most `most` files.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            state: RefCell::default(),
            hasher: foldhash::fast::RandomState::default(),
            most: Cell::new(most.max(2)),
        }
    }

    /// Changes the limit.
    pub(crate) fn resize(&self, most: usize) {
        self.most.set(most.max(2));
    }

    /// Drops everything, because the process is out of descriptors.
    pub(crate) fn shed(&self) {
        *self.state.borrow_mut() = Generations::default();
    }

    /// Interval of calls of [`FileCache::age`].
    pub(crate) const AGE: Duration = Duration::from_secs(10);

    /// Drops entries unused since the last but one call, so that a deleted file gives its space back.
    pub(crate) fn age(&self) {
        let mut state = self.state.borrow_mut();
        state.old = std::mem::take(&mut state.young);
    }

    /// Looks up a normalised path (`haulier_proto::path::normalize`) of this site.
    pub(crate) fn find(&self, site: &SiteFiles, path: &[u8], now: Instant) -> FoundPath {
        match self.cached(site, path, now) {
            Some(found) => found,
            None => self.search(site, path, now),
        }
    }

    /// Looks up a path that is not cached, with and without PATH_INFO.
    fn search(&self, site: &SiteFiles, path: &[u8], now: Instant) -> FoundPath {
        if names::is_denied(site, path) {
            return FoundPath::Denied;
        }
        for end in names::script_ends(site, path) {
            match self.whole(site, &path[..end], now) {
                FoundPath::Script(script) => {
                    return FoundPath::Script(Script {
                        path_info: path[end..].to_vec(),
                        ..script
                    });
                }
                // A directory with a script's name: continue inside.
                FoundPath::SlashMissing => {}
                found => return found,
            }
        }
        self.resolve(site, path, now)
    }

    /// Looks up a path without PATH_INFO.
    fn whole(&self, site: &SiteFiles, path: &[u8], now: Instant) -> FoundPath {
        self.cached(site, path, now)
            .unwrap_or_else(|| self.resolve(site, path, now))
    }

    fn cached(&self, site: &SiteFiles, path: &[u8], now: Instant) -> Option<FoundPath> {
        let key = self.key(site, path);
        let mut state = self.state.borrow_mut();
        let entry = state.get(key, self.most.get())?;
        if entry.site != site.number || *entry.path != *path {
            return None;
        }
        if now < entry.check_at || entry.still_true(site, now) {
            return Some(entry.what.clone().into());
        }
        state.remove(key);
        None
    }

    fn resolve(&self, site: &SiteFiles, path: &[u8], now: Instant) -> FoundPath {
        let mut resolved = resolve::resolve(site, path);
        if matches!(&resolved, Resolved::Failed(error) if out_of_descriptors(error)) {
            self.shed();
            resolved = resolve::resolve(site, path);
        }
        match resolved {
            Resolved::File { name, regular } => {
                let version = regular.version;
                let entry = Rc::new(FileEntry::new(site, path, &name, regular));
                self.keep(site, path, &name, CachedTarget::File(entry), version, now)
            }
            Resolved::Script { script, version } => {
                let name = script.name.clone();
                self.keep(site, path, &name, CachedTarget::Script(Rc::new(script)), version, now)
            }
            Resolved::SlashMissing => FoundPath::SlashMissing,
            Resolved::Directory => FoundPath::Directory,
            Resolved::Missing => FoundPath::Missing,
            Resolved::Denied => FoundPath::Denied,
            Resolved::Failed(error) => FoundPath::Failed(error),
        }
    }

    fn keep(
        &self,
        site: &SiteFiles,
        path: &[u8],
        name: &[u8],
        what: CachedTarget,
        version: Version,
        now: Instant,
    ) -> FoundPath {
        let found = what.clone().into();
        let unsettled = until_settled(&version);
        // Not the preferred index: a better one may have been added meanwhile.
        let outranked = (path.ends_with(b"/") && !is_first_index(site, name)).then(|| fresh(site));
        let entry = CachedPath {
            site: site.number,
            path: path.into(),
            name: name.into(),
            what,
            version,
            check_at: if unsettled.is_some() { now } else { now + fresh(site) },
            expires: unsettled.into_iter().chain(outranked).min().map(|left| now + left),
        };
        self.state
            .borrow_mut()
            .insert(self.key(site, path), entry, self.most.get());
        found
    }

    fn key(&self, site: &SiteFiles, path: &[u8]) -> u64 {
        self.hasher.hash_one((site.number, path))
    }
}

impl Generations {
    /// The entry of this key, moved to the young generation.
    fn get(&mut self, key: u64, most: usize) -> Option<&mut CachedPath> {
        if !self.young.entries.contains_key(&key) {
            let entry = self.old.remove(key)?;
            self.insert(key, entry, most);
        }
        self.young.entries.get_mut(&key)
    }

    fn insert(&mut self, key: u64, entry: CachedPath, most: usize) {
        self.old.remove(key);
        self.young.remove(key);
        let full = self.young.entries.len() + 1 > most / 2 || self.young.bytes + entry.bytes() > MOST_BYTES / 2;
        if full {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += entry.bytes();
        self.young.entries.insert(key, entry);
    }

    fn remove(&mut self, key: u64) {
        self.young.remove(key);
    }
}

impl Generation {
    fn remove(&mut self, key: u64) -> Option<CachedPath> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }
}

impl CachedPath {
    /// Checks the file. If it is the one that was opened, the entry is trusted for another while.
    fn still_true(&mut self, site: &SiteFiles, now: Instant) -> bool {
        if self.expires.is_some_and(|expires| now >= expires)
            || Version::now(site.document_root(), &self.name) != Some(self.version)
            || matches!(&self.what, CachedTarget::File(entry) if entry.misses_tag())
        {
            return false;
        }
        if self.expires.is_none() {
            self.check_at = now + fresh(site);
        }
        true
    }

    fn bytes(&self) -> usize {
        match &self.what {
            CachedTarget::File(entry) => entry.in_memory(),
            CachedTarget::Script(_) => 0,
        }
    }
}

impl From<CachedTarget> for FoundPath {
    fn from(what: CachedTarget) -> Self {
        match what {
            CachedTarget::File(entry) => Self::File(entry),
            CachedTarget::Script(script) => Self::Script((*script).clone()),
        }
    }
}

/// Time an entry of this site is trusted. Developers expect to see a saved file at once.
fn fresh(site: &SiteFiles) -> Duration {
    if site.is_in_development() {
        Duration::ZERO
    } else {
        FRESH
    }
}

/// Time until the state of a file just modified is reliable.
fn until_settled(version: &Version) -> Option<Duration> {
    let age = entry::age(version, SystemTime::now())?;
    SETTLED.checked_sub(age).filter(|left| !left.is_zero())
}

fn is_first_index(site: &SiteFiles, name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b'/').next();
    site.settings.index.first().map(String::as_bytes) == last
}
