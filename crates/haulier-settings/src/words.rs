//! Every setting, once: its table, name, default and what it is for.

/// A setting.
#[derive(Debug)]
pub struct Word {
    /// As it is written.
    pub name: &'static str,
    /// The default as it would be written, or in words.
    pub default: &'static str,
    /// One sentence for the reference page.
    pub about: &'static str,
    /// The forms of its value; none of a table.
    pub kinds: &'static [Kind],
    /// Whether it holds a path, or a list of them, that starts at the file.
    pub path: bool,
    /// The table or the list of tables that it is.
    pub below: Below,
}

/// A form that a value may have.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
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
    Table(&'static Table),
    /// It is a list of tables.
    List(&'static Table),
    /// It holds tables whose names are the user's.
    Named(&'static Table),
}

/// A table with its settings. `NAME` stands for a name the user chooses.
#[derive(Debug)]
pub struct Table {
    /// `site.NAME.limits`; empty for the top of a file.
    pub name: &'static str,
    /// In the order of the reference.
    pub words: &'static [Word],
}

/// A kind of file: its tables, and how messages speak of it.
#[derive(Debug)]
pub struct Language {
    /// As in "tables of a configuration".
    pub name: &'static str,
    /// In the order of the reference.
    pub tables: &'static [&'static Table],
    /// Words of other programs that people bring along.
    pub foreign: Option<&'static Foreign>,
}

/// Words of other programs, with what they are called here.
#[derive(Debug)]
pub struct Foreign {
    /// What a setting is called here.
    pub setting: fn(&str) -> Option<&'static str>,
    /// What a table is called here.
    pub table: fn(&str) -> Option<&'static str>,
}

impl Language {
    /// The other tables that have a setting of this name.
    pub fn homes_of(&self, name: &str, not: &Table) -> Vec<&'static str> {
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
    pub fn all(&self) -> impl Iterator<Item = (&'static Table, &'static str)> {
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

    /// The default as the reference page shows it: one that can be written as such is set as code.
    pub fn shown_default(&self) -> String {
        match self.literal_default() {
            Some(_) => format!("`{}`", self.default),
            None => self.default.to_owned(),
        }
    }

    /// The default as a value, where it is one and not a description in words.
    pub fn literal_default(&self) -> Option<serde_json::Value> {
        serde_json::from_str(self.default).ok()
    }
}

impl Table {
    /// The names of its settings, in the order of the reference.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.words.iter().map(|word| word.name)
    }

    /// Whether `name` is one of its settings.
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
