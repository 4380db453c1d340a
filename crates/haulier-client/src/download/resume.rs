//! An incomplete file, `NAME.part`, and its record, `NAME.part.json`.
//!
//! The record never claims a byte that was not written: it is saved after the data, by rename. The page cache survives
//! a killed process but no crash of the machine, so a record from before the last boot counts only if its data were
//! synced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::fs::{FlockOperation, RenameFlags, XattrFlags};
use serde::{Deserialize, Serialize};

use super::error::DownloadError;
use super::name::numbered;
use super::spans::Spans;
use super::sums::{Sum, Sums};
use super::validators::Validators;
use crate::url::Url;

/// A record is saved after this many bytes or this time; a killed process loses no more.
const SAVE_BYTES: u64 = 8 * 1024 * 1024;
const SAVE_AFTER: Duration = Duration::from_millis(500);
/// The most names that are tried.
const MOST_NAMES: usize = 1000;
/// The extended attribute in which a complete file keeps its address (hashed) and entity tag.
const ATTRIBUTE: &str = "user.haulier.origin";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct ResumeRecord {
    url: String,
    #[serde(flatten)]
    validators: Validators,
    total: Option<u64>,
    done: Spans,
    /// Checksums of the blocks as written; records of older versions have none.
    #[serde(default)]
    sums: Vec<Sum>,
    boot: String,
    is_synced: bool,
}

/// An incomplete file, locked against other processes.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    /// The path of the complete file.
    target: PathBuf,
    record: ResumeRecord,
    sums: Sums,
    /// Bytes that had changed since the last run, and are fetched again.
    damaged: u64,
    saved_at: Instant,
    unsaved: u64,
    /// Both files are removed or renamed, and drop has nothing to save.
    is_settled: bool,
}

fn part_path(target: &Path) -> PathBuf {
    with_suffix(target, ".part")
}

fn record_path(target: &Path) -> PathBuf {
    with_suffix(target, ".part.json")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl PartFile {
    /// The part that an earlier run left for this address: at a target, or under any name in a directory. A part of
    /// another query is taken if there is none of this one: addresses are signed anew, and only the server knows
    /// whether two are the same file.
    ///
    /// # Errors
    /// [`DownloadError::Busy`] if another process has it.
    pub fn find(place: PartLocation<'_>, url: &Url) -> Result<Option<Self>, DownloadError> {
        let directory = match place {
            PartLocation::Target(target) => return Self::open(target, |recorded| recorded.is_same_place(url)),
            PartLocation::Directory(directory) => directory,
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let targets: Vec<PathBuf> = entries
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                Some(directory.join(name.strip_suffix(".part.json")?))
            })
            .collect();
        for target in &targets {
            if let Some(part) = Self::open(target, |recorded| recorded.is_same(url))? {
                return Ok(Some(part));
            }
        }
        for target in &targets {
            match Self::open(target, |recorded| recorded.is_same_place(url)) {
                Ok(Some(part)) if !part.is_complete() => return Ok(Some(part)),
                Ok(_) | Err(DownloadError::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn open(target: &Path, is_wanted: impl Fn(&Url) -> bool) -> Result<Option<Self>, DownloadError> {
        let Ok(text) = fs::read(record_path(target)) else {
            return Ok(None);
        };
        let Ok(mut record) = serde_json::from_slice::<ResumeRecord>(&text) else {
            return Ok(None);
        };
        if !Url::parse(&record.url).is_ok_and(|recorded| is_wanted(&recorded)) {
            return Ok(None);
        }
        let path = part_path(target);
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
            // The file was removed, or was renamed in the last moment of a run.
            let _ = fs::remove_file(record_path(target));
            return Ok(None);
        };
        lock(&file, &path)?;
        let length = file.metadata().map_err(at(&path))?.len();
        if (record.boot != boot() && !record.is_synced) || !record.done.fits(length) {
            record.done = Spans::default();
        }
        let (sums, damaged) = Sums::checked(&file, std::mem::take(&mut record.sums), &mut record.done);
        let mut part = Self::with(file, target, record);
        (part.sums, part.damaged) = (sums, damaged);
        Ok(Some(part))
    }

    fn with(file: File, target: &Path, record: ResumeRecord) -> Self {
        Self {
            file,
            target: target.to_owned(),
            record,
            sums: Sums::default(),
            damaged: 0,
            saved_at: Instant::now(),
            unsaved: 0,
            is_settled: false,
        }
    }

    /// A new empty file for `target`, or for `target` with a number if that name is taken and `may_number`.
    ///
    /// # Errors
    /// [`DownloadError::InTheWay`], [`DownloadError::Busy`], or [`DownloadError::File`].
    pub fn create(target: &Path, may_number: bool, url: &Url) -> Result<Self, DownloadError> {
        let names = if may_number { MOST_NAMES } else { 1 };
        for number in 0..names {
            let target = numbered(target, number);
            if may_number && target.exists() {
                continue;
            }
            match Self::create_at(&target, url) {
                Err(DownloadError::Busy { .. } | DownloadError::InTheWay { .. }) if number + 1 < names => {}
                other => return other,
            }
        }
        Err(DownloadError::InTheWay {
            path: target.to_owned(),
        })
    }

    fn create_at(target: &Path, url: &Url) -> Result<Self, DownloadError> {
        let path = part_path(target);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        lock(&file, &path)?;
        // Other programs make `.part` files too; one without our record and with data is theirs.
        let is_empty = file.metadata().map_err(at(&path))?.len() == 0;
        if !is_empty && !record_path(target).exists() {
            return Err(DownloadError::InTheWay { path });
        }
        file.set_len(0).map_err(at(&path))?;
        let record = ResumeRecord {
            url: url.to_string(),
            validators: Validators::default(),
            total: None,
            done: Spans::default(),
            sums: Vec::new(),
            boot: boot(),
            is_synced: false,
        };
        let mut part = Self::with(file, target, record);
        part.save()?;
        Ok(part)
    }

    /// Drops all data, and begins another state of the file at this address.
    ///
    /// # Errors
    /// [`DownloadError::File`], or [`DownloadError::NoSpace`] if `total` bytes will not fit.
    pub fn begin(&mut self, url: &Url, validators: Validators, total: Option<u64>) -> Result<(), DownloadError> {
        self.record.url = url.to_string();
        self.record.done = Spans::default();
        self.sums.forget();
        self.save()?;
        self.file.set_len(0).map_err(at(&self.target))?;
        self.record.validators = validators;
        self.set_total(total)
    }

    /// Sets the length of the whole file.
    ///
    /// # Errors
    /// As [`PartFile::begin`].
    pub fn set_total(&mut self, total: Option<u64>) -> Result<(), DownloadError> {
        self.record.total = total;
        let room = rustix::fs::fstatvfs(&self.file).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        let missing = total.unwrap_or(0).saturating_sub(self.record.done.len());
        if missing > room {
            return Err(DownloadError::NoSpace {
                path: self.target.clone(),
                needed: missing - room,
            });
        }
        self.save()
    }

    /// Notes that bytes were written from `start` up to `end`.
    ///
    /// # Errors
    /// [`DownloadError::File`] if the record cannot be saved.
    pub fn wrote(&mut self, start: u64, end: u64) -> Result<(), DownloadError> {
        self.record.done.insert(start, end);
        self.sums
            .wrote(&self.file, (start, end), self.record.total, &self.record.done);
        self.unsaved += end - start;
        if self.unsaved >= SAVE_BYTES || self.saved_at.elapsed() >= SAVE_AFTER {
            self.save()?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), DownloadError> {
        let path = record_path(&self.target);
        let fresh = with_suffix(&path, "~");
        self.record.boot = boot();
        self.record.sums = self.sums.made();
        let text = serde_json::to_vec(&self.record).expect("texts and numbers");
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(at(&path))?;
        (self.saved_at, self.unsaved) = (Instant::now(), 0);
        Ok(())
    }

    /// Removes both files.
    pub fn discard(mut self) {
        self.is_settled = true;
        let _ = fs::remove_file(part_path(&self.target));
        let _ = fs::remove_file(record_path(&self.target));
    }

    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes of an earlier run that have changed since, and are fetched again.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    #[must_use]
    pub fn done(&self) -> &Spans {
        &self.record.done
    }

    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.record.total
    }

    #[must_use]
    pub fn validators(&self) -> &Validators {
        &self.record.validators
    }

    /// True if it was begun for this address, its query included.
    #[must_use]
    pub fn is_of(&self, url: &Url) -> bool {
        Url::parse(&self.record.url).is_ok_and(|recorded| recorded.is_same(url))
    }

    /// True if every byte is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.record
            .total
            .is_some_and(|total| self.record.done.gaps(total).is_empty())
    }

    /// True if it has bytes and no validator: no range can continue them.
    #[must_use]
    pub fn is_unbound(&self) -> bool {
        !self.record.done.is_empty() && self.record.validators.if_range().is_none()
    }

    /// Writes at `offset`; [`PartFile::wrote`] records it.
    ///
    /// # Errors
    /// [`DownloadError::File`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DownloadError> {
        self.file.write_all_at(bytes, offset).map_err(at(&self.target))
    }

    /// Gives the complete file its name, and returns that. `replace` takes the place of a file of that name;
    /// else a number is added until a name is free. `sync` waits until the data are on the disk.
    ///
    /// # Errors
    /// [`DownloadError::File`]; both files stay then.
    pub fn finish(mut self, url: &Url, replace: bool, sync: bool) -> Result<PathBuf, DownloadError> {
        let path = part_path(&self.target);
        let validators = &self.record.validators;
        if let Some(seconds) = validators.modified_at() {
            let _ = self.file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds));
        }
        if let Ok(metadata) = self.file.metadata() {
            let origin = origin_mark(url, &metadata, validators);
            let _ = rustix::fs::fsetxattr(&self.file, ATTRIBUTE, origin.as_bytes(), XattrFlags::empty());
        }
        if sync {
            self.file.sync_all().map_err(at(&path))?;
        }
        let target = rename(&path, &self.target, replace).map_err(at(&self.target))?;
        self.is_settled = true;
        let _ = fs::remove_file(record_path(&self.target));
        Ok(target)
    }
}

/// Saves a part that was not completed, so that it survives a restart of the machine.
impl Drop for PartFile {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        if self.record.done.is_empty() {
            let _ = fs::remove_file(record_path(&self.target));
            let _ = fs::remove_file(part_path(&self.target));
            return;
        }
        self.sums.complete(&self.file, &self.record.done);
        self.record.is_synced = self.file.sync_data().is_ok();
        let _ = self.save();
    }
}

fn rename(from: &Path, target: &Path, replace: bool) -> io::Result<PathBuf> {
    if replace {
        return fs::rename(from, target).map(|()| target.to_owned());
    }
    for number in 0..MOST_NAMES {
        let target = numbered(target, number);
        match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, &target, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(target),
            Err(rustix::io::Errno::EXIST) => {}
            // A file system without the flag: a link is as atomic.
            Err(rustix::io::Errno::INVAL) => match fs::hard_link(from, &target) {
                Ok(()) => return fs::remove_file(from).map(|()| target),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The place to search for a part of an earlier run.
#[derive(Debug, Clone, Copy)]
pub enum PartLocation<'a> {
    Target(&'a Path),
    Directory(&'a Path),
}

/// True if this response would bring the complete file at `path`: it has the same length, and the same entity tag from
/// the same address, or the same date.
#[must_use]
pub fn is_same(path: &Path, url: &Url, validators: &Validators, total: u64) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    if !metadata.is_file() || metadata.len() != total {
        return false;
    }
    if let (Some((place, tag)), Some(etag)) = (read_mark(path), &validators.etag) {
        return place == place_mark(url) && tag == *etag;
    }
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    modified.is_some_and(|since| Some(since.as_secs()) == validators.modified_at())
}

/// The entity tag the complete file at `path` came with from this address.
#[must_use]
pub fn stored_tag(path: &Path, url: &Url) -> Option<String> {
    let (place, tag) = read_mark(path)?;
    (place == place_mark(url) && !tag.is_empty()).then_some(tag)
}

/// The origin of the file and its entity tag; `None` if the file was changed since.
fn read_mark(path: &Path) -> Option<(String, String)> {
    let mut buffer = [0; 1024];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut buffer[..]).ok()?;
    let mark = std::str::from_utf8(&buffer[..length]).ok()?;
    let (origin, tag) = mark.split_once(' ')?;
    let (place, state) = origin.split_once('/')?;
    let is_untouched = fs::metadata(path).is_ok_and(|metadata| state == state_mark(&metadata));
    is_untouched.then(|| (place.to_owned(), tag.to_owned()))
}

fn origin_mark(url: &Url, metadata: &fs::Metadata, validators: &Validators) -> String {
    let (place, state) = (place_mark(url), state_mark(metadata));
    format!("{place}/{state} {}", validators.etag.as_deref().unwrap_or_default())
}

/// The metadata that change when a file is written to.
fn state_mark(metadata: &fs::Metadata) -> String {
    format!("{}.{}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// A query may hold a secret, so the address is not kept as it is.
fn place_mark(url: &Url) -> String {
    blake3::hash(url.to_string().as_bytes()).to_hex()[..32].to_owned()
}

/// Identifies the machine's present run.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

fn lock(file: &File, path: &Path) -> Result<(), DownloadError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DownloadError::Busy { path: path.to_owned() }),
        // A file system without locks is used without them.
        _ => Ok(()),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> DownloadError {
    let path = path.to_owned();
    move |source| DownloadError::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("http://a/x.iso?token=1").expect("an address")
    }

    fn tagged(tag: &str) -> Validators {
        Validators {
            etag: Some(tag.to_owned()),
            last_modified: Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
            date_is_strong: true,
        }
    }

    #[test]
    fn what_was_written_is_found_again_and_only_under_its_address() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("x.iso");
        let mut part = PartFile::create(&target, true, &url()).expect("created");
        part.begin(&url(), tagged("\"a\""), Some(10)).expect("begun");
        part.write_at(b"01234", 0).expect("written");
        part.wrote(0, 5).expect("recorded");
        drop(part);
        let other = Url::parse("http://a/y.iso").expect("an address");
        assert!(
            PartFile::find(PartLocation::Directory(directory.path()), &other)
                .expect("looked")
                .is_none()
        );
        let again = Url::parse("http://a/x.iso?token=2").expect("an address");
        let part = PartFile::find(PartLocation::Directory(directory.path()), &again)
            .expect("looked")
            .expect("found");
        assert_eq!((part.done().prefix(), part.total()), (5, Some(10)));
        assert_eq!(part.validators(), &tagged("\"a\""));
    }

    #[test]
    fn a_record_of_an_earlier_boot_counts_only_if_its_data_were_synced() {
        for (is_synced, kept) in [(true, 5), (false, 0)] {
            let directory = tempfile::tempdir().expect("a directory");
            let target = directory.path().join("x.iso");
            let mut part = PartFile::create(&target, true, &url()).expect("created");
            part.write_at(b"01234", 0).expect("written");
            part.wrote(0, 5).expect("recorded");
            let path = record_path(&target);
            drop(part);
            let record = ResumeRecord {
                url: url().to_string(),
                validators: tagged("\"a\""),
                total: Some(10),
                done: vec![(0, 5)].into(),
                sums: Vec::new(),
                boot: "another".to_owned(),
                is_synced,
            };
            fs::write(&path, serde_json::to_vec(&record).expect("texts")).expect("written");
            let part = PartFile::find(PartLocation::Target(&target), &url())
                .expect("looked")
                .expect("found");
            assert_eq!(part.done().len(), kept);
        }
    }

    #[test]
    fn a_record_that_claims_more_than_the_file_holds_is_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("x.iso");
        let mut part = PartFile::create(&target, true, &url()).expect("created");
        part.wrote(0, 5).expect("recorded");
        drop(part);
        let part = PartFile::find(PartLocation::Target(&target), &url())
            .expect("looked")
            .expect("found");
        assert!(part.done().is_empty());
    }

    #[test]
    fn two_downloads_never_write_one_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("x.iso");
        let first = PartFile::create(&target, true, &url()).expect("created");
        let second = PartFile::create(&target, true, &url()).expect("created");
        assert_eq!(second.target(), directory.path().join("x.1.iso"));
        assert!(matches!(
            PartFile::create(&target, false, &url()),
            Err(DownloadError::Busy { .. })
        ));
        assert!(matches!(
            PartFile::find(PartLocation::Target(first.target()), &url()),
            Err(DownloadError::Busy { .. })
        ));
    }

    #[test]
    fn a_part_file_of_another_program_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("x.iso");
        fs::write(part_path(&target), "theirs").expect("written");
        assert!(matches!(
            PartFile::create(&target, false, &url()),
            Err(DownloadError::InTheWay { .. })
        ));
        assert_eq!(fs::read(part_path(&target)).expect("still there"), b"theirs");
    }

    #[test]
    fn a_complete_file_never_takes_the_place_of_another_unasked() {
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("x.iso");
        let make = || {
            let mut part = PartFile::create(&target, false, &url()).expect("created");
            part.begin(&url(), tagged("\"a\""), Some(3)).expect("begun");
            part.write_at(b"new", 0).expect("written");
            part.wrote(0, 3).expect("recorded");
            part
        };
        fs::write(&target, "old").expect("written");
        let path = make().finish(&url(), false, false).expect("finished");
        assert_eq!(path, directory.path().join("x.1.iso"));
        assert_eq!(fs::read(&target).expect("there"), b"old");
        assert!(is_same(&path, &url(), &tagged("\"a\""), 3));
        assert!(!is_same(&path, &url(), &tagged("\"a\""), 4));
        let path = make().finish(&url(), true, true).expect("finished");
        assert_eq!(path, target);
        assert_eq!(fs::read(&target).expect("there"), b"new");
        assert_eq!(
            fs::read_dir(directory.path()).expect("there").count(),
            2,
            "nothing is left over"
        );
    }
}
