//! Each `cases/NAME.toml` that is broken stands beside `NAME.expected`, what `check` says about it.
//!
//! `UPDATE_EXPECTED=1 cargo test -p haulier --test config` writes the expectations anew; read the difference then.

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{cases, command};

#[test]
fn every_broken_configuration_is_explained_at_its_place() {
    let names = broken_cases();
    assert!(names.len() >= 30, "only {} cases were found", names.len());
    let wrong: Vec<String> = names.iter().filter_map(|path| difference(path)).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
}

fn broken_cases() -> Vec<PathBuf> {
    let entries = fs::read_dir(cases()).expect("the cases are there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

/// What differs from the expectation, if anything does.
fn difference(path: &Path) -> Option<String> {
    let said = check(path);
    let expected_path = path.with_extension("expected");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&expected_path, &said).expect("expectations can be written");
    }
    let expected = fs::read_to_string(&expected_path).unwrap_or_default();
    (said != expected).then(|| format!("== {}\n-- expected\n{expected}\n-- said\n{said}", path.display()))
}

fn check(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    let run = command(&cases())
        .args(["check", "-c"])
        .arg(name)
        .env("HAULIER_TEST", "/srv")
        .env_remove("HAULIER_UNSET")
        .output();
    let output = run.expect("the program starts");
    assert_eq!(output.status.code(), Some(2), "{} is broken", path.display());
    let said = String::from_utf8(output.stdout).expect("text");
    let here = cases().canonicalize().expect("the cases are there");
    said.replace(&*here.to_string_lossy(), "$CASES")
}
