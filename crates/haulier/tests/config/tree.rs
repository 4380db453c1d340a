//! The pages name only files and items that the tree has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::docs;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folders of the repository, as the first part of a path that a page names.
const FOLDERS: [&str; 10] = [
    ".ci",
    "bench",
    "crates",
    "docs",
    "examples",
    "experiments",
    "fuzz",
    "packaging",
    "setup",
    "tests",
];

/// Words of a page between single backticks, outside of blocks.
fn code(page: &str) -> Vec<String> {
    let prose: Vec<&str> = page.split("```").step_by(2).collect();
    let prose = prose.concat();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The same name once for each of `{a, b}`.
fn spelled_out(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (choices, after) = rest.split_once('}').unwrap_or((rest, ""));
    let choices = choices.split(',').map(str::trim);
    choices.map(|choice| format!("{before}{choice}{after}")).collect()
}

fn is_path(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or_default();
    FOLDERS.contains(&first) && name.contains('/') && !name.contains(['*', '<', ' ', '…'])
}

fn is_item_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_alphabetic())
            && part.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    name.contains("::") && name.split("::").all(is_part)
}

/// The `src` folders in which a page's `module::item` may lie: of the crate that it names, of its own, else of all.
fn sources(page: &Path, crate_name: Option<&str>) -> Vec<PathBuf> {
    let crates = root().join("crates");
    let own = page
        .parent()
        .filter(|folder| folder.parent().is_some_and(|above| above.ends_with("crates")));
    let folders = match (crate_name, own) {
        (Some(name), _) => vec![crates.join(name.replace('_', "-"))],
        (None, Some(own)) => vec![own.to_owned()],
        (None, None) => fs::read_dir(crates)
            .expect("crates")
            .map(|entry| entry.expect("an entry").path())
            .collect(),
    };
    folders.into_iter().map(|folder| folder.join("src")).collect()
}

/// True if the modules of this name are files below `folder`, and the file that it leads to has the words that are left.
fn leads_somewhere(folder: &Path, name: &[&str]) -> bool {
    let (mut folder, mut left) = (folder.to_owned(), name);
    let mut file = folder.join("lib.rs");
    while let [first, rest @ ..] = left {
        let (plain, nested) = (folder.join(format!("{first}.rs")), folder.join(first).join("mod.rs"));
        match (plain.is_file(), nested.is_file()) {
            (true, _) => file = plain,
            (_, true) => file = nested,
            _ => break,
        }
        (folder, left) = (folder.join(first), rest);
    }
    has_words(&file, left)
}

fn has_words(file: &Path, wanted: &[&str]) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let words: BTreeSet<&str> = text
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .collect();
    wanted.iter().all(|word| words.contains(word))
}

/// A folder and all below it: a page may leave out the first modules of a name.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let below: Vec<PathBuf> = below.flat_map(|folder| folders(&folder)).collect();
    [vec![folder.to_owned()], below].concat()
}

/// All Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let (folders, files): (Vec<_>, Vec<_>) = entries.map(|entry| entry.path()).partition(|path| path.is_dir());
    let mut all: Vec<PathBuf> = files
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .collect();
    all.extend(folders.iter().flat_map(|folder| self::files(folder)));
    all
}

fn is_item(page: &Path, name: &str) -> bool {
    let mut parts: Vec<&str> = name.split("::").collect();
    let crate_name = parts[0].starts_with("haulier_").then(|| parts.remove(0));
    if matches!(parts[0], "std" | "tokio") {
        return true;
    }
    let sources = sources(page, crate_name);
    // `Type::method` may lie in any file.
    if parts[0].starts_with(char::is_uppercase) {
        let mut all = sources.iter().flat_map(|source| files(source));
        return all.any(|file| has_words(&file, &parts));
    }
    let mut all = sources.iter().flat_map(|source| folders(source));
    all.any(|folder| leads_somewhere(&folder, &parts))
}

#[test]
fn every_file_and_item_that_a_page_names_is_in_the_tree() {
    let (mut seen, mut missing) = (0, Vec::new());
    for page in &docs::pages_of_developers() {
        let text = fs::read_to_string(page).expect("a page");
        for name in code(&text).iter().flat_map(|name| spelled_out(name)) {
            let is_there = match name.as_str() {
                name if is_path(name) => [root().as_path(), page.parent().expect("a folder")]
                    .iter()
                    .any(|folder| folder.join(name).exists()),
                name if is_item_name(name) => is_item(page, name),
                _ => continue,
            };
            seen += 1;
            if !is_there {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(seen > 50, "only {seen} names were found");
}
