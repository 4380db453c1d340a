//! The configuration as written: every table and value with its place, nothing resolved.

use std::path::{Path, PathBuf};

use haulier_server::{CompressTable, LimitsTable};
use haulier_settings::declare::Declared;
use haulier_settings::reader::{self, Reader, Section, Variables, named_tables};
use haulier_settings::{Diagnostic, Placed, Report, SourceFile, SourcePlace, UnreadableFile};
use toml::de::DeTable;

use super::tables::{CONFIGURATION, PoolTable, ServerTable, SiteTable, StoreTable, TOP, TlsTable};
use crate::log::LogTable;

/// All tables of a configuration and the files it includes.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) server: ServerTable,
    pub(crate) log: LogTable,
    pub(crate) limits: LimitsTable,
    pub(crate) compress: CompressTable,
    pub(crate) tls: TlsTable,
    pub(crate) pools: Vec<PoolTable>,
    pub(crate) sites: Vec<SiteTable>,
    pub(crate) stores: Vec<StoreTable>,
    /// The document root of the only site, from the command line; no file can say it.
    pub(crate) document_root: Option<PathBuf>,
    /// Scripts that stay booted without a setting; no file can say it.
    pub(crate) worker_mode: WorkerMode,
}

/// Scripts that stay booted without a setting of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum WorkerMode {
    /// None: `worker` of a site says which one does.
    #[default]
    AsWritten,
    /// That of a project which is made for it, where it can.
    Found,
    /// The same, and it is an error if there is none.
    Demanded,
}

/// Reads a configuration with all included files, and adds mistakes to `report`.
///
/// # Errors
/// The main file cannot be read.
pub(crate) fn load(path: &Path, report: &mut Report, variables: Variables<'_>) -> Result<File, UnreadableFile> {
    let text = std::fs::read_to_string(path).map_err(|source| UnreadableFile {
        path: path.to_owned(),
        source,
    })?;
    let mut file = File::default();
    read_source(path, &text, &mut file, report, variables, true);
    Ok(file)
}

fn read_source(path: &Path, text: &str, file: &mut File, report: &mut Report, variables: Variables<'_>, main: bool) {
    let source = report.sources.len();
    report.sources.push(SourceFile {
        path: path.to_owned(),
        text: text.to_owned(),
    });
    let directory = report.sources[source].directory();
    let table = match reader::parse(text, source) {
        Ok(table) => table,
        Err(diagnostic) => return report.push(diagnostic),
    };
    let mut reader = Reader::new(&CONFIGURATION, source, report, variables);
    let includes = read_tables(&mut reader, table.get_ref(), file);
    for include in includes {
        if main {
            read_include(&include, &directory, file, report, variables);
        } else {
            report.push(
                Diagnostic::error("config::include", "an included file includes another")
                    .at(include.place.as_ref(), "only the main file may include")
                    .help("name every file in the main one, where the whole can be seen"),
            );
        }
    }
}

fn read_include(
    include: &Placed<String>,
    directory: &Path,
    file: &mut File,
    report: &mut Report,
    variables: Variables<'_>,
) {
    let pattern = directory.join(&include.value);
    let paths = match matching_files(&pattern) {
        Ok(paths) => paths,
        Err(error) => {
            return report.push(
                Diagnostic::error(
                    "config::include",
                    format!("cannot include {}: {error}", pattern.display()),
                )
                .at(include.place.as_ref(), "named here"),
            );
        }
    };
    for path in paths {
        match std::fs::read_to_string(&path) {
            Ok(text) => read_source(&path, &text, file, report, variables, false),
            Err(error) => report.push(
                Diagnostic::error("config::include", format!("cannot include {}: {error}", path.display()))
                    .at(include.place.as_ref(), "named here"),
            ),
        }
    }
}

/// The file itself, or all files that match a `*` in the last part, by name.
fn matching_files(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let shape = pattern
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let Some((before, after)) = shape.split_once('*') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let directory = pattern.parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(Path::new(".").join(directory))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let fits = name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
        if fits && !name.starts_with('.') {
            paths.push(directory.join(name));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads all tables into `file`; returns the files to include.
fn read_tables(reader: &mut Reader<'_>, top: &DeTable<'_>, file: &mut File) -> Vec<Placed<String>> {
    let top = reader.section(&TOP, "", top);
    read_once(reader, &top, "server", &mut file.server);
    read_once(reader, &top, "log", &mut file.log);
    read_once(reader, &top, "limits", &mut file.limits);
    read_once(reader, &top, "compress", &mut file.compress);
    read_once(reader, &top, "tls", &mut file.tls);
    read_named(reader, &top, "pool", &mut file.pools);
    read_named(reader, &top, "site", &mut file.sites);
    read_named(reader, &top, "store", &mut file.stores);
    reader.texts(&top, "include").unwrap_or_default()
}

/// Reads a table that may stand once in all files together.
fn read_once<T: Declared>(reader: &mut Reader<'_>, top: &Section<'_>, name: &str, into: &mut T) {
    if into.header().is_written() && top.key_span(name).is_some() {
        let again = top.key_span(name).map(|span| reader.place(span));
        let first = into.header().name.place.as_ref();
        return reader.report().push(repeated(name, again.as_ref(), first));
    }
    if let Some(table) = reader.declared(top, name) {
        *into = table;
    }
}

/// Reads the tables below `[pool]`, `[site]` or `[store]`. A name may stand once in all files together.
fn read_named<T: Declared>(reader: &mut Reader<'_>, top: &Section<'_>, kind: &str, into: &mut Vec<T>) {
    for (name, table) in named_tables(reader, top, kind) {
        let path = format!("{kind}.{}", name.value);
        match into.iter().find(|known| known.header().name.value == name.value) {
            Some(first) => {
                let first = first.header().name.place.as_ref();
                reader.report().push(repeated(&path, name.place.as_ref(), first));
            }
            None => into.push(reader.declared_table(&path, name, table)),
        }
    }
}

fn repeated(path: &str, again: Option<&SourcePlace>, first: Option<&SourcePlace>) -> Diagnostic {
    Diagnostic::error("config::repeated", format!("two files have a table `[{path}]`"))
        .at(again, "again here")
        .beside(first, "first here")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"include = []
[server]
http = [":80", "127.0.0.1:81"]
grace = "30s"
reuse_port = true
[limits]
body = "8MiB"
[pool.php]
workers = 4
ini = { "opcache.enable" = 1, memory_limit = "256M" }
[site."ä"]
root = "${HOME}/x"
hosts = ["ä.example"]
[site.b.cache]
"/*" = "1y"
"#;

    /// Reads and prints, as `check` does.
    fn read(text: &str) -> String {
        let mut report = Report::default();
        let mut file = File::default();
        read_source(Path::new("haulier.toml"), text, &mut file, &mut report, &|_| None, true);
        report.to_json();
        report.render(false)
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange_to_be_explained(text in "\\PC*") {
            read(&text);
        }

        #[test]
        fn no_mistake_in_a_configuration_is_too_strange(
            at in 0..WHOLE.len(), removed in 0..8usize, put in "[\\[\\]{}=\",.'#\n\r\t a0ä$]{0,4}",
        ) {
            let start = (0..=at).rev().find(|&byte| WHOLE.is_char_boundary(byte)).unwrap_or(0);
            let end = (start + removed..=WHOLE.len()).find(|&byte| WHOLE.is_char_boundary(byte)).unwrap_or(WHOLE.len());
            read(&format!("{}{put}{}", &WHOLE[..start], &WHOLE[end..]));
        }
    }
}
