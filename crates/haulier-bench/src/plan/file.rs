//! A plan as written: every table and value with its place in the file.

use std::path::Path;
use std::time::Duration;

use haulier_settings::reader::named_tables;
use haulier_settings::reader::{self, Reader, Section};
use haulier_settings::{Pairs, Place, Placed, Report, Source, UnreadableFile};
use toml::de::DeTable;

use super::words;

type Text = Option<Placed<String>>;
type Texts = Option<Vec<Placed<String>>>;

/// All tables of a plan.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) plan: PlanTable,
    pub(super) values: Pairs,
    pub(super) servers: Vec<ServerTable>,
    /// In the order of the file.
    pub(super) parts: Vec<PartTable>,
}

/// `[plan]`
#[derive(Debug, Default)]
pub(super) struct PlanTable {
    pub(super) title: Text,
    pub(super) about: Text,
    pub(super) prepare: Texts,
    pub(super) env: Pairs,
    pub(super) server_cores: Text,
    pub(super) client_cores: Text,
    pub(super) versions: Pairs,
    pub(super) show: Texts,
    pub(super) alone: Option<Placed<bool>>,
}

/// `[server.NAME]`
#[derive(Debug, Clone)]
pub(super) struct ServerTable {
    pub(super) name: Placed<String>,
    pub(super) like: Text,
    pub(super) about: Text,
    pub(super) needs: Texts,
    pub(super) run: Texts,
    pub(super) files: Pairs,
    pub(super) append: Pairs,
    pub(super) values: Pairs,
    pub(super) env: Pairs,
    pub(super) url: Text,
    pub(super) ready: Text,
    pub(super) setup: Texts,
    pub(super) patience: Option<Placed<Duration>>,
    pub(super) version: Text,
}

/// `[[table]]` or `[[script]]`
#[derive(Debug)]
pub(super) enum PartTable {
    Table(TableSection),
    Script(ScriptTable),
}

/// `[[table]]`
#[derive(Debug)]
pub(super) struct TableSection {
    pub(super) place: Place,
    pub(super) title: Text,
    pub(super) about: Text,
    pub(super) flags: Text,
    pub(super) path: Text,
    pub(super) servers: Texts,
    pub(super) targets: Option<Pairs>,
    pub(super) expect: Text,
    pub(super) body: Text,
    pub(super) show: Texts,
    pub(super) goals: Texts,
}

/// `[[script]]`
#[derive(Debug)]
pub(super) struct ScriptTable {
    pub(super) place: Place,
    pub(super) title: Text,
    pub(super) about: Text,
    pub(super) run: Text,
    pub(super) servers: Texts,
    pub(super) patience: Option<Placed<Duration>>,
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
    report.sources.push(Source {
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
    let mut reader = Reader::new(&words::LANGUAGE, source, report, &variables);
    Ok(read_tables(&mut reader, table.get_ref()))
}

fn read_tables(reader: &mut Reader<'_>, top: &DeTable<'_>) -> File {
    let top = reader.section(&words::TOP, "", top);
    let plan = reader.table(&top, "plan").map(|table| read_plan(reader, table));
    let mut parts: Vec<(Place, PartTable)> = Vec::new();
    for (place, table) in reader.tables(&top, "table") {
        parts.push((place.clone(), PartTable::Table(read_table(reader, table, place))));
    }
    for (place, table) in reader.tables(&top, "script") {
        parts.push((place.clone(), PartTable::Script(read_script(reader, table, place))));
    }
    parts.sort_by_key(|(place, _)| place.span.start);
    File {
        plan: plan.unwrap_or_default(),
        values: reader.map(&top, "values").unwrap_or_default(),
        servers: named_tables(reader, &top, "server")
            .into_iter()
            .map(|(name, table)| read_server(reader, name, table))
            .collect(),
        parts: parts.into_iter().map(|(_, part)| part).collect(),
    }
}

fn read_plan(reader: &mut Reader<'_>, table: &DeTable<'_>) -> PlanTable {
    let section = reader.section(&words::PLAN, "plan", table);
    PlanTable {
        title: reader.text(&section, "title"),
        about: reader.text(&section, "about"),
        prepare: reader.text_or_texts(&section, "prepare"),
        env: pairs(reader, &section, "env"),
        server_cores: reader.text(&section, "server_cores"),
        client_cores: reader.text(&section, "client_cores"),
        versions: pairs(reader, &section, "versions"),
        show: reader.text_or_texts(&section, "show"),
        alone: reader.flag(&section, "alone"),
    }
}

fn read_server(reader: &mut Reader<'_>, name: Placed<String>, table: &DeTable<'_>) -> ServerTable {
    let section = reader.section(&words::SERVER, &format!("server.{}", name.value), table);
    ServerTable {
        name,
        like: reader.text(&section, "like"),
        about: reader.text(&section, "about"),
        needs: reader.text_or_texts(&section, "needs"),
        run: reader.text_or_texts(&section, "run"),
        files: pairs(reader, &section, "files"),
        append: pairs(reader, &section, "append"),
        values: pairs(reader, &section, "values"),
        env: pairs(reader, &section, "env"),
        url: reader.text(&section, "url"),
        ready: reader.text(&section, "ready"),
        setup: reader.text_or_texts(&section, "setup"),
        patience: reader.deadline(&section, "patience"),
        version: reader.text(&section, "version"),
    }
}

fn read_table(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place) -> TableSection {
    let section = reader.section(&words::TABLE, "[table]", table);
    TableSection {
        place,
        title: reader.text(&section, "title"),
        about: reader.text(&section, "about"),
        flags: reader.text(&section, "flags"),
        path: reader.text(&section, "path"),
        servers: reader.text_or_texts(&section, "servers"),
        targets: reader.map(&section, "targets"),
        expect: reader.text(&section, "expect"),
        body: reader.text(&section, "body"),
        show: reader.text_or_texts(&section, "show"),
        goals: reader.text_or_texts(&section, "goals"),
    }
}

fn read_script(reader: &mut Reader<'_>, table: &DeTable<'_>, place: Place) -> ScriptTable {
    let section = reader.section(&words::SCRIPT, "[script]", table);
    ScriptTable {
        place,
        title: reader.text(&section, "title"),
        about: reader.text(&section, "about"),
        run: reader.text(&section, "run"),
        servers: reader.text_or_texts(&section, "servers"),
        patience: reader.deadline(&section, "patience"),
    }
}

fn pairs(reader: &mut Reader<'_>, section: &Section<'_>, key: &str) -> Pairs {
    reader.map(section, key).unwrap_or_default()
}
