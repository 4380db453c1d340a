//! A plan as written: every table and value with its place, nothing resolved.

use std::path::Path;

use haulier_settings::reader::{self, Reader, named_tables};
use haulier_settings::{Pairs, Placed, Report, SourceFile, SourcePlace, UnreadableFile};
use toml::de::DeTable;

use super::tables::{self, MeasuredTable, PlanTable, ScriptTable, ServerTable};

/// All tables of a plan.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) plan: PlanTable,
    pub(super) values: Pairs,
    pub(super) servers: Vec<ServerTable>,
    /// In the order of the file.
    pub(super) parts: Vec<PartTable>,
}

/// `[[table]]` or `[[script]]`
#[derive(Debug)]
pub(super) enum PartTable {
    Table(MeasuredTable),
    Script(ScriptTable),
}

/// Reads a plan; its mistakes go to `report`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn load(path: &Path, report: &mut Report) -> Result<File, UnreadableFile> {
    let text = std::fs::read_to_string(path).map_err(|source| UnreadableFile {
        path: path.to_owned(),
        source,
    })?;
    let source = report.sources.len();
    report.sources.push(SourceFile {
        path: path.to_owned(),
        text: text.clone(),
    });
    let table = match reader::parse(&text, source) {
        Ok(table) => table,
        Err(diagnostic) => {
            report.push(diagnostic);
            return Ok(File::default());
        }
    };
    let variables = |name: &str| std::env::var(name).ok();
    let mut reader = Reader::new(&tables::LANGUAGE, source, report, &variables);
    Ok(read_tables(&mut reader, table.get_ref()))
}

fn read_tables(reader: &mut Reader<'_>, top: &DeTable<'_>) -> File {
    let top = reader.section(&tables::TOP, "", top);
    let mut file = File {
        plan: reader.declared(&top, "plan").unwrap_or_default(),
        ..File::default()
    };
    let mut parts: Vec<(SourcePlace, PartTable)> = Vec::new();
    for (place, table) in reader.tables(&top, "table") {
        let table = reader.declared_table("[table]", header("table", &place), table);
        parts.push((place, PartTable::Table(table)));
    }
    for (place, table) in reader.tables(&top, "script") {
        let table = reader.declared_table("[script]", header("script", &place), table);
        parts.push((place, PartTable::Script(table)));
    }
    parts.sort_by_key(|(place, _)| place.span.start);
    file.parts = parts.into_iter().map(|(_, part)| part).collect();
    file.values = reader.map(&top, "values").unwrap_or_default();
    for (name, table) in named_tables(reader, &top, "server") {
        let path = format!("server.{}", name.value);
        file.servers.push(reader.declared_table(&path, name, table));
    }
    file
}

fn header(name: &str, place: &SourcePlace) -> Placed<String> {
    Placed {
        value: name.to_owned(),
        place: Some(place.clone()),
    }
}
