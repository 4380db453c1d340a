//! Tests that haulier accepts every command line in the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::Cli;

/// Any image.
const AN_ID: &str = "5f189d8ec57f5a5a0d3dcba47fa797e2";

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs are there");
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.expect("an entry").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    pages
}

/// The words of a line as a shell finds them, up to a comment, a pipe or a file for the output.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        if matches!(first, '#' | '>' | '|' | '<') || rest.starts_with("&&") {
            break;
        }
        let (word, after) = match first {
            '\'' | '"' => rest[1..].split_once(first).unwrap_or((&rest[1..], "")),
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        // Placeholders that the reader has to fill in.
        words.push(if word == "ID" { AN_ID } else { word }.to_owned());
        rest = after.trim_start();
    }
    words
}

/// The text after `haulier ` in code blocks and between backticks.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_code, mut prose) = (false, String::new());
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code || line.starts_with("    ") {
            let line = line.trim_start();
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            found.extend(line.strip_prefix("haulier ").map(str::to_owned));
        } else {
            prose.push_str(line.trim_start());
            prose.push(' ');
        }
    }
    let inline = prose.split('`').skip(1).step_by(2);
    let inline = inline.map(|code| code.strip_prefix("sudo ").unwrap_or(code));
    found.extend(
        inline
            .filter_map(|code| code.strip_prefix("haulier "))
            .map(str::to_owned),
    );
    // What a program says, and log lines, begin with its name as well.
    found.retain(|line| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '-'));
    found
}

#[test]
fn every_command_line_of_the_documentation_is_understood() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages() {
        for line in commands(&fs::read_to_string(&page).expect("a page")) {
            let parsed = Cli::try_parse_from(["haulier".to_owned()].into_iter().chain(words(&line)));
            if let Err(error) = parsed {
                // `haulier get` alone speaks of the command, which wants an address.
                let wants_more = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                let is_bare = line.chars().all(|letter| letter.is_ascii_lowercase() || letter == ' ');
                let is_name = is_bare && wants_more;
                let is_help = error.exit_code() == 0;
                if !is_name && !is_help {
                    wrong.push(format!("{}: haulier {line}\n{error}", page.display()));
                }
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 60, "only {seen} were found");
}

#[test]
fn lines_are_taken_apart_as_a_shell_does() {
    let rows: [(&str, &[&str]); 4] = [
        ("run -c haulier.toml   # as written", &["run", "-c", "haulier.toml"]),
        ("config --schema > schema.json", &["config", "--schema"]),
        ("get -H 'Accept: a b' x", &["get", "-H", "Accept: a b", "x"]),
        ("", &[]),
    ];
    for (line, expected) in rows {
        assert_eq!(words(line), expected, "{line}");
    }
    let page = "Say `haulier\nserve DIR`, or `sudo haulier trust`:\n```text\n$ haulier stop --now\nhaulier 0.1.0 · Symfony\n```\n\n    \
        haulier get x\n";
    assert_eq!(commands(page), ["stop --now", "get x", "serve DIR", "trust"]);
}
