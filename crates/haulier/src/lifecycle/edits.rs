//! Files of projects whose script stays booted, watched while a developer works on them: a change boots the script anew.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until};

use super::serving_process::blocking;
use crate::config::Settings;
use crate::config::settings::Site;
use crate::quantity::plural;

/// Interval of the checks. A change counts once two checks saw the same files: editors write in pieces.
const PACE: Duration = Duration::from_millis(100);
/// Checks use at most one part in this many of a processor.
const SHARE: u32 = 50;
/// Entries of all directories that are looked at; the others are not watched.
const ENTRIES: usize = 50_000;
/// Endings of files that an application reads when it boots.
const ENDINGS: [&str; 9] = ["php", "yaml", "yml", "xml", "neon", "ini", "twig", "latte", "lock"];
/// Directories that programs write to while the application runs.
const PASSED_OVER: [&str; 8] = [
    "var",
    "vendor",
    "node_modules",
    "cache",
    "storage",
    "log",
    "logs",
    "tmp",
];
/// What Composer writes last.
const INSTALLED: &str = "vendor/composer/installed.json";

/// Time and length of each file.
type Snapshot = BTreeMap<PathBuf, (SystemTime, u64)>;

/// The watched projects of one configuration.
#[derive(Debug)]
pub(super) struct Edits {
    directories: Vec<PathBuf>,
    /// The files that the workers have booted with.
    booted: Snapshot,
    /// The files at the last check.
    seen: Snapshot,
    /// The time in which the workers booted last.
    boot: (SystemTime, SystemTime),
    /// Files that were written while the workers booted, once.
    written_by_boot: HashSet<PathBuf>,
    next: Instant,
}

/// A change of files.
#[derive(Debug)]
pub(super) struct Edit {
    /// The first file that has changed.
    pub(super) file: PathBuf,
    /// How many there are.
    pub(super) count: usize,
    began: SystemTime,
    files: Snapshot,
}

impl Edit {
    /// `src/Kernel.php`, or `src/Kernel.php and 2 other files`
    pub(super) fn in_words(&self) -> String {
        let file = self.file.display();
        match self.count {
            0 | 1 => file.to_string(),
            count => format!("{file} and {}", plural(count - 1, "other file")),
        }
    }
}

impl Edits {
    /// The projects whose script stays booted; none unless `is_on`.
    pub(super) fn new(is_on: bool, settings: &Settings) -> Self {
        let directories = directories(is_on, settings);
        let files = look(&directories);
        let now = SystemTime::now();
        Self {
            directories,
            seen: files.clone(),
            booted: files,
            boot: (now, now),
            written_by_boot: HashSet::new(),
            next: Instant::now() + PACE,
        }
    }

    /// Waits until files have changed.
    pub(super) async fn changed(&mut self) -> Edit {
        if self.directories.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep_until(self.next).await;
            let begun = Instant::now();
            let directories = self.directories.clone();
            let found = blocking(move || look(&directories)).await;
            self.next = Instant::now() + PACE.max(begun.elapsed() * SHARE);
            let before = std::mem::replace(&mut self.seen, found);
            if self.seen == self.booted || self.seen != before {
                continue;
            }
            let changed = self.take_changes();
            if let Some(file) = changed.first() {
                return Edit {
                    file: file.clone(),
                    count: changed.len(),
                    began: SystemTime::now(),
                    files: self.seen.clone(),
                };
            }
        }
    }

    /// The files that were changed, without those that each boot writes.
    fn take_changes(&mut self) -> Vec<PathBuf> {
        let gone = self.booted.keys().filter(|file| !self.seen.contains_key(*file));
        let other = self
            .seen
            .iter()
            .filter(|(file, state)| self.booted.get(*file) != Some(state));
        let mut changed: Vec<PathBuf> = gone.chain(other.map(|(file, _)| file)).cloned().collect();
        let (from, to) = self.boot;
        changed.retain(|file| {
            let is_of_boot = self.seen.get(file).is_some_and(|(time, _)| (from..=to).contains(time));
            if !is_of_boot {
                self.written_by_boot.remove(file);
                return true;
            }
            self.written_by_boot.insert(file.clone())
        });
        if changed.is_empty() {
            self.booted.clone_from(&self.seen);
        }
        changed
    }

    /// Notes that the workers have tried to boot with these files.
    pub(super) fn note(&mut self, edit: Edit) {
        self.boot = (edit.began, SystemTime::now());
        self.booted = edit.files;
    }

    /// Adopts the projects of a configuration that was read anew.
    pub(super) fn follow(&mut self, is_on: bool, settings: &Settings) {
        if directories(is_on, settings) != self.directories {
            *self = Self::new(is_on, settings);
        }
    }
}

/// The project directories of scripts that stay booted, each once.
fn directories(is_on: bool, settings: &Settings) -> Vec<PathBuf> {
    let sites = settings.sites.iter().flat_map(Site::mounts).filter(|_| is_on);
    let mut directories: Vec<PathBuf> = sites
        .filter_map(|site| {
            let script = &site.worker.as_ref()?.file;
            let project = site.project.as_ref().filter(|project| script.starts_with(project));
            project.map(PathBuf::as_path).or(script.parent()).map(Path::to_owned)
        })
        .collect();
    directories.sort();
    directories.dedup();
    directories
}

/// The watched files of these directories.
fn look(directories: &[PathBuf]) -> Snapshot {
    let mut files = Snapshot::new();
    let mut left = ENTRIES;
    for directory in directories {
        note(&directory.join(INSTALLED), &mut files);
        let mut open = vec![directory.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let Some(rest) = left.checked_sub(1) else { return files };
                left = rest;
                let (name, kind) = (entry.file_name(), entry.file_type());
                match kind {
                    Ok(kind) if kind.is_dir() && is_entered(&name) => open.push(entry.path()),
                    Ok(kind) if !kind.is_dir() && is_watched(&name) => note(&entry.path(), &mut files),
                    _ => {}
                }
            }
        }
    }
    files
}

fn note(file: &Path, files: &mut Snapshot) {
    let state = fs::metadata(file).and_then(|found| Ok((found.modified()?, found.len())));
    if let Ok(state) = state {
        files.insert(file.to_owned(), state);
    }
}

fn is_entered(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    !name.starts_with('.') && !PASSED_OVER.contains(&&*name)
}

fn is_watched(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str);
    let is_environment = name
        .to_str()
        .is_some_and(|name| name == ".env" || name.starts_with(".env."));
    is_environment || ending.is_some_and(|ending| ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_watched_and_what_programs_write_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let put = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().expect("below")).expect("the directory is ours");
            fs::write(path, "").expect("the directory is ours");
        };
        let watched = [
            ".env",
            ".env.local",
            "composer.lock",
            "config/a.yaml",
            "src/Deep/Er/K.php",
            INSTALLED,
        ];
        let others = [
            "var/cache/K.php",
            "vendor/x/y.php",
            ".git/a.php",
            "public/a.css",
            "storage/framework/v.php",
        ];
        watched.iter().chain(&others).for_each(|name| put(name));
        let found = look(&[place.path().to_owned()]);
        let names: Vec<String> = found
            .keys()
            .map(|file| file.strip_prefix(place.path()).expect("inside").display().to_string())
            .collect();
        let mut expected: Vec<&str> = watched.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_file_that_each_boot_writes_boots_nothing_anew() {
        let (file, start) = (PathBuf::from("/p/reference.php"), SystemTime::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let state = |seconds| Snapshot::from([(file.clone(), (at(seconds), 1))]);
        let mut edits = Edits {
            directories: Vec::new(),
            booted: state(0),
            seen: state(0),
            boot: (at(0), at(0)),
            written_by_boot: HashSet::new(),
            next: Instant::now(),
        };
        let mut change = |written: u64, boot: (u64, u64)| {
            edits.seen = state(written);
            edits.boot = (at(boot.0), at(boot.1));
            let changed = edits.take_changes();
            edits.booted = edits.seen.clone();
            !changed.is_empty()
        };
        assert!(change(11, (10, 12)), "it may be an edit");
        assert!(!change(21, (20, 22)), "the boot wrote it again");
        assert!(change(25, (20, 22)), "an edit after the boot");
        assert!(change(31, (30, 32)) && !change(41, (40, 42)));
    }
}
