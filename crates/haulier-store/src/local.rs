//! A store in a directory of this machine.
//!
//! An object is written to a temporary file in the same directory, synced and renamed, and the folder is synced too, so
//! a name always means a whole object, even after a power cut. Two processes may share a directory. Files that root
//! creates in a directory of another account belong to that account.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use crate::checked::FileState;
use crate::folder::{Folder, Owner};
use crate::runtime::blocking;
use crate::store::{BoxFuture, Key, ObjectContent, ObjectPart, Put, Store, StoreError};

/// The folder of files being written.
const UNFINISHED: &str = "unfinished";
/// Age at which an unfinished file is abandoned.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Objects as files below one directory.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: Arc<Path>,
}

impl LocalStore {
    /// Opens a directory, which is created if missing, and removes abandoned temporary files.
    ///
    /// # Errors
    /// The directory cannot be created or written, or has a link in place of one of our folders.
    pub fn open(root: &Path) -> io::Result<Self> {
        let unfinished = Folder::make_at(root)?.make(UNFINISHED)?;
        clear(&unfinished, root);
        // Fails now if the directory is not writable, instead of at the first upload.
        drop(Unfinished::start(unfinished)?);
        Ok(Self { root: root.into() })
    }

    /// Opens a directory for reading only.
    #[must_use]
    pub fn to_read(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Changes the owner of root's files to the serving account: the directory, our folders in it, and their objects.
    /// Files of other accounts, and foreign files, stay unchanged.
    ///
    /// # Errors
    /// The owner cannot be changed; only root can.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        let owner = Owner::new(uid, gid);
        let root = Folder::open(&self.root)?;
        if let Some(unfinished) = root.inner_of_root(UNFINISHED)? {
            unfinished.give(owner)?;
        }
        for first in root.names()?.iter().filter(|name| is_folder(name)) {
            if let Some(outer) = root.inner_of_root(first)? {
                give_objects(&outer, first, owner)?;
                // After its content, so that the next start continues after an interruption.
                outer.give(owner)?;
            }
        }
        match Folder::of_root_at(&self.root)? {
            Some(root) => root.give(owner),
            None => Ok(()),
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.root.join(key.path())
    }

    fn put_now(&self, key: &Key, content: &[u8]) -> io::Result<Put> {
        if self.path(key).try_exists()? {
            return Ok(Put::Exists);
        }
        let root = Folder::open(&self.root)?;
        let unfinished = Unfinished::write(&root, content)?;
        let name = key.as_str();
        let folder = root.make(&name[..2])?.make(&name[2..4])?;
        // A link fails where a rename would replace, so the second of two writers learns that the object exists.
        match unfinished.folder.link(&unfinished.name, &folder, name) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Put::Exists),
            Err(error) => return Err(error),
        }
        folder.sync()?;
        Ok(Put::Created)
    }

    fn replace_now(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        let root = Folder::open(&self.root)?;
        let unfinished = Unfinished::write(&root, content)?;
        let name = key.as_str();
        let folder = root.make(&name[..2])?.make(&name[2..4])?;
        unfinished.folder.rename(&unfinished.name, &folder, name)?;
        folder.sync()
    }

    fn get_now(&self, key: &Key) -> io::Result<Option<(File, FileState)>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(self.path(key), flags, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                let state = FileState::of(&file.metadata()?);
                Ok(Some((file, state)))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn head_now(&self, key: &Key) -> io::Result<Option<u64>> {
        absent_as_none(fs::symlink_metadata(self.path(key)).map(|metadata| metadata.len()))
    }

    fn delete_now(&self, key: &Key) -> io::Result<bool> {
        let path = self.path(key);
        let removed = absent_as_none(fs::remove_file(&path))?.is_some();
        if removed {
            sync(path.parent().unwrap_or(&self.root))?;
        }
        Ok(removed)
    }

    /// Folders are named by the first letters of their keys, so their order is that of the keys.
    fn list_now(&self, after: Option<&Key>, most: usize) -> io::Result<Vec<Key>> {
        let mut keys = Vec::new();
        let first = after.map_or("", |key| key.as_str());
        for outer in folders(&self.root, &first[..first.len().min(2)])? {
            for inner in folders(
                &self.root.join(&outer),
                if first.starts_with(&outer) { &first[2..4] } else { "" },
            )? {
                let names = names(&self.root.join(&outer).join(&inner))?;
                let found = names.into_iter().filter_map(|name| name.parse::<Key>().ok());
                keys.extend(found.filter(|key| after.is_none_or(|after| key > after)));
                if keys.len() >= most {
                    keys.truncate(most);
                    return Ok(keys);
                }
            }
        }
        Ok(keys)
    }
}

/// Removes abandoned files. Errors are only logged. A file that has gone meanwhile was finished by its writer.
fn clear(unfinished: &Folder, place: &Path) {
    let failed = |error: io::Error| {
        tracing::warn!(store = %place.display(), %error, "abandoned files of the store cannot be removed");
    };
    let names = unfinished.names().unwrap_or_else(|error| {
        failed(error);
        Vec::new()
    });
    for name in names {
        match clear_if_abandoned(unfinished, &name) {
            Err(error) if error.kind() != ErrorKind::NotFound => failed(error),
            _ => {}
        }
    }
}

fn clear_if_abandoned(unfinished: &Folder, name: &str) -> io::Result<()> {
    let age = SystemTime::now().duration_since(unfinished.modified(name)?);
    if age.is_ok_and(|age| age > ABANDONED) {
        unfinished.remove(name)?;
    }
    Ok(())
}

/// True if a folder of this name may hold objects.
fn is_folder(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() == 2 && name.bytes().all(fits)
}

/// Changes the owner of the folders in one, and of their objects.
fn give_objects(outer: &Folder, first: &str, owner: Owner) -> io::Result<()> {
    for second in outer.names()?.iter().filter(|name| is_folder(name)) {
        let Some(inner) = outer.inner_of_root(second)? else {
            continue;
        };
        for name in inner.names()? {
            let path = format!("{first}/{second}/{name}");
            if name.parse::<Key>().is_ok_and(|key| key.path() == path) {
                inner.give_file(&name, owner)?;
            }
        }
        inner.give(owner)?;
    }
    Ok(())
}

/// The folders of two letters in a directory, in order, from `first` on.
fn folders(path: &Path, first: &str) -> io::Result<Vec<String>> {
    let mut names = names(path)?;
    names.retain(|name| name.len() == 2 && name.as_str() >= first);
    Ok(names)
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = absent_as_none(fs::read_dir(path))? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

fn absent_as_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A temporary file, which is removed when dropped.
struct Unfinished {
    file: File,
    folder: Folder,
    name: String,
}

impl Unfinished {
    /// Writes a file in the store at `root`, and syncs it to disk.
    fn write(root: &Folder, content: &[u8]) -> io::Result<Self> {
        let mut unfinished = Self::start(root.inner(UNFINISHED)?)?;
        unfinished.file.write_all(content)?;
        unfinished.file.sync_all()?;
        Ok(unfinished)
    }

    fn start(folder: Folder) -> io::Result<Self> {
        loop {
            let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
            match folder.create(&name) {
                Ok(file) => return Ok(Self { file, folder, name }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

impl Store for LocalStore {
    fn put<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<Put, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.put_now(&key, &content)).await?) })
    }

    fn replace<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.replace_now(&key, &content)).await?) })
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<ObjectContent>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let found = blocking(move || store.get_now(&key)).await?;
            Ok(found.map(|(file, state)| ObjectContent::File(file, state)))
        })
    }

    fn get_part<'a>(&'a self, key: &'a Key, _: Range<u64>) -> BoxFuture<'a, Result<Option<ObjectPart>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let found = blocking(move || store.get_now(&key)).await?;
            Ok(found.map(|(file, state)| ObjectPart::File(file, state)))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<u64>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.head_now(&key)).await?) })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.delete_now(&key)).await?) })
    }

    fn list<'a>(&'a self, after: Option<&'a Key>, most: usize) -> BoxFuture<'a, Result<Vec<Key>, StoreError>> {
        let (store, after) = (self.clone(), after.cloned());
        Box::pin(async move { Ok(blocking(move || store.list_now(after.as_ref(), most)).await?) })
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::thread;

    use super::*;
    use crate::{StoreRuntime, suite};

    /// An account that does not exist.
    const SOMEBODY: u32 = 12_345;

    fn key(text: &str) -> Key {
        text.parse().expect("a key")
    }

    fn write_old(path: &Path) {
        File::create(path)
            .and_then(|file| file.set_modified(SystemTime::now() - 2 * ABANDONED))
            .expect("an old file");
    }

    fn owner(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").uid()
    }

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            eprintln!("SKIPPED: only root gives files away");
        }
        is_root
    }

    #[test]
    fn a_directory_keeps_what_every_store_promises() {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = StoreRuntime::start().expect("a thread");
        let store = Arc::new(LocalStore::open(&directory.path().join("new/images")).expect("a store"));
        suite::store(&runtime, store);
    }

    #[test]
    fn nothing_unfinished_is_left_behind_and_old_rests_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LocalStore::open(directory.path()).expect("a store");
        let unfinished = directory.path().join(UNFINISHED);
        assert_eq!(store.put_now(&key("abcdef"), b"x").expect("stored"), Put::Created);
        assert_eq!(store.put_now(&key("abcdef"), b"y").expect("kept"), Put::Exists);
        assert_eq!(fs::read_dir(&unfinished).expect("a folder").count(), 0);
        let (old, new) = (unfinished.join("old"), unfinished.join("new"));
        fs::write(&new, "x").expect("a file");
        write_old(&old);
        LocalStore::open(directory.path()).expect("a store");
        assert!(
            !old.exists() && new.exists(),
            "another process may be writing the new one"
        );
    }

    #[test]
    fn what_cannot_be_cleared_away_keeps_no_store_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let unfinished = directory.path().join(UNFINISHED);
        let stays = unfinished.join("folder");
        fs::create_dir_all(&stays).expect("folders");
        File::open(&stays)
            .and_then(|folder| folder.set_modified(SystemTime::now() - 2 * ABANDONED))
            .expect("an old folder");
        for name in ["a", "z"] {
            write_old(&unfinished.join(name));
        }
        LocalStore::open(directory.path()).expect("a store");
        assert_eq!(fs::read_dir(&unfinished).expect("a folder").count(), 1);
        assert!(stays.exists(), "only files are cleared away");
    }

    #[test]
    fn a_store_opens_beside_uploads_that_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LocalStore::open(directory.path()).expect("a store");
        let uploads = thread::spawn(move || {
            for number in 0..100 {
                store.put_now(&key(&format!("abcd{number}")), b"x").expect("stored");
            }
        });
        loop {
            LocalStore::open(directory.path()).expect("what has ended is gone, and that is well");
            if uploads.is_finished() {
                break;
            }
        }
        uploads.join().expect("no panic");
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_refused_and_what_it_leads_to_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let (elsewhere, root) = (directory.path().join("elsewhere"), directory.path().join("store"));
        fs::create_dir(&elsewhere).expect("a folder");
        fs::create_dir(&root).expect("a folder");
        write_old(&elsewhere.join("old"));
        symlink(&elsewhere, root.join(UNFINISHED)).expect("a link");
        LocalStore::open(&root).expect_err("that folder would be ours");
        fs::remove_file(root.join(UNFINISHED)).expect("it is a link");
        let store = LocalStore::open(&root).expect("a store");
        symlink(&elsewhere, root.join("ab")).expect("a link");
        store.put_now(&key("abcdef"), b"x").expect_err("so would this one");
        fs::create_dir(root.join("cd")).expect("a folder");
        symlink(&elsewhere, root.join("cd/ef")).expect("a link");
        store.put_now(&key("cdefgh"), b"x").expect_err("and this one");
        let names = names(&elsewhere).expect("a list");
        assert_eq!(names, ["old"]);
        assert_eq!(fs::read_dir(root.join(UNFINISHED)).expect("a folder").count(), 0);
    }

    #[test]
    fn what_root_puts_into_the_directory_of_an_account_is_that_accounts() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        chown(directory.path(), Some(SOMEBODY), Some(SOMEBODY)).expect("root may");
        let store = LocalStore::open(directory.path()).expect("a store");
        assert_eq!(store.put_now(&key("abcdef"), b"x").expect("stored"), Put::Created);
        for made in [UNFINISHED, "ab", "ab/cd", "ab/cd/abcdef"] {
            assert_eq!(owner(&directory.path().join(made)), SOMEBODY, "{made}");
        }
    }

    #[test]
    fn what_root_has_made_is_given_away_and_nothing_else() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (elsewhere, root) = (directory.path().join("elsewhere"), directory.path().join("store"));
        let store = LocalStore::open(&root).expect("a store");
        store.put_now(&key("abcdef"), b"x").expect("stored");
        for folder in [
            elsewhere.join("cd"),
            root.join("notes/ab"),
            root.join("ab/notes"),
            root.join("ef/gh"),
        ] {
            fs::create_dir_all(folder).expect("folders");
        }
        for file in ["ab/cd/READ ME", "ab/cd/efghij", "ef/gh/efghij"] {
            fs::write(root.join(file), "x").expect("a file");
        }
        fs::hard_link(root.join("ef/gh/efghij"), elsewhere.join("other")).expect("another name");
        symlink(&elsewhere, root.join("gh")).expect("a link");
        symlink(&elsewhere, root.join("ab/gh")).expect("a link");
        symlink(elsewhere.join("other"), root.join("ab/cd/abcdzz")).expect("a link");
        fs::create_dir(root.join("zz")).expect("a folder");
        chown(root.join("zz"), Some(SOMEBODY + 1), None).expect("root may");
        store.give_to(SOMEBODY, SOMEBODY).expect("root may");
        for given in ["", UNFINISHED, "ab", "ab/cd", "ab/cd/abcdef", "ef", "ef/gh"] {
            assert_eq!(owner(&root.join(given)), SOMEBODY, "{given}");
        }
        let folders = ["notes", "notes/ab", "ab/notes"];
        let files = ["ab/cd/READ ME", "ab/cd/efghij", "ef/gh/efghij"];
        let links = ["gh", "ab/gh", "ab/cd/abcdzz"];
        for kept in [folders, files, links].concat() {
            assert_eq!(owner(&root.join(kept)), 0, "{kept}");
        }
        assert_eq!((owner(&elsewhere), owner(&elsewhere.join("cd"))), (0, 0));
        assert_eq!(owner(&root.join("zz")), SOMEBODY + 1, "it has an owner");
        store.give_to(SOMEBODY, SOMEBODY).expect("there is nothing to do");
    }

    #[test]
    fn a_directory_that_is_a_link_is_not_given_away() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (elsewhere, root) = (directory.path().join("elsewhere"), directory.path().join("store/"));
        fs::create_dir(&elsewhere).expect("a folder");
        symlink(&elsewhere, directory.path().join("store")).expect("a link");
        let store = LocalStore::open(&root).expect("the configuration may name a link");
        store.give_to(SOMEBODY, SOMEBODY).expect("root may");
        assert_eq!(owner(&elsewhere), 0);
        assert_eq!(owner(&elsewhere.join(UNFINISHED)), SOMEBODY);
    }

    #[test]
    fn a_link_in_the_place_of_an_object_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LocalStore::open(directory.path()).expect("a store");
        fs::create_dir_all(directory.path().join("ab/cd")).expect("folders");
        symlink("/etc/passwd", directory.path().join("ab/cd/abcdef")).expect("a link");
        assert!(store.get_now(&key("abcdef")).is_err());
    }

    #[test]
    fn what_is_no_object_is_not_listed() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LocalStore::open(directory.path()).expect("a store");
        store.put_now(&key("abcdef"), b"x").expect("stored");
        fs::write(directory.path().join("ab/cd/READ ME"), "x").expect("a file");
        fs::write(directory.path().join("zz"), "x").expect("a file");
        assert_eq!(store.list_now(None, 10).expect("a list"), [key("abcdef")]);
    }
}
