//! Compressed copies of files, made once at the highest levels and kept in a directory.
//!
//! One low-priority thread makes them one by one, each only once. The name of a copy contains the state of its file, so
//! a changed file has no copies until new ones are made. When the directory is full, the oldest copies are removed.
//!
//! A copy is sealed under its name (`haulier_store::sealed`) and verified when this process first opens it. A
//! dictionary is named by its own hash and verified when it is used.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;

use haulier_http::OpenFile;
use haulier_proto::accept::Coding;
use haulier_proto::dictionary::Hash;
use haulier_store::cache::CacheKey;
use haulier_store::sealed::{self, SEAL, SealState};
use haulier_store::{Checked, FileState};
use sha2::{Digest, Sha256};

use super::{codec, dictionary, policy};
use crate::lock::lock;

/// Longest queue of files; requests beyond it retry later.
const MOST_WAITING: usize = 64;
/// Larger files get no copy, bytes: making one would take minutes.
pub(crate) const MOST_LENGTH: u64 = 64 * 1024 * 1024;
/// Larger files are no dictionaries, bytes: file and dictionary must fit the window of browsers (RFC 9659).
pub(crate) const MOST_DICTIONARY: u64 = 4 * 1024 * 1024;
/// Most remembered files that gain nothing.
const MOST_USELESS: usize = 4096;
/// Copies up to this length are verified by the calling thread, bytes: that takes less than sending them.
const AT_ONCE: u64 = 64 * 1024;
/// Suffix of sealed files, unknown to older versions of haulier that use the same directory.
const SEALED: &str = "sealed";

/// The directory of compressed copies, with the thread that makes them.
#[derive(Debug)]
pub struct CompressedStore {
    directory: PathBuf,
    /// Most bytes of all copies together.
    limit: u64,
    state: Mutex<StoreState>,
    /// Copies that were verified.
    checked: Checked,
    jobs: SyncSender<CopyJob>,
}

#[derive(Debug, Default)]
struct StoreState {
    /// Total size of the directory, bytes.
    bytes: u64,
    /// Copies that are queued, being made, or being verified.
    underway: HashSet<OsString>,
    /// Copies that would not be smaller than their files.
    useless: HashSet<OsString>,
}

/// Result of looking for a copy.
#[derive(Debug)]
pub(crate) enum CompressedCopy {
    /// Open for reading; its length in bytes.
    Ready(File, u64),
    /// Not made yet.
    Absent,
    /// Coding gains nothing.
    Useless,
}

#[derive(Debug)]
struct CopyJob {
    name: OsString,
    file: Arc<OpenFile>,
    kind: CopyKind,
}

/// The kind of copy to make.
#[derive(Debug, Clone, Copy)]
enum CopyKind {
    /// A copy that needs no dictionary.
    Plain(Coding),
    /// The difference from the dictionary with this hash.
    Difference(Hash),
    /// An uncoded copy under its own hash: a dictionary for later versions.
    Dictionary,
}

impl CompressedStore {
    /// Opens a directory, created if missing, and starts the thread. `owner` is the account (user and group id) that
    /// the process will switch to; `None` keeps the present one.
    ///
    /// # Errors
    /// The directory cannot be created, or other accounts may write to it: its content is sent to clients.
    pub fn open(directory: &Path, limit: u64, owner: Option<(u32, u32)>) -> io::Result<Arc<Self>> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
            Ok(()) => {
                if let Some((user, group)) = owner {
                    lchown(directory, Some(user), Some(group))?;
                }
            }
        }
        let metadata = fs::symlink_metadata(directory)?;
        let account = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user);
        let ours = metadata.uid() == account;
        if !metadata.is_dir() || !ours || metadata.mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not ours alone", directory.display()),
            ));
        }
        let (jobs, waiting) = sync_channel(MOST_WAITING);
        let store = Arc::new(Self {
            directory: directory.to_owned(),
            limit,
            state: Mutex::default(),
            checked: Checked::default(),
            jobs,
        });
        store.forget_unsealed()?;
        store.tidy()?;
        let maker = Arc::downgrade(&store);
        std::thread::Builder::new()
            .name("variants".into())
            .spawn(move || make_all(&maker, &waiting))?;
        Ok(store)
    }

    /// The copy of a file in the state that `key` names.
    pub(crate) fn find(self: &Arc<Self>, key: &str, coding: Coding) -> CompressedCopy {
        self.look(file_name(key, coding))
    }

    /// The difference of such a file from the dictionary with this hash.
    pub(crate) fn find_difference(self: &Arc<Self>, key: &str, from: &Hash) -> CompressedCopy {
        if self.directory.join(dictionary_name(from)).exists() {
            self.look(difference_name(key, from))
        } else {
            CompressedCopy::Useless
        }
    }

    fn look(self: &Arc<Self>, name: OsString) -> CompressedCopy {
        if let Ok(file) = File::open(self.directory.join(&name))
            && let Ok(metadata) = file.metadata()
        {
            return self.compared(name, file, &FileState::of(&metadata));
        }
        if lock(&self.state).useless.contains(&name) {
            CompressedCopy::Useless
        } else {
            CompressedCopy::Absent
        }
    }

    /// Verifies a copy before its first use. A long one is verified in the background; the file itself is sent
    /// meanwhile.
    fn compared(self: &Arc<Self>, name: OsString, file: File, state: &FileState) -> CompressedCopy {
        if let Some(length) = sealed::known(state, seal_name(&name).as_bytes(), &self.checked) {
            return CompressedCopy::Ready(file, length);
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if state.length() > AT_ONCE => {
                if lock(&self.state).underway.insert(name.clone()) {
                    let (store, state) = (Arc::clone(self), *state);
                    runtime.spawn_blocking(move || {
                        store.compare(&name, &file, &state);
                        lock(&store.state).underway.remove(&name);
                    });
                }
                CompressedCopy::Absent
            }
            _ => match self.compare(&name, &file, state) {
                Some(length) => CompressedCopy::Ready(file, length),
                None => CompressedCopy::Absent,
            },
        }
    }

    /// Verifies a copy and returns its length. Removes it if it is damaged.
    fn compare(&self, name: &OsStr, file: &File, state: &FileState) -> Option<u64> {
        let path = self.directory.join(name);
        match sealed::open(file, state, seal_name(name).as_bytes(), &self.checked) {
            Ok(SealState::Whole(length)) => return Some(length),
            Ok(SealState::Unsealed) => {}
            Ok(SealState::Damaged) => {
                tracing::warn!(file = %path.display(), "a compressed copy was damaged and removed; it will be made again");
            }
            Err(error) => tracing::warn!(file = %path.display(), %error, "a compressed copy cannot be read"),
        }
        if fs::remove_file(path).is_ok() {
            let mut state_of_all = lock(&self.state);
            state_of_all.bytes = state_of_all.bytes.saturating_sub(state.length());
        }
        None
    }

    /// Orders a copy, unless it is ordered already or the queue is full.
    pub(crate) fn make(&self, key: &str, coding: Coding, file: &Arc<OpenFile>) {
        self.order(&file_name(key, coding), file, CopyKind::Plain(coding));
    }

    /// Orders the difference from a dictionary in the store.
    pub(crate) fn make_difference(&self, key: &str, from: &Hash, file: &Arc<OpenFile>) {
        self.order(&difference_name(key, from), file, CopyKind::Difference(*from));
    }

    /// Orders an uncoded copy of a file, as the dictionary of later versions.
    pub(crate) fn keep(&self, key: &str, file: &Arc<OpenFile>) {
        self.order(&format!("{key}.kept").into(), file, CopyKind::Dictionary);
    }

    fn order(&self, name: &OsString, file: &Arc<OpenFile>, kind: CopyKind) {
        if file.length() > MOST_LENGTH || !lock(&self.state).underway.insert(name.clone()) {
            return;
        }
        let job = CopyJob {
            name: name.clone(),
            file: Arc::clone(file),
            kind,
        };
        if self.jobs.try_send(job).is_err() {
            lock(&self.state).underway.remove(name);
        }
    }

    fn work(&self, job: &CopyJob) {
        // A thread that missed the finished copy has ordered it again.
        if self.directory.join(&job.name).exists() {
            lock(&self.state).underway.remove(&job.name);
            return;
        }
        match self.build(job) {
            Ok(Some(bytes)) => lock(&self.state).bytes += bytes,
            Ok(None) => {
                let mut state = lock(&self.state);
                if state.useless.len() >= MOST_USELESS {
                    state.useless.clear();
                }
                state.useless.insert(job.name.clone());
            }
            Err(error) => {
                tracing::warn!(%error, directory = %self.directory.display(), "cannot store a compressed copy");
            }
        }
        lock(&self.state).underway.remove(&job.name);
        if lock(&self.state).bytes > self.limit
            && let Err(error) = self.tidy()
        {
            tracing::warn!(%error, directory = %self.directory.display(), "cannot remove old compressed copies");
        }
    }

    /// Makes a copy and returns its length; `None` if it would not be smaller.
    fn build(&self, job: &CopyJob) -> io::Result<Option<u64>> {
        let before = FileState::of(&job.file.file().metadata()?);
        let mut content = vec![0; job.file.length() as usize];
        job.file.file().read_exact_at(&mut content, 0)?;
        let (name, made) = match job.kind {
            CopyKind::Plain(coding) => {
                let choice = policy::stored(coding, job.file.length());
                let coded = codec::whole(choice, &content).map_err(io::Error::other)?;
                (job.name.clone(), coded)
            }
            CopyKind::Difference(hash) => {
                let from = self.dictionary(&hash)?;
                let choice = policy::stored(Coding::DictionaryZstd, job.file.length() + from.len() as u64);
                let coded = codec::difference(choice, &from, &content).map_err(io::Error::other)?;
                (job.name.clone(), coded.unwrap_or_else(|| content.clone()))
            }
            CopyKind::Dictionary => {
                let name = dictionary_name(&Sha256::digest(&content).into());
                if self.directory.join(&name).exists() {
                    return Ok(Some(0));
                }
                (name, std::mem::take(&mut content))
            }
        };
        if !matches!(job.kind, CopyKind::Dictionary) && made.len() >= content.len() {
            return Ok(None);
        }
        // The file changed meanwhile: its content may be a mixture of old and new.
        if FileState::of(&job.file.file().metadata()?) != before {
            return Err(io::Error::other("the file changed while it was read"));
        }
        let mut unfinished = name.clone();
        unfinished.push(".new");
        let unfinished = self.directory.join(unfinished);
        let written = File::create(&unfinished)
            .and_then(|mut file| match job.kind {
                CopyKind::Dictionary => file.write_all(&made),
                _ => sealed::write(&mut file, seal_name(&name).as_bytes(), &made),
            })
            .and_then(|()| fs::rename(&unfinished, self.directory.join(&name)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map(|()| Some(made.len() as u64 + SEAL))
    }

    /// The dictionary with this hash. Removes one whose content does not match.
    fn dictionary(&self, hash: &Hash) -> io::Result<Vec<u8>> {
        let path = self.directory.join(dictionary_name(hash));
        let content = fs::read(&path)?;
        let found: Hash = Sha256::digest(&content).into();
        if found != *hash {
            fs::remove_file(&path)?;
            return Err(io::Error::other("a dictionary was damaged and removed"));
        }
        Ok(content)
    }

    /// Removes unsealed copies written by older versions.
    fn forget_unsealed(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_of_ours = name
                .to_string_lossy()
                .rsplit_once('.')
                .is_some_and(|(_, end)| Coding::ALL.iter().any(|coding| coding.as_str() == end));
            if is_of_ours && entry.file_type()?.is_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Computes the total size. If it exceeds the limit, removes the oldest copies until a quarter is free.
    fn tidy(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        if bytes > self.limit {
            files.sort_unstable();
            for (_, length, path) in files {
                if bytes <= self.limit / 4 * 3 {
                    break;
                }
                fs::remove_file(path)?;
                bytes -= length;
            }
        }
        lock(&self.state).bytes = bytes;
        Ok(())
    }
}

fn file_name(key: &str, coding: Coding) -> OsString {
    format!("{key}.{}.{SEALED}", coding.as_str()).into()
}

fn difference_name(key: &str, from: &Hash) -> OsString {
    let hash = dictionary::hex(from);
    format!("{key}.{}.{}.{SEALED}", &hash[..16], Coding::DictionaryZstd.as_str()).into()
}

/// The name a copy is sealed under: state of its file, and coding.
fn seal_name(name: &OsStr) -> CacheKey {
    CacheKey::of(&[b"variant", name.as_bytes()])
}

fn dictionary_name(hash: &Hash) -> OsString {
    format!("{}.dictionary", dictionary::hex(hash)).into()
}

/// Main loop of the thread; ends with the store.
fn make_all(store: &Weak<CompressedStore>, jobs: &Receiver<CopyJob>) {
    // Linux applies this to the calling thread: a tenth of a serving thread's share, so it is never starved. If
    // refused, copies are made at normal priority.
    let _ = rustix::process::setpriority_process(None, 10);
    while let Ok(job) = jobs.recv() {
        match store.upgrade() {
            Some(store) => store.work(&job),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn open_file(directory: &Path, content: &[u8]) -> Arc<OpenFile> {
        let path = directory.join("file");
        fs::write(&path, content).expect("a file");
        Arc::new(OpenFile::new(File::open(path).expect("it"), content.len() as u64))
    }

    fn settled(store: &Arc<CompressedStore>, key: &str, coding: Coding) -> CompressedCopy {
        for _ in 0..1000 {
            if lock(&store.state).underway.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        store.find(key, coding)
    }

    #[test]
    fn a_copy_is_made_once_and_found_again_by_the_next_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("variants");
        let body = "the same words again and again, ".repeat(500);
        let file = open_file(directory.path(), body.as_bytes());
        let store = CompressedStore::open(&kept, 1 << 20, None).expect("a store");
        for coding in Coding::PLAIN {
            assert!(matches!(store.find("k", coding), CompressedCopy::Absent));
            store.make("k", coding, &file);
            store.make("k", coding, &file);
        }
        for coding in Coding::PLAIN {
            let CompressedCopy::Ready(variant, length) = settled(&store, "k", coding) else {
                panic!("{coding:?} was not made");
            };
            let mut coded = vec![0; length as usize];
            variant.read_exact_at(&mut coded, 0).expect("its bytes");
            assert_eq!(codec::decode(coding, &coded), body.as_bytes());
        }
        assert_eq!(fs::read_dir(&kept).expect("a directory").count(), 3);
        drop(store);
        let again = CompressedStore::open(&kept, 1 << 20, None).expect("a store");
        assert!(matches!(again.find("k", Coding::Zstd), CompressedCopy::Ready(..)));
        assert!(lock(&again.state).bytes > 0);
    }

    #[test]
    fn a_damaged_copy_and_one_of_another_file_are_never_found_and_made_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("variants");
        let file = open_file(
            directory.path(),
            "the same words again and again, ".repeat(500).as_bytes(),
        );
        let store = CompressedStore::open(&kept, 1 << 20, None).expect("a store");
        for key in ["one", "two"] {
            store.make(key, Coding::Gzip, &file);
            assert!(matches!(settled(&store, key, Coding::Gzip), CompressedCopy::Ready(..)));
        }
        // The clock of the file system is coarse.
        std::thread::sleep(Duration::from_millis(20));
        let path = |key| kept.join(file_name(key, Coding::Gzip));
        let damages: [&dyn Fn(); 3] = [
            &|| {
                let variant = File::options().write(true).open(path("one")).expect("it is there");
                variant.write_all_at(&[0xff], 20).expect("it is ours");
            },
            &|| fs::copy(path("two"), path("one")).map(drop).expect("it is ours"),
            &|| fs::write(path("one"), [0x1f, 0x8b, 8]).expect("it is ours"),
        ];
        for damage in damages {
            damage();
            assert!(matches!(store.find("one", Coding::Gzip), CompressedCopy::Absent));
            assert!(!path("one").exists());
            store.make("one", Coding::Gzip, &file);
            assert!(matches!(
                settled(&store, "one", Coding::Gzip),
                CompressedCopy::Ready(..)
            ));
        }
    }

    #[tokio::test]
    async fn a_long_copy_is_verified_in_the_background() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("variants");
        drop(CompressedStore::open(&kept, 1 << 20, None).expect("a store"));
        let name = file_name("k", Coding::Gzip);
        let mut written = File::create(kept.join(&name)).expect("a file");
        let content = vec![7; AT_ONCE as usize + 1];
        sealed::write(&mut written, seal_name(&name).as_bytes(), &content).expect("written");
        let store = CompressedStore::open(&kept, 1 << 20, None).expect("a store");
        assert!(matches!(store.find("k", Coding::Gzip), CompressedCopy::Absent));
        while !lock(&store.state).underway.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let found = store.find("k", Coding::Gzip);
        assert!(matches!(found, CompressedCopy::Ready(_, length) if length == content.len() as u64));
    }

    #[test]
    fn unsealed_files_of_an_older_version_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("variants");
        drop(CompressedStore::open(&kept, 1 << 20, None).expect("a store"));
        for name in ["k.gzip", "k.br", "k.0123.dcz", "0123.dictionary", "notes.txt"] {
            fs::write(kept.join(name), "x").expect("a file");
        }
        let store = CompressedStore::open(&kept, 1 << 20, None).expect("a store");
        assert!(matches!(store.find("k", Coding::Gzip), CompressedCopy::Absent));
        assert_eq!(fs::read_dir(&kept).expect("a directory").count(), 2);
    }

    #[test]
    fn a_file_that_does_not_shrink_is_remembered_as_useless() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = CompressedStore::open(&directory.path().join("variants"), 1 << 20, None).expect("a store");
        let file = open_file(directory.path(), b"ab");
        store.make("k", Coding::Gzip, &file);
        assert!(matches!(settled(&store, "k", Coding::Gzip), CompressedCopy::Useless));
    }

    #[test]
    fn the_oldest_copies_are_removed_when_the_directory_is_full() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = directory.path().join("variants");
        let store = CompressedStore::open(&kept, 1000, None).expect("a store");
        for number in 0..20 {
            fs::write(kept.join(format!("{number:02}.gzip.sealed")), [0; 100]).expect("a variant");
            let age = Duration::from_secs(100 - number);
            let file = File::options()
                .write(true)
                .open(kept.join(format!("{number:02}.gzip.sealed")))
                .expect("it");
            file.set_modified(SystemTime::now() - age).expect("a time");
        }
        store.tidy().expect("a tidy directory");
        assert_eq!(lock(&store.state).bytes, 700);
        assert!(!kept.join("12.gzip.sealed").exists() && kept.join("13.gzip.sealed").exists());
    }

    #[test]
    fn a_directory_writable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let shared = directory.path().join("shared");
        fs::create_dir(&shared).expect("a directory");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("its mode");
        assert!(CompressedStore::open(&shared, 1000, None).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).expect("a link");
        assert!(CompressedStore::open(&link, 1000, None).is_err());
    }
}
