//! Settings as data: table, name, default and description.

/// A setting.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// Its name in a file.
    pub name: &'static str,
    /// The default as it would be written, or in words.
    pub default: &'static str,
    /// One sentence for the reference page.
    pub about: &'static str,
    /// The forms of its value; none of a table.
    pub kinds: &'static [ValueKind],
    /// True for a path, or a list of paths, that starts at the file.
    pub path: bool,
    /// The table or the list of tables that it is.
    pub below: Below,
}

/// A form that a value may have.
#[derive(Debug, Clone, Copy)]
pub enum ValueKind {
    /// A string.
    Text,
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
    /// A whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// A list of strings.
    Texts,
    /// A list of whole numbers.
    Counts,
    /// Names of the user's own, each with a text; numbers and flags count as PHP's texts for them.
    Pairs,
}

/// The tables below a setting.
#[derive(Debug, Clone, Copy)]
pub enum Below {
    /// It is a plain value.
    Nothing,
    /// It is a table.
    Table(&'static SettingsTable),
    /// It is a list of tables.
    List(&'static SettingsTable),
    /// It holds tables whose names are the user's.
    Named(&'static SettingsTable),
}

/// A table with its settings. `NAME` stands for a name the user chooses.
#[derive(Debug)]
pub struct SettingsTable {
    /// `site.NAME.limits`; empty for the top of a file.
    pub name: &'static str,
    /// In the order of the reference.
    pub words: &'static [Word],
}

/// A kind of file: its tables, and its name in messages.
#[derive(Debug)]
pub struct Language {
    /// As in "tables of a configuration".
    pub name: &'static str,
    /// In the order of the reference.
    pub tables: &'static [&'static SettingsTable],
    /// Settings of other programs.
    pub foreign: Option<&'static Foreign>,
}

/// Settings and tables of other programs, with their names here.
#[derive(Debug)]
pub struct Foreign {
    /// The name of a setting here.
    pub setting: fn(&str) -> Option<&'static str>,
    /// The name of a table here.
    pub table: fn(&str) -> Option<&'static str>,
}

impl Language {
    /// The other tables that have a setting of this name.
    pub fn homes_of(&self, name: &str, not: &SettingsTable) -> Vec<&'static str> {
        let others = self
            .tables
            .iter()
            .filter(|table| !table.name.is_empty() && table.name != not.name);
        others
            .filter(|table| table.knows(name))
            .map(|table| table.name)
            .collect()
    }

    /// Every setting with its table.
    pub fn all(&self) -> impl Iterator<Item = (&'static SettingsTable, &'static str)> {
        self.tables
            .iter()
            .filter(|table| !table.name.is_empty())
            .flat_map(|table| table.names().map(|name| (*table, name)))
    }
}

impl Word {
    /// A table at the top of a file.
    pub const fn table(name: &'static str, about: &'static str, below: Below) -> Self {
        Self {
            name,
            default: "",
            about,
            kinds: &[],
            path: false,
            below,
        }
    }

    /// The sentence for the reference page.
    pub fn about(&self) -> &'static str {
        self.about.trim_start()
    }

    /// The default for the reference page: a value is set as code.
    pub fn shown_default(&self) -> String {
        match self.literal_default() {
            Some(_) => format!("`{}`", self.default),
            None => self.default.to_owned(),
        }
    }

    /// The default, if it is a value and no description.
    pub fn literal_default(&self) -> Option<serde_json::Value> {
        serde_json::from_str(self.default).ok()
    }
}

impl SettingsTable {
    /// The names of its settings, in the order of the reference.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.words.iter().map(|word| word.name)
    }

    /// True if `name` is one of its settings.
    pub fn knows(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }
}

/// An entry of a table.
pub const fn word(name: &'static str, default: &'static str, about: &'static str) -> Word {
    Word {
        name,
        default,
        about,
        kinds: &[],
        path: false,
        below: Below::Nothing,
    }
}
