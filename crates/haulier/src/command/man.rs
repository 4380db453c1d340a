//! `haulier man`: a manual page for the program and one for each command, and for each below one, out of the argument
//! grammar.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::{Cli, ManArgs};
use crate::outcome::CommandOutcome;

pub(super) fn run(arguments: &ManArgs) -> CommandOutcome {
    match write_all(&arguments.directory) {
        Ok(()) => CommandOutcome::Done,
        Err(error) => {
            eprintln!("error: cannot write to {}: {error}", arguments.directory.display());
            CommandOutcome::Failed
        }
    }
}

fn write_all(directory: &Path) -> io::Result<()> {
    for (name, page) in pages()? {
        fs::write(directory.join(name), page)?;
    }
    Ok(())
}

/// Every page with the name of its file: `haulier.1`, `haulier-run.1`, `haulier-image-put.1`.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    // Built, so that the flags of all commands appear in each page.
    let mut grammar = Cli::command();
    grammar.build();
    let mut pages = Vec::new();
    add_pages(&grammar, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    // Building named each after its page: `haulier-run`.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let versioned = match command.get_version() {
        Some(_) => command.clone(),
        None => command.clone().version(env!("CARGO_PKG_VERSION")),
    };
    pages.push((format!("{name}.1"), page(versioned)?));
    for below in shown_below(command) {
        add_pages(below, pages)?;
    }
    Ok(())
}

/// The commands below one that are for the reader.
fn shown_below(command: &Command) -> impl Iterator<Item = &Command> {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.filter(|below| below.get_name() != "help")
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command).manual("haulier").render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the pages of a command and of all below it; gives the number of flags.
    fn check(command: &Command, name: &str, pages: &[(String, Vec<u8>)]) -> usize {
        let file = format!("{name}.1");
        let page = pages.iter().find(|(page, _)| *page == file);
        let (_, page) = page.unwrap_or_else(|| panic!("no {file}"));
        let page = String::from_utf8(page.clone()).expect("text").replace("\\-", "-");
        let mut seen = 0;
        for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let long = flag.get_long().map(|long| format!("--{long}"));
            let value = flag
                .get_value_names()
                .and_then(|names| names.first())
                .map(ToString::to_string);
            let short = flag.get_short().map(|short| format!("\\fB-{short}\\fR"));
            let word = long.or(short).or(value).unwrap_or_else(|| flag.get_id().to_string());
            assert!(page.contains(&word), "{file} says nothing of {word}:\n{page}");
            seen += 1;
        }
        let below = shown_below(command).map(|below| {
            let below_name = format!("{name}-{}", below.get_name());
            assert!(
                page.contains(&format!("{below_name}(1)")),
                "{file} does not name {below_name}"
            );
            check(below, &below_name, pages)
        });
        seen + below.sum::<usize>()
    }

    #[test]
    fn every_command_has_a_page_with_every_flag_of_it() {
        let pages = pages().expect("nothing is written to a disk");
        let mut grammar = Cli::command();
        grammar.build();
        let seen = check(&grammar, "haulier", &pages);
        assert!(seen > 100, "{seen} flags");
        let (_, main) = &pages[0];
        let main = String::from_utf8(main.clone()).expect("text").replace("\\-", "-");
        assert!(main.contains("--quiet"), "{main}");
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
        assert!(page.contains("Serve the sites of a configuration"), "{page}");
    }
}
