//! A directory of this machine: the store that needs nothing else.
//!
//! An object is written to a temporary file beside the others, brought to the disk, given its name in one step, and the
//! folder is brought to the disk too. So a name means a whole object, whatever the power does. Two processes may share
//! one directory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use crate::courier::blocking;
use crate::store::{Content, Key, Later, Part, Put, Store, StoreError};

/// Where files are written before they have their name.
const UNFINISHED: &str = "unfinished";
/// A file that nobody finished in that time belongs to nobody any more.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Objects as files below one directory.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: Arc<Path>,
}

impl LocalStore {
    /// Takes a directory, which is made if it is not there, and clears away what a crash left unfinished.
    ///
    /// # Errors
    /// The directory cannot be made, or not be written to.
    pub fn open(root: &Path) -> io::Result<Self> {
        let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o750).create(path);
        private(root)?;
        let unfinished = root.join(UNFINISHED);
        private(&unfinished)?;
        let store = Self { root: root.into() };
        store.clear(&unfinished)?;
        // Whether we may write there is found out now, and not by the first upload.
        drop(store.unfinished()?);
        Ok(store)
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn clear(&self, unfinished: &Path) -> io::Result<()> {
        for entry in fs::read_dir(unfinished)? {
            let entry = entry?;
            let age = SystemTime::now().duration_since(entry.metadata()?.modified()?);
            if age.is_ok_and(|age| age > ABANDONED) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.root.join(key.path())
    }

    fn unfinished(&self) -> io::Result<Unfinished> {
        loop {
            let name = format!("{}-{:016x}", std::process::id(), fastrand::u64(..));
            let path = self.root.join(UNFINISHED).join(name);
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Unfinished { file, path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn put_now(&self, key: &Key, content: &[u8]) -> io::Result<Put> {
        let path = self.path(key);
        if path.try_exists()? {
            return Ok(Put::Exists);
        }
        let mut unfinished = self.unfinished()?;
        unfinished.file.write_all(content)?;
        unfinished.file.sync_all()?;
        let folder = path.parent().unwrap_or(&self.root);
        self.make_folder(folder)?;
        // A link fails where a rename would replace: of two writers the second one is told.
        match fs::hard_link(&unfinished.path, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Put::Exists),
            Err(error) => return Err(error),
        }
        sync(folder)?;
        Ok(Put::Created)
    }

    /// Both folders of an object, each known to the disk before something lies in it.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let above = folder.parent().unwrap_or(&self.root);
        for (folder, above) in [(above, &*self.root), (folder, above)] {
            match DirBuilder::new().mode(0o750).create(folder) {
                Ok(()) => sync(above)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn get_now(&self, key: &Key) -> io::Result<Option<(File, u64)>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(self.path(key), flags, Mode::empty()) {
            Ok(file) => {
                let file = File::from(file);
                let length = file.metadata()?.len();
                Ok(Some((file, length)))
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

    /// The folders carry the first letters of what is in them, so their order is that of the keys.
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

/// The folders of two letters in one, in their order, from `first` on.
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

/// A file without its name yet; it goes unless it got one.
struct Unfinished {
    file: File,
    path: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Store for LocalStore {
    fn put<'a>(&'a self, key: &'a Key, content: Bytes) -> Later<'a, Result<Put, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.put_now(&key, &content)).await?) })
    }

    fn get<'a>(&'a self, key: &'a Key) -> Later<'a, Result<Option<Content>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let found = blocking(move || store.get_now(&key)).await?;
            Ok(found.map(|(file, length)| Content::File(file, length)))
        })
    }

    fn get_part<'a>(&'a self, key: &'a Key, _: Range<u64>) -> Later<'a, Result<Option<Part>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move {
            let found = blocking(move || store.get_now(&key)).await?;
            Ok(found.map(|(file, length)| Part::File(file, length)))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> Later<'a, Result<Option<u64>, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.head_now(&key)).await?) })
    }

    fn delete<'a>(&'a self, key: &'a Key) -> Later<'a, Result<bool, StoreError>> {
        let (store, key) = (self.clone(), key.clone());
        Box::pin(async move { Ok(blocking(move || store.delete_now(&key)).await?) })
    }

    fn list<'a>(&'a self, after: Option<&'a Key>, most: usize) -> Later<'a, Result<Vec<Key>, StoreError>> {
        let (store, after) = (self.clone(), after.cloned());
        Box::pin(async move { Ok(blocking(move || store.list_now(after.as_ref(), most)).await?) })
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Courier, suite};

    fn key(text: &str) -> Key {
        text.parse().expect("a key")
    }

    #[test]
    fn a_directory_keeps_what_every_store_promises() {
        let directory = tempfile::tempdir().expect("a directory");
        let courier = Courier::start().expect("a thread");
        let store = Arc::new(LocalStore::open(&directory.path().join("new/images")).expect("a store"));
        suite::store(&courier, store);
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
        File::create(&old)
            .and_then(|file| file.set_modified(SystemTime::now() - 2 * ABANDONED))
            .expect("an old file");
        LocalStore::open(directory.path()).expect("a store");
        assert!(
            !old.exists() && new.exists(),
            "another process may be writing the new one"
        );
    }

    #[test]
    fn a_link_in_the_place_of_an_object_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = LocalStore::open(directory.path()).expect("a store");
        fs::create_dir_all(directory.path().join("ab/cd")).expect("folders");
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("ab/cd/abcdef")).expect("a link");
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
