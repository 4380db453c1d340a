//! Files that scripts hand off again and again, held open from one time to the next.
//!
//! A script may have written the file a moment ago, so every time the name it gave is looked up (`stat`), and what was
//! opened counts only if that is the very same file in the very same state. Opening it beneath its root costs five times
//! as much. Whether the way there still stays in the root is asked anew with every second [`SendfileCache::age`].
//!
//! One a thread, so nothing is locked. A file is held from the second time on, and only if it has been left alone for a
//! while: an export that is made for one download gives its space back at once when it is deleted.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use super::cache::SETTLED;
use super::open::Version;
use super::roots::{Name, Sendable};
use super::site_files::SiteFiles;

/// Ages that a file is held without being opened anew.
const AGES: u8 = 2;

/// What was handed off lately.
#[derive(Debug)]
pub(crate) struct SendfileCache {
    /// By hash of site and name; a slot tells whose it is.
    slots: RefCell<HashMap<u64, Slot, foldhash::fast::RandomState>>,
    hasher: foldhash::fast::RandomState,
    /// Names remembered; with one more it begins anew.
    most: Cell<usize>,
}

#[derive(Debug)]
struct Slot {
    site: u32,
    /// The kind of name, and the name.
    name: (u8, Box<[u8]>),
    held: Option<Held>,
    /// Asked for since the last [`SendfileCache::age`].
    is_used: bool,
}

#[derive(Debug)]
struct Held {
    /// Where the name leads, links and all.
    place: PathBuf,
    version: Version,
    sendable: Rc<Sendable>,
    /// Calls of [`SendfileCache::age`] since it was opened.
    ages: u8,
}

impl SendfileCache {
    /// For at most so many files.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            slots: RefCell::default(),
            hasher: foldhash::fast::RandomState::default(),
            most: Cell::new(most),
        }
    }

    /// For at most so many files from now on.
    pub(crate) fn resize(&self, most: usize) {
        self.most.set(most);
    }

    /// The file of this name, if it is held and still the one that the name stands for.
    pub(super) fn find(&self, site: &SiteFiles, name: Name<'_>) -> Option<Rc<Sendable>> {
        let key = self.key(site, name);
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(&key).filter(|slot| slot.is_of(site, name))?;
        slot.is_used = true;
        let held = slot.held.as_ref()?;
        if Version::at(&held.place) == Some(held.version) {
            return Some(Rc::clone(&held.sendable));
        }
        slots.remove(&key);
        None
    }

    /// Remembers that this name was opened, and holds what was opened if it was so before. `place` is asked for then.
    pub(super) fn note(
        &self,
        site: &SiteFiles,
        name: Name<'_>,
        sendable: &Rc<Sendable>,
        place: impl FnOnce() -> Option<PathBuf>,
    ) {
        let key = self.key(site, name);
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(&key).filter(|slot| slot.is_of(site, name)) {
            let version = sendable.version;
            // What is opened anew next time may have its tag by then.
            let is_final = !sendable.awaits_tag && version.is_settled(SETTLED, SystemTime::now());
            let place = is_final.then(place).flatten();
            slot.held = place
                .filter(|place| Version::at(place) == Some(version))
                .map(|place| Held {
                    place,
                    version,
                    sendable: Rc::clone(sendable),
                    ages: 0,
                });
            return;
        }
        if slots.len() >= self.most.get() {
            slots.clear();
        }
        let slot = Slot {
            site: site.number,
            name: (name.kind(), name.bytes().into()),
            held: None,
            is_used: true,
        };
        slots.insert(key, slot);
    }

    /// Lets go of what was not asked for since it was called last, and of what is to be opened anew.
    pub(crate) fn age(&self) {
        self.slots.borrow_mut().retain(|_, slot| {
            slot.held.take_if(|held| {
                held.ages += 1;
                held.ages >= AGES
            });
            std::mem::take(&mut slot.is_used)
        });
    }

    /// Lets go of everything, if there is anything: the process is out of descriptors.
    pub(crate) fn shed(&self) -> bool {
        !std::mem::take(&mut *self.slots.borrow_mut()).is_empty()
    }

    fn key(&self, site: &SiteFiles, name: Name<'_>) -> u64 {
        self.hasher.hash_one((site.number, name))
    }
}

impl Slot {
    fn is_of(&self, site: &SiteFiles, name: Name<'_>) -> bool {
        self.site == site.number && self.name.0 == name.kind() && *self.name.1 == *name.bytes()
    }
}
