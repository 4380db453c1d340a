//! Takes typed values out of TOML tables, and reports every mistake with its place.
//!
//! It knows no single setting: those are declared with `settings_table!`.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::declare::{Declared, Header};
use crate::diagnostic::{Diagnostic, Report};
use crate::source::{Placed, SourcePlace};
use crate::value::{self, ExpandError, Rate};
use crate::words::{Language, SettingsTable};

/// The largest count of connections, requests or processes. The product of two fits into 64 bits.
const MOST: u64 = 1_000_000_000;

/// Looks up an environment variable.
pub type Variables<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Name → text, in the order of the file.
pub type Pairs = Vec<(Placed<String>, Placed<String>)>;

/// The main file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct UnreadableFile {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub source: std::io::Error,
}

/// A table of the file, with its known settings.
#[derive(Debug)]
pub struct Section<'t> {
    language: &'static Language,
    words: &'static SettingsTable,
    /// Its path as written: `site.shop`.
    name: String,
    /// The last part of the path, with its place.
    header: Placed<String>,
    table: &'t DeTable<'t>,
}

/// Reads one source.
pub struct Reader<'r> {
    language: &'static Language,
    source: usize,
    report: &'r mut Report,
    variables: Variables<'r>,
}

type SpannedValue<'t> = &'t Spanned<DeValue<'t>>;

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl<'r> Reader<'r> {
    pub fn new(language: &'static Language, source: usize, report: &'r mut Report, variables: Variables<'r>) -> Self {
        Self {
            language,
            source,
            report,
            variables,
        }
    }

    pub fn report(&mut self) -> &mut Report {
        self.report
    }

    pub fn place(&self, span: Range<usize>) -> SourcePlace {
        SourcePlace {
            source: self.source,
            span,
        }
    }

    /// A table as a section. Unknown names in it are reported.
    pub fn section<'t>(&mut self, words: &'static SettingsTable, name: &str, table: &'t DeTable<'t>) -> Section<'t> {
        let mut unknown: Vec<_> = table.iter().filter(|(key, _)| !words.knows(key.get_ref())).collect();
        unknown.sort_by_key(|(key, _)| key.span().start);
        let last = unknown.len();
        for (number, (key, value)) in unknown.into_iter().enumerate() {
            let diagnostic = self.unknown(words, key.get_ref(), key.span(), value.get_ref());
            // The known names are listed once for each table, below the last unknown one.
            let diagnostic = match number + 1 == last {
                true => diagnostic.help(known_names(words, name, key.get_ref(), self.language.name)),
                false => diagnostic,
            };
            self.report.push(diagnostic);
        }
        Section {
            language: self.language,
            words,
            name: name.to_owned(),
            header: Placed::default(),
            table,
        }
    }

    /// The table `key` below a section; any other value is reported.
    pub fn table<'t>(&mut self, section: &Section<'t>, key: &str) -> Option<&'t DeTable<'t>> {
        let entry = section.entry(key)?;
        let table = entry.get_ref().as_table();
        if table.is_none() {
            let header = if section.name.is_empty() {
                // Sites, pools and stores have a name of their own.
                match key {
                    "site" | "pool" | "store" => format!("{key}.NAME"),
                    _ => key.to_owned(),
                }
            } else {
                format!("{}.{key}", section.name)
            };
            self.wrong_type(
                key,
                entry,
                "a table",
                &format!("write `[{header}]` on a line of its own"),
            );
        }
        table
    }

    /// The header of a section, with the names of the settings in it.
    pub fn header(&self, section: &Section<'_>) -> Header {
        let written = section
            .words
            .names()
            .filter_map(|name| section.key_span(name).map(|span| (name, span)));
        Header {
            name: section.header.clone(),
            directory: self.report.sources[self.source].directory(),
            written: written
                .map(|(name, span)| Placed {
                    value: name,
                    place: Some(self.place(span)),
                })
                .collect(),
            misspelt: section.words.names().filter(|name| section.misspells(name)).collect(),
        }
    }

    /// A declared table below a section.
    pub fn declared<T: Declared>(&mut self, section: &Section<'_>, key: &str) -> Option<T> {
        let table = self.table(section, key)?;
        let header = Placed {
            value: key.to_owned(),
            place: section.key_span(key).map(|span| self.place(span)),
        };
        Some(self.declared_table(&section.path_of(key), header, table))
    }

    /// The declared tables of an array `[[…]]` below a section.
    pub fn declared_list<T: Declared>(&mut self, section: &Section<'_>, key: &str) -> Vec<T> {
        let tables = self.tables(section, key).into_iter();
        tables
            .map(|(place, table)| {
                let header = Placed {
                    value: key.to_owned(),
                    place: Some(place),
                };
                self.declared_table(&section.path_of(key), header, table)
            })
            .collect()
    }

    /// A declared table that stands at `path`.
    pub fn declared_table<T: Declared>(&mut self, path: &str, header: Placed<String>, table: &DeTable<'_>) -> T {
        let mut section = self.section(T::TABLE, path, table);
        section.header = header;
        T::read(self, &section)
    }

    /// One of a closed set of words.
    pub fn choice<T: Copy>(&mut self, section: &Section<'_>, key: &str, known: &[(&str, T)]) -> Option<Placed<T>> {
        let written = self.text(section, key)?;
        if let Some((_, value)) = known.iter().find(|(word, _)| *word == written.value) {
            return Some(written.with(*value));
        }
        let words: Vec<String> = known.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let label = match nearest(&written.value, known.iter().map(|(word, _)| *word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => "no such word here".to_owned(),
        };
        self.report.push(
            Diagnostic::error("config::value", format!("`{key}` knows no \"{}\"", written.value))
                .at(written.place.as_ref(), label)
                .help(format!("one of {}", words.join(", "))),
        );
        None
    }

    /// True if `key` is written as a table. Some settings also have a short form.
    pub fn is_table(&self, section: &Section<'_>, key: &str) -> bool {
        section.entry(key).is_some_and(|entry| entry.get_ref().is_table())
    }

    /// Text with its variables expanded.
    pub fn text(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<String>> {
        let entry = section.entry(key)?;
        self.text_of(key, entry)
    }

    fn text_of(&mut self, key: &str, entry: SpannedValue<'_>) -> Option<Placed<String>> {
        let Some(written) = entry.get_ref().as_str() else {
            self.wrong_type(key, entry, "text", "put it in quotes");
            return None;
        };
        let place = self.place(entry.span());
        match value::expand(written, self.variables) {
            Ok(value) => Some(Placed {
                value,
                place: Some(place),
            }),
            Err(error) => {
                let help = match &error {
                    ExpandError::Unset(name) => format!("set it, or give a default: `${{{name}:-value}}`"),
                    ExpandError::Open => "a plain `${` is written `$${`".to_owned(),
                    ExpandError::File { .. } => "the file must be readable when haulier starts".to_owned(),
                };
                self.report.push(
                    Diagnostic::error("config::variable", error.to_string())
                        .at(Some(&place), "needed here")
                        .help(help),
                );
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn flag(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<bool>> {
        let entry = section.entry(key)?;
        let flag = entry.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(key, entry, "`true` or `false`", "without quotes");
        }
        Some(Placed {
            value: flag?,
            place: Some(self.place(entry.span())),
        })
    }

    /// A whole number from `least` to `MOST`. `why` explains `least`.
    pub fn count(&mut self, section: &Section<'_>, key: &str, least: u64, why: &str) -> Option<Placed<u64>> {
        let entry = section.entry(key)?;
        self.count_of(section, key, entry, least, why)
    }

    /// A list of whole numbers from `least` on.
    pub fn counts(&mut self, section: &Section<'_>, key: &str, least: u64, why: &str) -> Option<Vec<Placed<u64>>> {
        let entry = section.entry(key)?;
        let Some(list) = entry.get_ref().as_array() else {
            self.wrong_type(key, entry, "a list of whole numbers", "such as `[320, 640]`");
            return None;
        };
        let numbers = list
            .iter()
            .filter_map(|one| self.count_of(section, key, one, least, why));
        Some(numbers.collect())
    }

    fn count_of(
        &mut self,
        section: &Section<'_>,
        key: &str,
        entry: SpannedValue<'_>,
        least: u64,
        why: &str,
    ) -> Option<Placed<u64>> {
        let Some(integer) = entry.get_ref().as_integer() else {
            self.wrong_type(key, entry, "a whole number", "without quotes and without a unit");
            return None;
        };
        let digits = integer.as_str().replace('_', "");
        let place = Some(self.place(entry.span()));
        // A number that does not fit is too large, too.
        let number = i128::from_str_radix(&digits, integer.radix()).unwrap_or(i128::MAX);
        if let Some(value) = u64::try_from(number)
            .ok()
            .filter(|number| (least..=MOST).contains(number))
        {
            return Some(Placed { value, place });
        }
        let (title, label) = if number < i128::from(least) {
            (format!("`{key}` must be at least {least}"), why.to_owned())
        } else {
            (format!("`{key}` is too large"), format!("at most {MOST}"))
        };
        let mut diagnostic = Diagnostic::error("config::value", title).at(place.as_ref(), label);
        if let Some(default) = section.default(key) {
            diagnostic = diagnostic.help(format!("leave the line out for the default, {default}"));
        }
        self.report.push(diagnostic);
        None
    }

    /// An addition to the niceness of a process: -20 to 19.
    pub fn niceness(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<i32>> {
        let entry = section.entry(key)?;
        let Some(integer) = entry.get_ref().as_integer() else {
            self.wrong_type(key, entry, "a whole number", "without quotes");
            return None;
        };
        let place = Some(self.place(entry.span()));
        let number = i32::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok();
        if let Some(value) = number.filter(|number| (-20..=19).contains(number)) {
            return Some(Placed { value, place });
        }
        let title = format!("`{key}` is not a niceness");
        self.report.push(Diagnostic::error("config::value", title).at(
            place.as_ref(),
            "from -20 (first) to 19 (last); 0 is what haulier itself has",
        ));
        None
    }

    /// A time with its unit; it may be zero.
    pub fn duration(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<Duration>> {
        let text = self.with_unit(section, key, "30s")?;
        let duration = value::duration(&text.value);
        if duration.is_none() {
            self.report.push(
                Diagnostic::error("config::value", format!("not a time: \"{}\"", text.value))
                    .at(
                        text.place.as_ref(),
                        "expected a number and a unit, such as \"500ms\", \"30s\" or \"5m\"",
                    )
                    .help("units: ms, s, m, h, d, w, y"),
            );
        }
        Some(text.with(duration?))
    }

    /// A timeout: a time above zero.
    pub fn deadline(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<Duration>> {
        let deadline = self.duration(section, key)?;
        if !deadline.value.is_zero() {
            return Some(deadline);
        }
        let error = Diagnostic::error("config::value", format!("`{key}` must be longer than that"));
        self.report
            .push(error.at(deadline.place.as_ref(), "nobody is that fast"));
        None
    }

    /// A size with its unit, in bytes; at least `least`.
    pub fn size(&mut self, section: &Section<'_>, key: &str, least: u64) -> Option<Placed<u64>> {
        let text = self.with_unit(section, key, "8MiB")?;
        let Some(size) = value::size(&text.value) else {
            self.report.push(
                Diagnostic::error("config::value", format!("not a size: \"{}\"", text.value))
                    .at(
                        text.place.as_ref(),
                        "expected a number and a unit, such as \"128KiB\", \"20MB\" or \"1GiB\"",
                    )
                    .help("units: B, KB, MB, GB (thousands) and KiB, MiB, GiB (1024s)"),
            );
            return None;
        };
        if size < least {
            let error = Diagnostic::error("config::value", format!("`{key}` is too small"));
            self.report
                .push(error.at(text.place.as_ref(), format!("at least {}", value::show_size(least))));
            return None;
        }
        Some(text.with(size))
    }

    /// Text. A bare number is reported as a number without a unit.
    fn with_unit(&mut self, section: &Section<'_>, key: &str, example: &str) -> Option<Placed<String>> {
        let entry = section.entry(key)?;
        if let DeValue::Integer(_) | DeValue::Float(_) = entry.get_ref() {
            let place = self.place(entry.span());
            self.report
                .push(Diagnostic::error("config::unit", format!("`{key}` needs a unit")).at(
                    Some(&place),
                    format!("write it in quotes with its unit, such as \"{example}\""),
                ));
            return None;
        }
        self.text_of(key, entry)
    }

    /// A list of texts.
    pub fn texts(&mut self, section: &Section<'_>, key: &str) -> Option<Vec<Placed<String>>> {
        let entry = section.entry(key)?;
        let Some(list) = entry.get_ref().as_array() else {
            let example = entry
                .get_ref()
                .as_str()
                .map_or("[\"…\"]".to_owned(), |text| format!("[\"{text}\"]"));
            self.wrong_type(key, entry, "a list", &format!("write `{example}`"));
            return None;
        };
        Some(list.iter().filter_map(|one| self.text_of(key, one)).collect())
    }

    /// One text, or a list of them.
    pub fn text_or_texts(&mut self, section: &Section<'_>, key: &str) -> Option<Vec<Placed<String>>> {
        match section.entry(key)?.get_ref() {
            DeValue::String(_) => self.text(section, key).map(|one| vec![one]),
            _ => self.texts(section, key),
        }
    }

    /// A rate: requests in a time.
    pub fn rate(&mut self, section: &Section<'_>, key: &str) -> Option<Placed<Rate>> {
        let text = self.with_unit(section, key, "20/s")?;
        let rate = value::rate(&text.value);
        if rate.is_none() {
            self.report.push(
                Diagnostic::error("config::value", format!("not a rate: \"{}\"", text.value))
                    .at(
                        text.place.as_ref(),
                        "expected requests and a time, such as \"20/s\" or \"100/m burst 20\"",
                    )
                    .help("times: s, m, h, d; `burst` is how many may come at once, all of them without it"),
            );
        }
        Some(text.with(rate?))
    }

    /// The tables of an array `[[…]]`.
    pub fn tables<'t>(&mut self, section: &Section<'t>, key: &str) -> Vec<(SourcePlace, &'t DeTable<'t>)> {
        let Some(entry) = section.entry(key) else {
            return Vec::new();
        };
        let header = match section.name.as_str() {
            "" => format!("write `[[{key}]]` on a line of its own"),
            name => format!("write `[[{name}.{key}]]` on a line of its own"),
        };
        let Some(list) = entry.get_ref().as_array() else {
            self.wrong_type(key, entry, "a list of tables", &header);
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(list.len());
        for one in list {
            match one.get_ref().as_table() {
                Some(table) => tables.push((self.place(one.span()), table)),
                None => self.wrong_type(key, one, "a list of tables", &header),
            }
        }
        tables
    }

    /// A table of names the user chooses, each with a text; numbers, `true` and `false` count as PHP's texts for them.
    /// In the order of the file.
    pub fn map(&mut self, section: &Section<'_>, key: &str) -> Option<Vec<(Placed<String>, Placed<String>)>> {
        let table = self.table(section, key)?;
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut pairs = Vec::with_capacity(entries.len());
        for (name, entry) in entries {
            if let Some(value) = self.scalar(name.get_ref(), entry) {
                let place = self.place(name.span());
                pairs.push((
                    Placed {
                        value: name.get_ref().to_string(),
                        place: Some(place),
                    },
                    value,
                ));
            }
        }
        Some(pairs)
    }

    fn scalar(&mut self, name: &str, entry: SpannedValue<'_>) -> Option<Placed<String>> {
        let value = match entry.get_ref() {
            DeValue::Integer(integer) => integer.as_str().replace('_', ""),
            DeValue::Float(float) => float.as_str().replace('_', ""),
            DeValue::Boolean(flag) => if *flag { "1" } else { "0" }.to_owned(),
            DeValue::Table(inner) => {
                self.dotted_name(name, entry, inner);
                return None;
            }
            _ => return self.text_of(name, entry),
        };
        Some(Placed {
            value,
            place: Some(self.place(entry.span())),
        })
    }

    /// `opcache.enable = 1` is a table to TOML, a name to PHP.
    fn dotted_name(&mut self, name: &str, entry: SpannedValue<'_>, inner: &DeTable<'_>) {
        let first = inner.keys().next().map_or("…".into(), |key| key.get_ref().clone());
        self.wrong_type(
            name,
            entry,
            "text",
            &format!("a name with a dot stands in quotes: `\"{name}.{first}\"`"),
        );
    }

    fn wrong_type(&mut self, key: &str, entry: SpannedValue<'_>, wanted: &str, label: &str) {
        let got = match entry.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "`true` or `false`",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let place = self.place(entry.span());
        self.report.push(
            Diagnostic::error("config::type", format!("`{key}` takes {wanted}, not {got}")).at(Some(&place), label),
        );
    }

    fn unknown(&self, words: &'static SettingsTable, key: &str, span: Range<usize>, value: &DeValue<'_>) -> Diagnostic {
        let is_table = words.name.is_empty() && value.is_table();
        let what = if is_table {
            format!("unknown table `[{key}]`")
        } else {
            format!("unknown setting `{key}`")
        };
        let place = self.place(span);
        Diagnostic::error("config::unknown", what).at(Some(&place), self.hint(words, key, is_table))
    }

    /// The most useful label for an unknown name.
    fn hint(&self, words: &'static SettingsTable, key: &str, is_table: bool) -> String {
        let foreign = self.language.foreign.and_then(|foreign| match is_table {
            true => (foreign.table)(key),
            false => (foreign.setting)(key),
        });
        // A table is no misplaced plain setting.
        let homes = if is_table {
            Vec::new()
        } else {
            self.language.homes_of(key, words)
        };
        if !homes.is_empty() {
            let homes: Vec<String> = homes.iter().map(|home| format!("`[{home}]`")).collect();
            return format!("this belongs in {}", homes.join(" or "));
        }
        if let Some(foreign) = foreign {
            return foreign.to_owned();
        }
        if let Some(near) = nearest(key, words.names()) {
            return format!("did you mean `{near}`?");
        }
        match self.nearest_anywhere(key).filter(|_| !is_table) {
            Some((table, near)) => format!("did you mean `{near}` in `[{}]`?", table.name),
            None => "no such name here".to_owned(),
        }
    }

    /// The table and setting that `written` is a typing mistake of.
    fn nearest_anywhere(&self, written: &str) -> Option<(&'static SettingsTable, &'static str)> {
        let near = nearest(written, self.language.all().map(|(_, name)| name))?;
        self.language.all().find(|(_, name)| *name == near)
    }
}

impl<'t> Section<'t> {
    /// The name of a table below it.
    fn path_of(&self, key: &str) -> String {
        match self.name.as_str() {
            "" => key.to_owned(),
            name => format!("{name}.{key}"),
        }
    }

    fn entry(&self, key: &str) -> Option<SpannedValue<'t>> {
        debug_assert!(
            self.words.knows(key),
            "`{key}` must be in words.rs for `{}`",
            self.words.name
        );
        self.table
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, entry)| entry)
    }

    /// The span of the name of a setting.
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.table.keys().find(|name| name.get_ref() == key).map(Spanned::span)
    }

    /// True if an unknown name in the table is a typing mistake of `word`.
    pub fn misspells(&self, word: &str) -> bool {
        let mut unknown = self
            .table
            .keys()
            .map(|key| key.get_ref().as_ref())
            .filter(|key| !self.words.knows(key));
        let meant = |key: &str| nearest(key, self.words.names()) == Some(word);
        let foreign = |key: &str| {
            let here = self.language.foreign.and_then(|foreign| (foreign.setting)(key));
            here.is_some_and(|here| here.contains(&format!("this is `{word}`")))
        };
        unknown.any(|key| meant(key) || foreign(key))
    }

    fn default(&self, key: &str) -> Option<&'static str> {
        self.words
            .words
            .iter()
            .find(|word| word.name == key)
            .map(|word| word.default)
    }
}

/// The tables below `[pool]` or `[site]`, in the order of the file.
pub fn named_tables<'t>(
    reader: &mut Reader<'_>,
    top: &Section<'t>,
    kind: &str,
) -> Vec<(Placed<String>, &'t DeTable<'t>)> {
    let Some(table) = reader.table(top, kind) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut tables = Vec::new();
    for (name, entry) in entries {
        let place = reader.place(name.span());
        match entry.get_ref().as_table() {
            Some(table) => {
                check_name(reader, kind, name.get_ref(), &place);
                tables.push((
                    Placed {
                        value: name.get_ref().to_string(),
                        place: Some(place),
                    },
                    table,
                ));
            }
            None => reader.report().push(
                Diagnostic::error("config::type", format!("a {kind} needs a name of its own"))
                    .at(Some(&place), format!("this belongs in a table `[{kind}.NAME]`"))
                    .help(format!(
                        "write `[{kind}.{}]` above it; the name is yours",
                        example_name(kind)
                    )),
            ),
        }
    }
    tables
}

fn example_name(kind: &str) -> &'static str {
    match kind {
        "pool" => "php",
        "server" => "nginx",
        "store" => "acme-images",
        _ => "shop",
    }
}

/// Checks a name of the user's: it becomes a label in logs and metrics, and a part of socket names. A store has the name
/// of its bucket.
fn check_name(reader: &mut Reader<'_>, kind: &str, name: &str, place: &SourcePlace) {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte) || kind == "store" && byte == b'.';
    let most = if kind == "store" { 63 } else { 32 };
    if name.is_empty() || name.len() > most || !name.bytes().all(fits) {
        let error = Diagnostic::error("config::name", format!("not a name for a {kind}: `{name}`"))
            .at(Some(place), format!("up to {most} letters, digits, `-` and `_`"));
        reader.report().push(match kind {
            "site" => error.help("host names go into `hosts = [\"…\"]`"),
            _ => error,
        });
    }
}

/// The one of `known` that `written` is a typing mistake of.
pub fn nearest<'k>(written: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let written = written.to_ascii_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&written, name), name))
        .filter(|(distance, name)| *distance <= (name.len().max(written.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Most names in a line of help.
const SHOWN_NAMES: usize = 10;

/// The known names of a table; of many only those nearest to `key`.
fn known_names(words: &'static SettingsTable, name: &str, key: &str, language: &str) -> String {
    let names = nearest_first(key, words.names());
    let known = names[..names.len().min(SHOWN_NAMES)].join(", ");
    let more = match names.len().saturating_sub(SHOWN_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match words.name {
        "" => format!("tables of a {language}: {known}{more}"),
        _ => format!("settings known in `[{name}]`: {known}{more}"),
    }
}

/// `known` with the nearest names first, if there are too many to show all. Else only the one that `written` is a typing
/// mistake of comes first.
fn nearest_first<'k>(written: &str, known: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
    let mut names: Vec<&str> = known.collect();
    if names.len() > SHOWN_NAMES {
        let similarity = |name: &str| strsim::jaro_winkler(&written.to_ascii_lowercase(), name);
        names.sort_by(|one, other| similarity(other).total_cmp(&similarity(one)));
    }
    if let Some(near) = nearest(written, names.iter().copied()) {
        names.retain(|name| *name != near);
        names.insert(0, near);
    }
    names
}

/// The tables of one source, or the first syntax error.
pub fn parse(text: &str, source: usize) -> Result<Spanned<DeTable<'_>>, Diagnostic> {
    let (table, mut errors) = DeTable::parse_recoverable(text);
    // For an unclosed quote the recovered errors begin with a comma "missing" on the next line: the earliest place is
    // the true fault.
    errors.sort_by_key(|error| error.span().map_or(usize::MAX, |span| span.start));
    let Some(error) = errors.first() else { return Ok(table) };
    let span = error.span().unwrap_or(0..0);
    let (title, label, help) = reword(error.message());
    let place = SourcePlace { source, span };
    let diagnostic = Diagnostic::error("config::syntax", title).at(Some(&place), label);
    Err(match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    })
}

/// Message of the parser → title, label and help.
fn reword(message: &str) -> (String, String, Option<&'static str>) {
    let first = message.lines().next().unwrap_or(message);
    let (title, label, help) = match first {
        "duplicate key" => ("the same name twice in one table", "again here", None),
        _ if first.contains("must be quoted") => (
            "text needs quotes",
            "put this in quotes",
            Some("numbers, `true` and `false` stand without quotes"),
        ),
        _ if first.starts_with("invalid basic string") || first.starts_with("invalid literal string") => {
            ("text without its closing quote", "a quote is missing before this", None)
        }
        _ => ("this is not TOML", first, None),
    };
    (title.to_owned(), label.to_owned(), help)
}
