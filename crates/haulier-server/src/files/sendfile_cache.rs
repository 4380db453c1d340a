//! Files that scripts hand off repeatedly, kept open between requests.
//!
//! A script may have rewritten the file a moment ago, so its name is looked up every time (stat(2)). The open file
//! counts only if it is the same file in the same state. Opening it below its root costs five times as much. Every
//! second [`SendfileCache::age`] makes the next request check again that the path stays in the root.
//!
//! Each thread has one, so nothing is locked. A file is kept from its second request on, and only if it has been
//! unchanged for a while: an export made for one download gives its space back as soon as it is deleted.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use super::cache::SETTLED;
use super::open::Version;
use super::roots::{Sendable, SendfileName};
use super::site_files::SiteFiles;

/// Calls of [`SendfileCache::age`] after which a file is opened anew.
const AGES: u8 = 2;

/// Files handed off recently.
#[derive(Debug)]
pub(crate) struct SendfileCache {
    /// By hash of site and name; the entry holds both, to detect collisions.
    entries: RefCell<HashMap<u64, SendfileEntry, foldhash::fast::RandomState>>,
    hasher: foldhash::fast::RandomState,
    /// Most names; the cache is cleared when full.
    most: Cell<usize>,
}

#[derive(Debug)]
struct SendfileEntry {
    site: u32,
    /// The kind of the name, and the name.
    name: (u8, Box<[u8]>),
    held: Option<HeldFile>,
    /// Requested since the last [`SendfileCache::age`].
    is_used: bool,
}

#[derive(Debug)]
struct HeldFile {
    /// The path the name stands for, with its symbolic links.
    place: PathBuf,
    version: Version,
    sendable: Rc<Sendable>,
    /// Calls of [`SendfileCache::age`] since it was opened.
    ages: u8,
}

impl SendfileCache {
    /// A cache of at most `most` names.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: RefCell::default(),
            hasher: foldhash::fast::RandomState::default(),
            most: Cell::new(most),
        }
    }

    /// Changes the limit.
    pub(crate) fn resize(&self, most: usize) {
        self.most.set(most);
    }

    /// The file of this name, if it is open and still the same.
    pub(super) fn find(&self, site: &SiteFiles, name: SendfileName<'_>) -> Option<Rc<Sendable>> {
        let key = self.key(site, name);
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&key).filter(|entry| entry.is_of(site, name))?;
        entry.is_used = true;
        let held = entry.held.as_ref()?;
        if Version::at(&held.place) == Some(held.version) {
            return Some(Rc::clone(&held.sendable));
        }
        entries.remove(&key);
        None
    }

    /// Notes that this name was opened; keeps the file open from the second time on. `place` is called only then.
    pub(super) fn note(
        &self,
        site: &SiteFiles,
        name: SendfileName<'_>,
        sendable: &Rc<Sendable>,
        place: impl FnOnce() -> Option<PathBuf>,
    ) {
        let key = self.key(site, name);
        let mut entries = self.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(&key).filter(|entry| entry.is_of(site, name)) {
            let version = sendable.version;
            // A file without its tag is opened anew, since the tag may be known by then.
            let is_final = !sendable.awaits_tag && version.is_settled(SETTLED, SystemTime::now());
            let place = is_final.then(place).flatten();
            entry.held = place
                .filter(|place| Version::at(place) == Some(version))
                .map(|place| HeldFile {
                    place,
                    version,
                    sendable: Rc::clone(sendable),
                    ages: 0,
                });
            return;
        }
        if entries.len() >= self.most.get() {
            entries.clear();
        }
        let entry = SendfileEntry {
            site: site.number,
            name: (name.kind(), name.bytes().into()),
            held: None,
            is_used: true,
        };
        entries.insert(key, entry);
    }

    /// Drops names unused since the last call, and files to be opened anew.
    pub(crate) fn age(&self) {
        self.entries.borrow_mut().retain(|_, entry| {
            entry.held.take_if(|held| {
                held.ages += 1;
                held.ages >= AGES
            });
            std::mem::take(&mut entry.is_used)
        });
    }

    /// Drops everything, because the process is out of descriptors; returns false if there was nothing.
    pub(crate) fn shed(&self) -> bool {
        !std::mem::take(&mut *self.entries.borrow_mut()).is_empty()
    }

    fn key(&self, site: &SiteFiles, name: SendfileName<'_>) -> u64 {
        self.hasher.hash_one((site.number, name))
    }
}

impl SendfileEntry {
    fn is_of(&self, site: &SiteFiles, name: SendfileName<'_>) -> bool {
        self.site == site.number && self.name.0 == name.kind() && *self.name.1 == *name.bytes()
    }
}
