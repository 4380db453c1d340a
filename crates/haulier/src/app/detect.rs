//! Finds out what a project directory holds.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use super::presets::{Layout, PRESETS, Preset};

/// A project on disk.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// Its rules.
    pub(crate) preset: &'static Preset,
    /// The document root.
    pub(crate) root: PathBuf,
    /// The front controller, as a path in the document root.
    pub(crate) front: Option<String>,
    /// A folder that a search for scripts could not read: it may hold some.
    pub(crate) unread: Option<PathBuf>,
}

impl App {
    /// True if a later detection may find more: no application was recognised, or no PHP.
    pub(crate) fn is_provisional(&self) -> bool {
        matches!(self.preset.name, "plain" | "static")
    }

    /// True if this later finding replaces `before`. A project without scripts never does: they may return at once, as
    /// when another branch is checked out.
    pub(crate) fn supersedes(&self, before: &Self) -> bool {
        self.preset.php && self != before
    }
}

impl PartialEq for App {
    fn eq(&self, other: &Self) -> bool {
        let is_the_same = self.preset.name == other.preset.name;
        is_the_same && self.root == other.root && self.front == other.front
    }
}

/// An application that was named and cannot be served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DetectError {
    /// No preset has this name.
    #[error("no application is called `{0}`")]
    UnknownName(String),
    /// The directory has no folder that could be its document root.
    #[error("{} is no {title}: {wanted} is not there", directory.display())]
    NotThere {
        title: &'static str,
        directory: PathBuf,
        wanted: String,
    },
}

/// The name that asks for detection.
pub(crate) const AUTO: &str = "auto";

/// Entries after which a search for scripts ends.
const ENTRIES: usize = 4000;
/// Folders deeper than this are not searched for scripts.
const DEPTH: usize = 4;

/// Recognises the project in `directory`: by its files if `name` is [`AUTO`], else as the application named.
///
/// # Errors
/// The name is unknown, or the directory lacks the front controller that its application needs.
pub(crate) fn detect(directory: &Path, name: &str) -> Result<App, DetectError> {
    if name == AUTO {
        return Ok(look(directory));
    }
    let preset = named(name).ok_or_else(|| DetectError::UnknownName(name.to_owned()))?;
    as_named(preset, directory)
}

fn named(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

fn look(directory: &Path) -> App {
    for preset in PRESETS.iter().filter(|preset| preset.detected) {
        if let Some(layout) = preset.layouts.iter().find(|layout| fits(layout, directory)) {
            return app(preset, layout, directory);
        }
    }
    let search = Search::scripts(directory);
    let fallback = if search.found { "plain" } else { "static" };
    let preset = named(fallback).expect("the table has `plain` and `static`");
    let layout = preset
        .layouts
        .iter()
        .find(|layout| fits(layout, directory))
        .expect("their last layout always fits");
    App {
        unread: search.unread.filter(|_| !search.found),
        ..app(preset, layout, directory)
    }
}

/// A named application needs only its front controller; its markers help to find the document root. The document root
/// itself may be given as the project, too.
fn as_named(preset: &'static Preset, directory: &Path) -> Result<App, DetectError> {
    let by_markers = preset.layouts.iter().find(|layout| fits(layout, directory));
    let by_front = || {
        preset
            .layouts
            .iter()
            .find(|layout| has_front(layout, &join(directory, layout.root)))
    };
    if let Some(layout) = by_markers.or_else(by_front) {
        return Ok(app(preset, layout, directory));
    }
    let inside = preset.layouts.iter().find(|layout| has_front(layout, directory));
    if let Some(layout) = inside {
        return Ok(App {
            preset,
            root: directory.to_owned(),
            front: layout.front.map(str::to_owned),
            unread: None,
        });
    }
    let wanted = preset.layouts.first().map_or_else(String::new, |layout| {
        join(
            Path::new(layout.root),
            layout.front.unwrap_or("").trim_start_matches('/'),
        )
        .display()
        .to_string()
    });
    Err(DetectError::NotThere {
        title: preset.title,
        directory: directory.to_owned(),
        wanted,
    })
}

fn app(preset: &'static Preset, layout: &Layout, directory: &Path) -> App {
    App {
        preset,
        root: join(directory, layout.root),
        front: layout.front.map(str::to_owned),
        unread: None,
    }
}

fn join(directory: &Path, below: &str) -> PathBuf {
    if below == "." || below.is_empty() {
        directory.to_owned()
    } else {
        directory.join(below)
    }
}

fn fits(layout: &Layout, directory: &Path) -> bool {
    layout.markers.iter().all(|marker| exists(directory, marker))
}

fn has_front(layout: &Layout, root: &Path) -> bool {
    layout
        .front
        .is_some_and(|front| root.join(front.trim_start_matches('/')).is_file())
}

fn exists(directory: &Path, marker: &str) -> bool {
    if let Some(folder) = marker.strip_suffix('/') {
        return directory.join(folder).is_dir();
    }
    let Some(beginning) = marker.strip_suffix('*') else {
        return directory.join(marker).exists();
    };
    let path = directory.join(beginning);
    let (Some(parent), Some(prefix)) = (path.parent(), path.file_name()) else {
        return false;
    };
    let prefix = prefix.to_string_lossy();
    fs::read_dir(parent).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(&*prefix))
    })
}

/// The result of a bounded search for scripts.
#[derive(Debug, Default)]
struct Search {
    found: bool,
    /// The first folder that could not be read.
    unread: Option<PathBuf>,
}

impl Search {
    fn scripts(directory: &Path) -> Self {
        let mut search = Self::default();
        search.found = search.finds_script(directory);
        search
    }

    fn entries(&mut self, folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
        let read = fs::read_dir(folder);
        if matches!(&read, Err(error) if error.kind() == io::ErrorKind::PermissionDenied) {
            self.unread.get_or_insert_with(|| folder.to_owned());
        }
        read.into_iter().flatten().flatten()
    }

    fn finds_script(&mut self, directory: &Path) -> bool {
        let mut waiting = vec![(directory.to_owned(), 0)];
        let mut seen = 0;
        while let Some((folder, depth)) = waiting.pop() {
            for entry in self.entries(&folder) {
                seen += 1;
                if seen > ENTRIES {
                    return false;
                }
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let kind = entry.file_type();
                if name.ends_with(".php") && kind.as_ref().is_ok_and(|kind| !kind.is_dir()) {
                    return true;
                }
                let enter = kind.is_ok_and(|kind| kind.is_dir()) && !name.starts_with('.') && name != "node_modules";
                if enter && depth < DEPTH {
                    waiting.push((entry.path(), depth + 1));
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with empty files; a name that ends in `/` is a folder.
    fn project(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in names {
            let path = folder.path().join(name);
            if name.ends_with('/') {
                fs::create_dir_all(&path).expect("a folder");
            } else {
                fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
                fs::write(&path, "").expect("a file");
            }
        }
        folder
    }

    #[test]
    fn each_application_is_recognised_by_its_markers() {
        let table: &[(&[&str], &str, &str, Option<&str>)] = &[
            (
                &["public/index.php", "artisan"],
                "laravel",
                "public",
                Some("/index.php"),
            ),
            (
                &["public/index.php", "artisan", "please"],
                "laravel",
                "public",
                Some("/index.php"),
            ),
            (
                &["public/index.php", "src/Kernel.php"],
                "symfony",
                "public",
                Some("/index.php"),
            ),
            (
                &["web/app.php", "app/AppKernel.php"],
                "symfony",
                "web",
                Some("/app.php"),
            ),
            (
                &["web/wp-config.php", "config/application.php", "web/app/"],
                "bedrock",
                "web",
                Some("/index.php"),
            ),
            (&["index.php", "wp-config.php"], "wordpress", ".", Some("/index.php")),
            (
                &["index.php", "wp-config-sample.php"],
                "wordpress",
                ".",
                Some("/index.php"),
            ),
            (&["index.php", "core/lib/Drupal.php"], "drupal", ".", Some("/index.php")),
            (
                &["web/index.php", "web/core/lib/Drupal.php"],
                "drupal",
                "web",
                Some("/index.php"),
            ),
            (
                &["docroot/index.php", "docroot/core/lib/Drupal.php"],
                "drupal",
                "docroot",
                Some("/index.php"),
            ),
            (&["index.php", "misc/drupal.js"], "drupal", ".", Some("/index.php")),
            (&["bin/magento", "pub/index.php"], "magento2", "pub", Some("/index.php")),
            (
                &["public/index.php", "public/typo3/"],
                "typo3",
                "public",
                Some("/index.php"),
            ),
            (&["index.php", "typo3/"], "typo3", ".", Some("/index.php")),
            (
                &["index.php", "libraries/src/", "configuration.php-dist"],
                "joomla",
                ".",
                Some("/index.php"),
            ),
            (
                &["index.php", "libraries/joomla/", "configuration.php"],
                "joomla",
                ".",
                Some("/index.php"),
            ),
            (
                &["bin/cake", "webroot/index.php"],
                "cakephp",
                "webroot",
                Some("/index.php"),
            ),
            (&["craft", "web/index.php"], "craft", "web", Some("/index.php")),
            (
                &["vendor/contao/", "public/index.php"],
                "contao",
                "public",
                Some("/index.php"),
            ),
            (&["kirby/bootstrap.php", "index.php"], "kirby", ".", Some("/index.php")),
            (
                &["kirby/bootstrap.php", "public/index.php"],
                "kirby",
                "public",
                Some("/index.php"),
            ),
            (&["flow", "Web/index.php"], "neos", "Web", Some("/index.php")),
            (
                &["app/Bootstrap.php", "www/index.php"],
                "nette",
                "www",
                Some("/index.php"),
            ),
            (&["yii", "web/index.php"], "yii2", "web", Some("/index.php")),
            (
                &["yii", "frontend/web/index.php"],
                "yii2",
                "frontend/web",
                Some("/index.php"),
            ),
            (
                &["spark", "public/index.php"],
                "codeigniter",
                "public",
                Some("/index.php"),
            ),
            (
                &["artisan", "modules/system/", "index.php"],
                "october",
                ".",
                Some("/index.php"),
            ),
            (
                &["concrete/dispatcher.php", "index.php"],
                "concrete",
                ".",
                Some("/index.php"),
            ),
            (
                &["occ", "remote.php", "index.php"],
                "nextcloud",
                ".",
                Some("/index.php"),
            ),
            (
                &["includes/WebStart.php", "load.php", "index.php"],
                "mediawiki",
                ".",
                None,
            ),
            (&["doku.php", "lib/exe/css.php"], "dokuwiki", ".", None),
            (
                &["shaarli_version.php", "index.php"],
                "shaarli",
                ".",
                Some("/index.php"),
            ),
            (&["a.php"], "plain", ".", None),
            (&["public/index.php"], "plain", "public", None),
            (&["public/a.html", "lib/deep/b.php"], "plain", ".", None),
            (&["index.html"], "static", ".", None),
            (&["dist/index.html"], "static", "dist", None),
            (&["public/index.html"], "static", "public", None),
            (&[], "static", ".", None),
        ];
        for (names, name, root, front) in table {
            let folder = project(names);
            let app = detect(folder.path(), "auto").expect("looking never fails");
            assert_eq!(app.preset.name, *name, "{names:?}");
            assert_eq!(app.root, join(folder.path(), root), "{names:?}");
            assert_eq!(app.front.as_deref(), *front, "{names:?}");
        }
    }

    #[test]
    fn one_marker_of_two_is_not_enough() {
        let folder = project(&["artisan", "index.php"]);
        assert_eq!(
            detect(folder.path(), "auto").expect("looking never fails").preset.name,
            "plain"
        );
    }

    #[test]
    fn a_front_controller_is_used_only_when_asked_for() {
        let folder = project(&["index.php"]);
        assert_eq!(detect(folder.path(), "auto").expect("looking never fails").front, None);
        assert_eq!(
            detect(folder.path(), "front").expect("named").front.as_deref(),
            Some("/index.php")
        );
    }

    #[test]
    fn plain_turns_every_preset_off() {
        let folder = project(&["index.php", "wp-config.php"]);
        let app = detect(folder.path(), "plain").expect("plain fits every folder");
        assert_eq!((app.preset.name, app.front), ("plain", None));
    }

    #[test]
    fn a_named_application_may_be_given_by_its_document_root() {
        let folder = project(&["public/index.php"]);
        let whole = detect(folder.path(), "symfony").expect("the folder public is there");
        assert_eq!(whole.root, folder.path().join("public"));
        let inside = detect(&folder.path().join("public"), "symfony").expect("index.php is there");
        assert_eq!(inside.root, folder.path().join("public"));
    }

    #[test]
    fn a_named_application_that_is_not_there_is_an_error() {
        let folder = project(&["readme.txt"]);
        let error = detect(folder.path(), "laravel").expect_err("nothing is there");
        assert!(
            error
                .to_string()
                .ends_with("is no Laravel: public/index.php is not there"),
            "{error}"
        );
        assert_eq!(
            detect(folder.path(), "larravel").expect_err("no such name"),
            DetectError::UnknownName("larravel".to_owned())
        );
    }

    #[test]
    fn what_is_found_later_counts_if_there_is_php_in_it() {
        let look = |names: &[&str]| {
            let folder = project(names);
            let app = detect(folder.path(), "auto").expect("looking never fails");
            // As if both were one folder.
            let root = app.root.strip_prefix(folder.path()).expect("inside").to_owned();
            App { root, ..app }
        };
        let (empty, files, scripts) = (look(&[]), look(&["dist/index.html"]), look(&["index.php"]));
        let symfony = look(&["public/index.php", "src/Kernel.php"]);
        assert!(empty.is_provisional() && scripts.is_provisional() && !symfony.is_provisional());
        assert!(scripts.supersedes(&empty) && symfony.supersedes(&empty) && symfony.supersedes(&scripts));
        assert!(!empty.supersedes(&scripts) && !files.supersedes(&empty) && !scripts.supersedes(&scripts.clone()));
    }

    #[test]
    fn every_pattern_of_the_table_is_one() {
        for preset in PRESETS {
            let rules = [preset.scripts, preset.never, preset.deny].concat();
            for pattern in rules
                .into_iter()
                .chain(preset.cache.iter().map(|(pattern, _)| *pattern))
                .chain(preset.redirects.iter().map(|(pattern, _)| *pattern))
            {
                assert!(
                    haulier_server::pattern::glob::Glob::new(pattern).is_ok(),
                    "{}: {pattern}",
                    preset.name
                );
            }
            for (_, keep) in preset.cache {
                assert!(
                    crate::config::value::cache_control(keep).is_some(),
                    "{}: {keep}",
                    preset.name
                );
            }
        }
    }
}
