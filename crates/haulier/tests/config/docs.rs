//! The documentation shows configurations that are right and links that lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{folder, haulier};

/// The ```toml blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    page.split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block.to_owned())
        .collect()
}

pub(crate) fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs are there");
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages
}

/// These pages, and those for people who change the code.
pub(crate) fn pages_of_developers() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["crates", "experiments"].map(|folder| fs::read_dir(root.join(folder)).expect("a folder"));
    let folders = folders
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("an entry").path());
    let readmes = folders
        .map(|folder| folder.join("README.md"))
        .filter(|page| page.is_file());
    let further = ["ARCHITECTURE.md", "CONTRIBUTING.md", "experiments/README.md"].map(|page| root.join(page));
    [pages(), further.to_vec(), readmes.collect()].concat()
}

#[test]
fn every_toml_block_of_the_documentation_is_a_configuration() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).expect("a page")) {
            seen += 1;
            let without_site = !block.contains("[site.");
            let block = if without_site {
                format!("{block}\n[site.shown]\nroot = \".\"\n")
            } else {
                block
            };
            let place = folder(&[("haulier.toml", &block), ("index.html", "")]);
            let answer = haulier(place.path(), &["check", "--json"]);
            let said: serde_json::Value = serde_json::from_str(&answer.stdout).expect("check --json is JSON");
            let findings = said["findings"].as_array().expect("a list");
            // The projects of an example are not on this machine; everything else about it holds.
            let wrong: Vec<_> = findings
                .iter()
                .filter(|finding| {
                    finding["severity"] == "error"
                        && finding["code"]
                            .as_str()
                            .is_some_and(|code| code.starts_with("config::"))
                })
                .filter(|finding| finding["code"] != "config::user")
                .collect();
            assert!(wrong.is_empty(), "{}: {wrong:#?}\n{block}", page.display());
        }
    }
    assert!(seen >= 3, "only {seen} blocks were found");
}

/// The targets of `[text](target)`.
fn links(page: &str) -> Vec<&str> {
    let behind = page.split("](").skip(1);
    behind
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .collect()
}

/// The name of a heading in an address.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let text: String = heading.to_lowercase().chars().filter(kept).collect();
    text.replace(' ', "-")
}

#[test]
fn every_link_within_the_documentation_leads_somewhere() {
    let mut seen = 0;
    for page in pages_of_developers() {
        let text = fs::read_to_string(&page).expect("a page");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let there = match path {
                "" => page.clone(),
                path => page.parent().expect("a folder").join(path),
            };
            assert!(there.exists(), "{}: there is no {link}", page.display());
            if !place.is_empty() {
                let text = fs::read_to_string(&there).expect("a page");
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let found = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == place);
                assert!(found, "{}: no heading is called {link}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} links were found");
}
