//! `haulier man`: a manual page for the program and one for each command, out of the argument grammar.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::Outcome;
use crate::cli::{Cli, ManArgs};

pub(super) fn run(arguments: &ManArgs) -> Outcome {
    match write_all(&arguments.directory) {
        Ok(()) => Outcome::Done,
        Err(error) => {
            eprintln!("error: cannot write to {}: {error}", arguments.directory.display());
            Outcome::Failed
        }
    }
}

fn write_all(directory: &Path) -> io::Result<()> {
    for (name, page) in pages()? {
        fs::write(directory.join(name), page)?;
    }
    Ok(())
}

/// Every page with the name of its file: `haulier.1`, `haulier-run.1`.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // Built: flags that hold for every command are in each page, too.
    let mut grammar = Cli::command();
    grammar.build();
    let shown = grammar.get_subcommands().filter(|command| !command.is_hide_set());
    let below: Vec<Command> = shown.filter(|command| command.get_name() != "help").cloned().collect();
    let mut pages = vec![("haulier.1".to_owned(), page(grammar)?)];
    for command in below {
        // Building gave each the name of its page: `haulier-run`.
        let name = format!("{}.1", command.get_display_name().unwrap_or_else(|| command.get_name()));
        pages.push((name, page(command.version(env!("CARGO_PKG_VERSION")))?));
    }
    Ok(pages)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).manual("haulier").render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_every_flag_of_it() {
        let pages = pages().expect("nothing is written to a disk");
        let mut grammar = Cli::command();
        grammar.build();
        let mut seen = 0;
        for command in grammar.get_subcommands().filter(|command| !command.is_hide_set()) {
            if command.get_name() == "help" {
                continue;
            }
            let name = format!("haulier-{}.1", command.get_name());
            let (_, page) = pages.iter().find(|(page, _)| *page == name).expect("a page");
            let page = String::from_utf8(page.clone()).expect("text").replace("\\-", "-");
            for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
                let long = flag.get_long().map(|long| format!("--{long}"));
                let value = flag
                    .get_value_names()
                    .and_then(|names| names.first())
                    .map(ToString::to_string);
                let short = flag.get_short().map(|short| format!("\\fB-{short}\\fR"));
                let word = long.or(short).or(value).unwrap_or_else(|| flag.get_id().to_string());
                assert!(page.contains(&word), "{name} says nothing of {word}:\n{page}");
                seen += 1;
            }
        }
        assert!(seen > 30, "{seen} flags");
        let (_, main) = &pages[0];
        let main = String::from_utf8(main.clone()).expect("text").replace("\\-", "-");
        for command in ["haulier-serve(1)", "haulier-run(1)", "haulier-status(1)", "--quiet"] {
            assert!(main.contains(command), "{command} in {main}");
        }
        assert!(
            !main.contains("haulier-man"),
            "what packages need is not for the reader"
        );
    }

    #[test]
    fn a_page_begins_with_its_name_and_what_it_is_for() {
        let pages = pages().expect("nothing is written to a disk");
        let (_, page) = pages
            .iter()
            .find(|(name, _)| name == "haulier-run.1")
            .expect("there is one");
        let page = String::from_utf8_lossy(page);
        assert!(page.contains(".TH") && page.contains("haulier\\-run"), "{page}");
        assert!(page.contains("Serve what the configuration says"), "{page}");
    }
}
