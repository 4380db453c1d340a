//! Resolves `[site.NAME.dictionary]`: the files and pages that are compressed with what their clients have already.

use haulier_server::DictionarySettings;
use haulier_server::pattern::glob::Glob;
use haulier_settings::{Diagnostic, Placed, Report};

use super::rules;
use super::tables::DictionaryTable;

/// Files that change a little with every deployment.
const FILES: [&str; 2] = ["*.js", "*.css"];

pub(super) fn resolve(table: &DictionaryTable, report: &mut Report) -> DictionarySettings {
    let keeps = table.of_files.get();
    let files = match (&table.files, keeps) {
        (Some(files), true) => files.iter().filter_map(|file| rules::glob(file, report)).collect(),
        // A `static` that cannot be read has its error already.
        (Some(_), false) if table.of_files.is_none() && table.heading.has("static") => Vec::new(),
        (Some(files), false) => {
            report.push(of_no_use(files));
            Vec::new()
        }
        (None, true) => FILES.iter().filter_map(|file| Glob::new(file).ok()).collect(),
        (None, false) => Vec::new(),
    };
    let pages = table.pages.iter().flatten();
    DictionarySettings {
        files,
        pages: pages.filter_map(|(pages, page)| shell(pages, page, report)).collect(),
    }
}

fn of_no_use(files: &[Placed<String>]) -> Diagnostic {
    Diagnostic::warning("config::dictionary", "no versions of files are kept")
        .at(files.first().and_then(|file| file.place.as_ref()), "of no use alone")
        .help("write `static = \"previous\"` beside it")
}

fn shell(pages: &Placed<String>, page: &Placed<String>, report: &mut Report) -> Option<(Glob, String)> {
    let is_pattern = haulier_proto::dictionary::use_as(&pages.value, true).is_some();
    if !is_pattern {
        let title = format!("not a pattern of pages: \"{}\"", pages.value);
        report.push(Diagnostic::error("config::value", title).at(
            pages.place.as_ref(),
            "expected a path with `*`, such as \"/wiki/*\"; braces and `?` mean something else to browsers",
        ));
        return None;
    }
    let is_path = page.value.starts_with('/') && page.value.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || page.value.contains('#') {
        let title = format!("not a page: \"{}\"", page.value);
        report.push(Diagnostic::error("config::value", title).at(
            page.place.as_ref(),
            "expected a path of this site, such as \"/wiki/Main\"",
        ));
        return None;
    }
    Some((rules::glob(pages, report)?, page.value.clone()))
}
