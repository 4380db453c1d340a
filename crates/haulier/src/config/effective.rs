//! The configuration in force: every setting with its value and the origin of the value.
//!
//! Values are shown as written, so a secret in `${VAR}` or `${file:…}` stays hidden, and the output is a configuration
//! again. Paths become absolute, because it may be read in another directory.

use std::fmt::Write as _;

use haulier_settings::{Below, Report, SettingsTable, SourceFile, Word, reader};
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::pool::{is_of_external, is_of_supervised};
use super::settings::Settings;
use super::tables::TOP;

/// The column where comments begin, if the value leaves room.
const COMMENT_COLUMN: usize = 44;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueOrigin {
    /// `haulier.toml:3`
    File(String),
    /// The default in the reference.
    Default,
    /// Derived from the machine, the project, or the other settings.
    Found,
}

impl ValueOrigin {
    fn as_str(&self) -> &str {
        match self {
            Self::File(place) => place,
            Self::Default => "default",
            Self::Found => "found here",
        }
    }
}

/// One line.
#[derive(Debug)]
enum ShownLine {
    Setting {
        name: String,
        /// As TOML.
        text: String,
        value: Value,
        origin: ValueOrigin,
    },
    /// A setting without a value, and the meaning of that.
    Unset { name: &'static str, meaning: &'static str },
}

impl ShownLine {
    /// True for a default of the reference.
    fn is_default(&self) -> bool {
        !matches!(self, Self::Setting { origin, .. } if *origin != ValueOrigin::Default)
    }
}

/// A table with its lines.
#[derive(Debug)]
struct ShownSection {
    /// The parts of its header: `["site", "shop"]`.
    path: Vec<String>,
    /// One of several: `[[site.shop.route]]`.
    is_element: bool,
    /// The table is not written, and is shown as a comment: to write it would turn its feature on.
    is_remark: bool,
    lines: Vec<ShownLine>,
}

/// All tables, in the order of the reference.
#[derive(Debug)]
pub(crate) struct Effective {
    sections: Vec<ShownSection>,
}

impl Effective {
    /// Joins the sources of `report`, which hold no mistakes, with the defaults.
    pub(crate) fn of(report: &Report, settings: &Settings) -> Self {
        let parsed: Vec<(&SourceFile, Spanned<DeTable<'_>>)> = report
            .sources
            .iter()
            .filter_map(|source| Some((source, reader::parse(&source.text, 0).ok()?)))
            .collect();
        let mut all = Collector {
            settings,
            sections: Vec::new(),
        };
        for word in TOP.words {
            let mut written = parsed
                .iter()
                .filter_map(|(source, table)| Some((*source, table.get_ref().get(word.name)?.get_ref().as_table()?)));
            match word.below {
                Below::Nothing | Below::List(_) => {}
                Below::Table(below) => {
                    let (source, table) = written.next().unzip();
                    all.add(source, &[word.name.to_owned()], below, table);
                }
                Below::Named(below) => all.add_named(word.name, below, written),
            }
        }
        Self { sections: all.sections }
    }

    /// As a configuration, each value with its origin in a comment.
    pub(crate) fn to_toml(&self) -> String {
        let mut out = String::new();
        for section in &self.sections {
            let path: Vec<String> = section.path.iter().map(|part| key(part)).collect();
            let (open, close) = if section.is_element { ("[[", "]]") } else { ("[", "]") };
            let remark = if section.is_remark { "# " } else { "" };
            let _ = writeln!(out, "{remark}{open}{}{close}", path.join("."));
            for line in &section.lines {
                let _ = match line {
                    ShownLine::Setting { name, text, origin, .. } => {
                        let setting = format!("{remark}{} = {text}", key(name));
                        // A comment at the end of the last line of a value that has several.
                        writeln!(out, "{setting:COMMENT_COLUMN$}  # {}", origin.as_str())
                    }
                    ShownLine::Unset { name, meaning } => writeln!(out, "# {name}: {meaning}"),
                };
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out
    }

    /// Tables as objects, each setting with its value and its origin.
    pub(crate) fn to_json(&self) -> Value {
        let mut root = Map::new();
        for section in &self.sections {
            let mut settings = Map::new();
            for line in &section.lines {
                if let ShownLine::Setting {
                    name, value, origin, ..
                } = line
                {
                    settings.insert(name.clone(), json!({"value": value, "from": origin.as_str()}));
                }
            }
            put(&mut root, &section.path, settings, section.is_element);
        }
        Value::Object(root)
    }
}

/// Puts `settings` at `path`, or at the end of a list there.
fn put(root: &mut Map<String, Value>, path: &[String], settings: Map<String, Value>, is_element: bool) {
    match path {
        [] => {}
        [last] if is_element => {
            let list = root.entry(last.clone()).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(Value::Object(settings));
            }
        }
        [last] => {
            root.insert(last.clone(), Value::Object(settings));
        }
        [first, rest @ ..] => {
            let inner = root.entry(first.clone()).or_insert_with(|| json!({}));
            let inner = match inner {
                Value::Array(list) => list.last_mut().and_then(Value::as_object_mut),
                other => other.as_object_mut(),
            };
            if let Some(inner) = inner {
                put(inner, rest, settings, is_element);
            }
        }
    }
}

/// Gathers sections.
struct Collector<'s> {
    settings: &'s Settings,
    sections: Vec<ShownSection>,
}

impl Collector<'_> {
    /// Adds the tables of a kind that users name, and those that no file has.
    fn add_named<'t>(
        &mut self,
        kind: &str,
        declared: &'static SettingsTable,
        written: impl Iterator<Item = (&'t SourceFile, &'t DeTable<'t>)>,
    ) {
        let mut names = Vec::new();
        for (source, tables) in written {
            for (name, value) in sorted(tables) {
                names.push(name);
                if let Some(table) = value.get_ref().as_table() {
                    self.add(Some(source), &[kind.to_owned(), name.to_owned()], declared, Some(table));
                }
            }
        }
        for name in self.invented(kind, &names) {
            self.add(None, &[kind.to_owned(), name], declared, None);
        }
    }

    /// Adds a declared table with the tables below it, in the order of the reference.
    fn add(
        &mut self,
        source: Option<&SourceFile>,
        path: &[String],
        declared: &'static SettingsTable,
        table: Option<&DeTable<'_>>,
    ) {
        let mut lines = Vec::new();
        let mut below = Vec::new();
        for word in declared.words {
            let is_table = matches!(word.below, Below::Table(_) | Below::List(_));
            match (table.and_then(|table| table.get(word.name)), source) {
                (Some(value), Some(source)) if is_section(source, value) => below.push((word, Some(value))),
                (Some(value), Some(source)) => lines.push(setting(source, word.path, word.name, value)),
                _ if is_excluded(declared, word, table) => {}
                _ if is_table && word.default == "{}" => below.push((word, None)),
                _ => lines.push(self.unwritten(path, word)),
            }
        }
        let is_optional = path.len() > 2 || path == ["tls"];
        self.sections.push(ShownSection {
            path: path.to_vec(),
            is_element: false,
            is_remark: source.is_none() && is_optional && lines.iter().all(ShownLine::is_default),
            lines,
        });
        for (word, value) in below {
            let path: Vec<String> = path.iter().cloned().chain([word.name.to_owned()]).collect();
            self.add_below(source.filter(|_| value.is_some()), &path, word, value);
        }
    }

    /// Adds the tables below a setting: a declared table, a list of them, or names of the user's own.
    fn add_below(
        &mut self,
        source: Option<&SourceFile>,
        path: &[String],
        word: &Word,
        value: Option<&Spanned<DeValue<'_>>>,
    ) {
        let value = value.map(Spanned::get_ref);
        match word.below {
            Below::Table(below) => self.add(source, path, below, value.and_then(DeValue::as_table)),
            Below::List(below) => {
                for element in value
                    .and_then(DeValue::as_array)
                    .into_iter()
                    .flat_map(|list| list.iter())
                {
                    let first = self.sections.len();
                    self.add(source, path, below, element.get_ref().as_table());
                    self.sections[first].is_element = true;
                }
            }
            Below::Nothing | Below::Named(_) => self.add_free(source, path, value.and_then(DeValue::as_table)),
        }
    }

    /// Adds a table whose names are the user's own: headers, php.ini settings.
    fn add_free(&mut self, source: Option<&SourceFile>, path: &[String], table: Option<&DeTable<'_>>) {
        let entries = table.into_iter().flat_map(sorted);
        self.sections.push(ShownSection {
            path: path.to_vec(),
            is_element: false,
            is_remark: false,
            lines: entries
                .zip(source.into_iter().cycle())
                .map(|((name, value), source)| setting(source, false, name, value))
                .collect(),
        });
    }

    /// The line of a setting that is not written.
    fn unwritten(&self, path: &[String], word: &'static Word) -> ShownLine {
        if let Some(value) = self.found(path, word.name) {
            return ShownLine::Setting {
                name: word.name.to_owned(),
                text: value.to_string(),
                value,
                origin: ValueOrigin::Found,
            };
        }
        match word.literal_default() {
            Some(value) => ShownLine::Setting {
                name: word.name.to_owned(),
                text: word.default.to_owned(),
                value,
                origin: ValueOrigin::Default,
            },
            None => ShownLine::Unset {
                name: word.name,
                meaning: word.default,
            },
        }
    }

    /// The value of a setting that follows from the machine or the project.
    fn found(&self, path: &[String], word: &str) -> Option<Value> {
        let settings = self.settings;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match (&path[..], word) {
            (["server"], "threads") => Some(json!(settings.server.threads)),
            (["server"], "spool_dir") => Some(json!(settings.server.spool_dir)),
            (["limits"], "body_spool") => Some(json!(format!("{}B", settings.server.limits.body_spool))),
            (["limits"], "connections") => Some(json!(settings.server.limits.connections)),
            (["pool", name], _) => {
                let pool = settings.pools.iter().find(|pool| pool.settings.name == *name)?;
                let kind = &pool.settings.kind;
                kind.supervised()?;
                match word {
                    "workers" => Some(json!(kind.capacity())),
                    "php" => Some(json!(pool.php.as_ref()?.path)),
                    "user" => Some(json!(kind.user()?.name)),
                    _ => None,
                }
            }
            (["site", name, rest @ ..], _) => {
                let site = settings.sites.iter().find(|site| site.settings.name == *name)?;
                match (rest, word) {
                    ([], "app") => Some(json!(site.app.preset.name)),
                    ([], "front") => Some(json!(site.front.as_ref()?)),
                    ([], "pool") => Some(json!(settings.pools[site.pool?].settings.name)),
                    (["limits"], "body") => Some(json!(format!("{}B", site.settings.limits.body))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Pools that exist though no file names them.
    fn invented(&self, kind: &str, written: &[&str]) -> Vec<String> {
        let names = self.settings.pools.iter().map(|pool| pool.settings.name.clone());
        names
            .filter(|name| kind == "pool" && !written.contains(&name.as_str()))
            .collect()
    }
}

/// True if a default would contradict a written setting: a pool is supervised or external, and `max_requests` is short
/// for a part of `recycle`.
fn is_excluded(words: &SettingsTable, word: &Word, table: Option<&DeTable<'_>>) -> bool {
    if words.name != "pool.NAME" {
        return false;
    }
    let has = |name: &str| table.is_some_and(|table| table.contains_key(name));
    let is_of_the_other = if has("servers") {
        is_of_supervised
    } else {
        is_of_external
    };
    is_of_the_other(word.name) || word.name == "max_requests" && has("recycle")
}

type NamedValue<'t> = (&'t str, &'t Spanned<DeValue<'t>>);

/// The entries of a table in the order of the file.
fn sorted<'t>(table: &'t DeTable<'t>) -> impl Iterator<Item = NamedValue<'t>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
        .into_iter()
        .map(|(name, value)| (name.get_ref().as_ref(), value))
}

/// True if a value has a header of its own. Its span is then that of the header.
fn is_section(source: &SourceFile, value: &Spanned<DeValue<'_>>) -> bool {
    let is_inline = |value: &Spanned<DeValue<'_>>| source.text[value.span()].starts_with('{');
    match value.get_ref() {
        DeValue::Table(_) => !is_inline(value),
        DeValue::Array(elements) => {
            let is_header = |element: &Spanned<DeValue<'_>>| element.get_ref().is_table() && !is_inline(element);
            elements.iter().next().is_some_and(is_header)
        }
        _ => false,
    }
}

/// A value as it is written.
fn setting(source: &SourceFile, is_path: bool, name: &str, value: &Spanned<DeValue<'_>>) -> ShownLine {
    let span = value.span();
    let line = source.text[..span.start].matches('\n').count() + 1;
    let plain = json_of(value.get_ref());
    let paths = if is_path {
        absolute_paths(source, name, &plain)
    } else {
        None
    };
    let (text, value) = match paths {
        Some(paths) => (paths.to_string(), paths),
        None => (source.text[span].to_owned(), plain),
    };
    ShownLine::Setting {
        name: name.to_owned(),
        text,
        value,
        origin: ValueOrigin::File(format!("{}:{line}", source.path.display())),
    }
}

/// A path, or a list of paths, made absolute; `None` if all stay as written.
fn absolute_paths(source: &SourceFile, name: &str, written: &Value) -> Option<Value> {
    match written {
        Value::String(path) => absolute(source, name, path).map(Value::from),
        Value::Array(paths) => {
            let each = paths
                .iter()
                .map(|path| absolute_paths(source, name, path).unwrap_or_else(|| path.clone()));
            Some(each.collect())
        }
        _ => None,
    }
}

/// The absolute path; `None` for a text that begins with a variable, and for words that are no path.
fn absolute(source: &SourceFile, name: &str, path: &str) -> Option<String> {
    let is_word = name == "php" && !path.contains('/') || name == "basic_auth" && path == "off";
    if path.starts_with('$') || is_word || path.contains("://") {
        return None;
    }
    // Links stay: a root may be one that each release changes.
    let joined = std::path::absolute(source.directory().join(path)).ok()?;
    joined.to_str().map(str::to_owned)
}

/// TOML as JSON; dates become their text.
fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(integer) => {
            i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(float) => float
            .as_str()
            .replace('_', "")
            .parse::<f64>()
            .map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(elements) => elements.iter().map(|element| json_of(element.get_ref())).collect(),
        DeValue::Table(table) => sorted(table)
            .map(|(name, value)| (name.to_owned(), json_of(value.get_ref())))
            .collect(),
    }
}

/// A name as TOML: without quotes if possible.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_bare) {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}
