//! A cache of values as files of this machine, with a limit on their bytes. They are sent by sendfile(2).
//!
//! The keys are hashes, so they spread evenly over a number of folders, each with its part of the limit. If a folder is
//! full, its least recently used files are deleted until a quarter is free. Files and folders may be deleted by hand at
//! any time, and two processes may share a directory.
//!
//! A file gets its name when it is complete, but is not synced before: after a power cut it may be truncated. The seal
//! ([`crate::sealed`]) detects that and other damage; it is checked when this process first opens the file, and again
//! when the file changes.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::cache::{Cache, CacheError, Cached, Tier};
use super::guard::Guard;
use super::key::CacheKey;
use crate::checked::{Checked, FileState};
use crate::folder::{Folder, Owner};
use crate::runtime::blocking;
use crate::sealed::{self, SEAL, SealState};
use crate::store::BoxFuture;

/// Timeout of a call to the disk, which may have to spin up.
const BUDGET: Duration = Duration::from_millis(250);
/// Prefix of the name of a layout directory, before the number of its folders.
const LAYOUT: &str = "cache-";
/// Most folders.
const FOLDERS: u64 = 256;
/// Size of a folder, if the limit allows several: evicting lists one of them.
const FOLDER_ROOM: u64 = 16 << 20;
/// The longest value is this part of its folder.
const VALUES_IN_FOLDER: u64 = 4;
/// Interval at which a used file is marked as used, which costs a write.
const MARK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// A directory of values.
#[derive(Debug, Clone)]
pub struct DiskCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Directory of this layout; each number of folders has its own.
    directory: PathBuf,
    /// Bytes in each folder, once counted.
    folders: Vec<Mutex<Option<u64>>>,
    /// Limit of each folder, bytes.
    room: u64,
    /// Files whose seal was checked.
    checked: Checked,
    guard: Guard,
}

impl DiskCache {
    /// Opens a directory, which is created if missing, for `limit` bytes.
    ///
    /// # Errors
    /// The directory cannot be created or written, or has a link in place of one of our folders.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Self> {
        let count = (limit / FOLDER_ROOM).clamp(1, FOLDERS);
        let count = 1_u64 << count.ilog2();
        let layout = format!("{LAYOUT}{count}");
        let own = Folder::make_at(directory)?.make(&layout)?;
        // Values in another layout would be neither found nor counted.
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if is_layout(&name) && name != layout.as_str() && entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let probe = format!("probe-{}", std::process::id());
        // A dead process with the same id may have left it.
        let _ = own.remove(&probe);
        drop(own.create(&probe)?);
        own.remove(&probe)?;
        Ok(Self(Arc::new(Inner {
            directory: directory.join(layout),
            folders: (0..count).map(|_| Mutex::new(None)).collect(),
            room: limit / count,
            checked: Checked::default(),
            guard: Guard::new(directory.display().to_string(), BUDGET),
        })))
    }

    /// Changes the owner of root's directories to the serving account: this one, and our folders in it. Directories of
    /// other accounts, and foreign ones, stay unchanged; so do the values, which are replaced in time.
    ///
    /// # Errors
    /// The owner cannot be changed; only root can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let owner = Owner::new(uid, gid);
        let path = self.0.directory.parent().unwrap_or(&self.0.directory);
        let directory = Folder::open(path)?;
        let count = self.0.folders.len();
        let layout = format!("{LAYOUT}{count}");
        let own = directory.inner(&layout)?;
        for number in 0..count {
            if let Some(values) = own.inner_of_root(&folder_name(number))? {
                values.give(owner)?;
            }
        }
        if let Some(own) = directory.inner_of_root(&layout)? {
            own.give(owner)?;
        }
        match Folder::of_root_at(path)? {
            Some(directory) => directory.give(owner),
            None => Ok(()),
        }
    }

    /// Finds a value. For threads that may block. A value that was checked before costs as much as a static file; any
    /// other is read and checked.
    ///
    /// # Errors
    /// The file system failed, or the value was damaged, and is removed.
    pub fn find(&self, key: CacheKey) -> Result<Option<Cached>, CacheError> {
        let file = match File::open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        let state = FileState::of(&metadata);
        let length = match sealed::open(&file, &state, key.as_bytes(), &self.0.checked) {
            Ok(SealState::Whole(length)) => length,
            Ok(SealState::Unsealed) => {
                self.remove(key)?;
                return Ok(None);
            }
            Ok(SealState::Damaged) => {
                let file = self.path(key);
                tracing::warn!(file = %file.display(), "a damaged value in the cache was removed");
                self.remove(key)?;
                return Err(CacheError::Damaged);
            }
            // A file that cannot be read is removed.
            Err(error) => {
                self.remove(key)?;
                return Err(error.into());
            }
        };
        let unused = SystemTime::now().duration_since(metadata.modified()?);
        // A failure only makes the file be evicted sooner. The mark does not change the content, so the file stays
        // checked.
        if unused.is_ok_and(|unused| unused > MARK_AGAIN)
            && file.set_modified(SystemTime::now()).is_ok()
            && let Ok(marked) = file.metadata()
        {
            self.0.checked.note(key.as_bytes(), &FileState::of(&marked));
        }
        Ok(Some(Cached::File(file, length)))
    }

    fn keep(&self, key: CacheKey, value: &[u8]) -> io::Result<()> {
        let length = value.len() as u64 + SEAL;
        if length > self.0.room / VALUES_IN_FOLDER {
            return self.remove(key);
        }
        let mut bytes = self.folder_of(key);
        let folder = self.folder(key);
        let mut known = match *bytes {
            Some(known) => known,
            None => {
                DirBuilder::new().recursive(true).mode(0o750).create(&folder)?;
                list(&folder)?.iter().map(|file| file.length).sum()
            }
        };
        let path = self.path(key);
        let before = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let unfinished = path.with_extension(format!("{}.new", std::process::id()));
        let written = File::create(&unfinished)
            .and_then(|mut file| sealed::write(&mut file, key.as_bytes(), value))
            .and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&unfinished);
            // The folder may have been deleted: the next value creates it again.
            *bytes = None;
            return Err(error);
        }
        known = known.saturating_sub(before) + length;
        if known > self.0.room {
            known = evict(&folder, self.0.room / 4 * 3)?;
        }
        *bytes = Some(known);
        Ok(())
    }

    fn remove(&self, key: CacheKey) -> io::Result<()> {
        let mut bytes = self.folder_of(key);
        let path = self.path(key);
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        match fs::remove_file(path) {
            Ok(()) => {
                *bytes = bytes.map(|bytes| bytes.saturating_sub(length));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn number(&self, key: CacheKey) -> usize {
        usize::from(key.as_bytes()[0]) % self.0.folders.len()
    }

    fn folder_of(&self, key: CacheKey) -> MutexGuard<'_, Option<u64>> {
        self.0.folders[self.number(key)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, key: CacheKey) -> PathBuf {
        self.0.directory.join(folder_name(self.number(key)))
    }

    fn path(&self, key: CacheKey) -> PathBuf {
        self.folder(key).join(key.to_hex())
    }
}

/// True if a directory of this name is a layout of any size.
fn is_layout(name: &str) -> bool {
    let count = name.strip_prefix(LAYOUT);
    count.is_some_and(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
}

fn folder_name(number: usize) -> String {
    format!("{number:02x}")
}

struct Listed {
    used: SystemTime,
    length: u64,
    path: PathBuf,
}

/// Lists the values in a folder, without those that are deleted meanwhile.
fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            files.push(Listed {
                used: metadata.modified()?,
                length: metadata.len(),
                path: entry.path(),
            });
        }
    }
    Ok(files)
}

/// Deletes the least recently used files until at most `most` bytes are left. Returns the bytes left.
fn evict(folder: &Path, most: u64) -> io::Result<u64> {
    let mut files = list(folder)?;
    files.sort_unstable_by_key(|file| file.used);
    let mut bytes = files.iter().map(|file| file.length).sum();
    for file in files {
        if bytes <= most {
            break;
        }
        match fs::remove_file(&file.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => bytes -= file.length,
        }
    }
    Ok(bytes)
}

impl Cache for DiskCache {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
        let cache = self.clone();
        let find = move || Ok(cache.find(key));
        Box::pin(self.0.guard.call(async move { blocking(find).await? }))
    }

    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
        let cache = self.clone();
        let keep = move || cache.keep(key, &value);
        Box::pin(self.0.guard.call(async move { Ok(blocking(keep).await?) }))
    }

    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
        let cache = self.clone();
        let remove = move || cache.remove(key);
        Box::pin(self.0.guard.call(async move { Ok(blocking(remove).await?) }))
    }

    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn place(&self) -> String {
        self.0.directory.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt, symlink};

    use super::*;
    use crate::{StoreRuntime, suite};

    fn key(number: u64) -> CacheKey {
        CacheKey::of(&[&number.to_le_bytes()])
    }

    fn size(directory: &Path) -> u64 {
        let entries = fs::read_dir(directory)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path());
        entries
            .map(|path| match path.is_dir() {
                true => size(&path),
                false => fs::metadata(path).expect("a file").len(),
            })
            .sum()
    }

    #[test]
    fn a_directory_keeps_what_every_cache_promises() {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = StoreRuntime::start().expect("a thread");
        let cache = DiskCache::open(&directory.path().join("new/cache"), 64 << 20).expect("a cache");
        suite::cache(&runtime, Arc::new(cache));
    }

    #[test]
    fn it_never_takes_more_room_than_its_limit_and_keeps_what_was_used_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let limit = 1 << 20;
        let cache = DiskCache::open(directory.path(), limit).expect("a cache");
        for number in 0..300 {
            cache.keep(key(number), &[0; 10_000]).expect("kept");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + number);
            let file = File::options()
                .write(true)
                .open(cache.path(key(number)))
                .expect("its file");
            file.set_modified(time).expect("a time");
            assert!(size(directory.path()) <= limit, "after {number}");
        }
        assert!(cache.find(key(0)).expect("no fault").is_none());
        assert!(cache.find(key(299)).expect("no fault").is_some());
        let again = DiskCache::open(directory.path(), limit).expect("a cache");
        again.keep(key(1000), &[0; 10_000]).expect("kept");
        let known = again.folder_of(key(1000)).expect("it was counted");
        assert_eq!(known, size(directory.path()));
    }

    #[test]
    fn a_short_file_and_one_of_an_older_haulier_are_misses() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = DiskCache::open(directory.path(), 1 << 20).expect("a cache");
        let path = cache.path(key(1));
        let is_a_miss = |of: &str| {
            assert!(cache.find(key(1)).expect("no fault").is_none(), "{of}");
            assert!(!path.exists(), "{of} is removed");
        };
        for length in [0, 8, 47, 48, 100, 247] {
            cache.keep(key(1), &[7; 200]).expect("kept");
            let file = File::options().write(true).open(&path).expect("its file");
            file.set_len(length).expect("it is ours");
            is_a_miss(&format!("one cut to {length}"));
        }
        let length = 200_u64.to_le_bytes();
        fs::write(&path, [&[7; 200][..], b"haulier1", &length].concat()).expect("a file");
        is_a_miss("one with a length and no sum");
    }

    #[test]
    fn a_value_that_was_changed_or_copied_over_another_one_is_never_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = DiskCache::open(directory.path(), 1 << 20).expect("a cache");
        let path = cache.path(key(1));
        let is_damage = |of: &str| {
            // The clock of the file system is coarse.
            std::thread::sleep(Duration::from_millis(20));
            cache.keep(key(1), &[7; 200]).expect("kept");
            assert!(cache.find(key(1)).expect("no fault").is_some(), "it is known by now");
            std::thread::sleep(Duration::from_millis(20));
            match of {
                "changed" => {
                    let modified = fs::metadata(&path).and_then(|now| now.modified()).expect("a time");
                    let file = File::options().write(true).open(&path).expect("its file");
                    file.write_all_at(&[8], 100).expect("it is ours");
                    // As a program does that keeps times.
                    file.set_modified(modified).expect("a time");
                }
                _ => {
                    cache.keep(key(2), &[8; 200]).expect("kept");
                    assert!(cache.find(key(2)).expect("no fault").is_some());
                    fs::rename(cache.path(key(2)), &path).expect("it is ours");
                }
            }
            assert!(matches!(cache.find(key(1)), Err(CacheError::Damaged)), "{of}");
            assert!(cache.find(key(1)).expect("no fault").is_none(), "{of}");
        };
        is_damage("changed");
        is_damage("another one's");
    }

    #[test]
    fn a_value_that_is_marked_as_used_stays_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = DiskCache::open(directory.path(), 1 << 20).expect("a cache");
        cache.keep(key(1), &[7; 200]).expect("kept");
        let file = File::options().write(true).open(cache.path(key(1))).expect("its file");
        file.set_modified(SystemTime::now() - 2 * MARK_AGAIN).expect("a time");
        assert!(cache.find(key(1)).expect("no fault").is_some());
        let state = FileState::of(&file.metadata().expect("its state"));
        let known = sealed::known(&state, key(1).as_bytes(), &cache.0.checked);
        assert_eq!(known, Some(200));
    }

    #[test]
    fn folders_that_are_deleted_come_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = DiskCache::open(directory.path(), 1 << 20).expect("a cache");
        cache.keep(key(1), b"x").expect("kept");
        fs::remove_dir_all(&cache.0.directory).expect("deleted by hand");
        assert!(cache.find(key(1)).expect("no fault").is_none());
        assert!(cache.keep(key(1), b"x").is_err(), "this one is lost");
        cache.keep(key(1), b"x").expect("the next one is kept");
        assert!(cache.find(key(1)).expect("no fault").is_some());
    }

    #[test]
    fn another_limit_leaves_nothing_of_the_former_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let large = DiskCache::open(directory.path(), 1 << 30).expect("a cache");
        large.keep(key(1), b"x").expect("kept");
        fs::write(directory.path().join("notes.txt"), "mine").expect("a file");
        fs::create_dir(directory.path().join("cache-notes")).expect("a folder");
        DiskCache::open(directory.path(), 1 << 20).expect("a cache");
        assert!(!large.0.directory.exists() && directory.path().join("notes.txt").exists());
        assert!(directory.path().join("cache-notes").exists(), "it is not ours");
    }

    #[test]
    fn what_a_link_leads_to_is_not_touched_by_opening() {
        let directory = tempfile::tempdir().expect("a directory");
        let (elsewhere, path) = (directory.path().join("elsewhere"), directory.path().join("cache"));
        fs::create_dir(&elsewhere).expect("a folder");
        let file = elsewhere.join("kept");
        fs::write(&file, "kept").expect("a file");
        fs::create_dir_all(path.join("cache-1")).expect("folders");
        let probe = path.join(format!("cache-1/probe-{}", std::process::id()));
        symlink(&file, &probe).expect("a link");
        DiskCache::open(&path, 1 << 20).expect("the link goes");
        assert!(fs::symlink_metadata(&probe).is_err());
        fs::remove_dir(path.join("cache-1")).expect("it is empty");
        symlink(&elsewhere, path.join("cache-1")).expect("a link");
        symlink(&elsewhere, path.join("cache-2")).expect("a link");
        DiskCache::open(&path, 1 << 20).expect_err("that folder would be ours");
        assert_eq!(fs::read_to_string(file).expect("it stays"), "kept");
        assert_eq!(fs::read_dir(elsewhere).expect("a folder").count(), 1);
    }

    #[test]
    fn what_root_has_made_is_given_away_and_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root gives files away");
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (elsewhere, path) = (directory.path().join("elsewhere"), directory.path().join("cache"));
        let cache = DiskCache::open(&path, 32 << 20).expect("a cache");
        for folder in [elsewhere.clone(), path.join("notes"), path.join("cache-2/00")] {
            fs::create_dir(folder).expect("a folder");
        }
        symlink(&elsewhere, path.join("cache-2/01")).expect("a link");
        cache.give_to(12_345, 12_345).expect("root may");
        let owner = |path: &Path| fs::symlink_metadata(path).expect("it is there").uid();
        for given in ["", "cache-2", "cache-2/00"] {
            assert_eq!(owner(&path.join(given)), 12_345, "{given}");
        }
        for kept in ["notes", "cache-2/01"] {
            assert_eq!(owner(&path.join(kept)), 0, "{kept}");
        }
        assert_eq!(owner(&elsewhere), 0);
        // A run as root alone leaves a folder of its own.
        fs::remove_file(path.join("cache-2/01")).expect("a link");
        fs::create_dir(path.join("cache-2/01")).expect("a folder");
        cache.give_to(12_345, 12_345).expect("root may");
        assert_eq!(owner(&path.join("cache-2/01")), 12_345);
    }
}
