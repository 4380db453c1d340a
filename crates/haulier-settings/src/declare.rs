//! Declares a table of settings: one row a setting, and everything that follows from it.
//!
//! [`settings_table!`](crate::settings_table) makes three things of a declaration: the struct as written, with the place
//! of every value; its reader; and the [`SettingsTable`] for the error texts, the reference page, the JSON Schema and
//! `haulier config`.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::reader::{Reader, Section};
use crate::source::Placed;
use crate::value;
use crate::words::{SettingsTable, Word, word};

/// The header of a table in a file.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The last part of the header, `shop` of `[site.shop]`. It has no place if no file has the table.
    pub name: Placed<String>,
    /// The directory that relative paths of the table start from.
    pub directory: PathBuf,
    /// The settings that are written, with valid values or not.
    pub written: Vec<Placed<&'static str>>,
    /// The settings that an unknown name is a typing mistake of.
    pub misspelt: Vec<&'static str>,
}

impl Header {
    /// The header of a table that no file has.
    pub fn named(name: &str) -> Self {
        Self {
            name: Placed::unplaced(name.to_owned()),
            directory: PathBuf::from("."),
            ..Self::default()
        }
    }

    /// True if the setting is written, with a valid value or not.
    pub fn has(&self, setting: &str) -> bool {
        self.written.iter().any(|written| written.value == setting)
    }

    /// True if a file has the table, even an empty one.
    pub fn is_written(&self) -> bool {
        self.name.place.is_some()
    }
}

/// A table that is declared by [`settings_table!`](crate::settings_table).
pub trait Declared: Default {
    /// Its settings.
    const TABLE: &'static SettingsTable;

    /// Takes its values out of a section.
    fn read(reader: &mut Reader<'_>, section: &Section<'_>) -> Self;

    /// Its header.
    fn header(&self) -> &Header;
}

/// A setting whose default is a value.
pub struct Value<T> {
    written: Option<Placed<T>>,
    default: fn() -> T,
}

impl<T> Value<T> {
    /// A setting as written, with its default.
    pub fn new(written: Option<Placed<T>>, default: fn() -> T) -> Self {
        Self { written, default }
    }

    /// Replaces the written value.
    pub fn set(&mut self, value: T) {
        self.set_placed(Placed::unplaced(value));
    }

    /// Replaces the written value by one with a place.
    pub fn set_placed(&mut self, value: Placed<T>) {
        self.written = Some(value);
    }
}

impl<T: Clone> Value<T> {
    /// The written value, else the default.
    pub fn get(&self) -> T {
        self.written
            .as_ref()
            .map_or_else(self.default, |written| written.value.clone())
    }
}

impl<T: Clone> Clone for Value<T> {
    fn clone(&self) -> Self {
        Self::new(self.written.clone(), self.default)
    }
}

impl<T: fmt::Debug> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

/// Gives the written value.
impl<T> Deref for Value<T> {
    type Target = Option<Placed<T>>;

    fn deref(&self) -> &Self::Target {
        &self.written
    }
}

/// A value that the code takes from a written setting.
pub trait Taken<W> {
    /// Takes the value.
    fn taken(written: &W) -> Self;
}

impl<T: Clone> Taken<Value<T>> for T {
    fn taken(written: &Value<T>) -> Self {
        written.get()
    }
}

impl<T: Clone> Taken<Option<Placed<T>>> for Option<T> {
    fn taken(written: &Option<Placed<T>>) -> Self {
        written.as_ref().map(|written| written.value.clone())
    }
}

impl Taken<Value<u64>> for usize {
    fn taken(written: &Value<u64>) -> Self {
        Self::try_from(written.get()).unwrap_or(Self::MAX)
    }
}

impl Taken<Value<u64>> for u32 {
    fn taken(written: &Value<u64>) -> Self {
        Self::try_from(written.get()).unwrap_or(Self::MAX)
    }
}

/// The number of settings in all parts of a table.
pub const fn count(parts: &[&[Word]]) -> usize {
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// The settings of all parts of a table, in their order.
pub const fn joined<const COUNT: usize>(parts: &[&[Word]]) -> [Word; COUNT] {
    let mut words = [word("", "", ""); COUNT];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            words[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    words
}

/// A type that a default in a declaration may have.
pub trait Literal {
    /// Parses the default of a declaration. A test parses every one.
    fn of(text: &'static str) -> Self;
}

impl Literal for bool {
    fn of(text: &'static str) -> Self {
        text == "true"
    }
}

impl Literal for String {
    fn of(text: &'static str) -> Self {
        text.trim_matches('"').to_owned()
    }
}

impl Literal for Duration {
    fn of(text: &'static str) -> Self {
        value::duration(text.trim_matches('"')).expect("the default of a declaration is a time")
    }
}

impl Literal for u64 {
    fn of(text: &'static str) -> Self {
        let unquoted = text.trim_matches('"');
        let number = if unquoted == text {
            text.parse().ok()
        } else {
            value::size(unquoted)
        };
        number.expect("the default of a declaration is a number, or a size")
    }
}

impl Literal for i32 {
    fn of(text: &'static str) -> Self {
        text.parse().expect("the default of a declaration is a number")
    }
}

/// The default of a [`Choice`](crate::settings_table), by its word.
pub fn chosen<T: Copy>(known: &[(&str, T)], text: &'static str) -> T {
    let word = text.trim_matches('"');
    let found = known.iter().find(|(known, _)| *known == word);
    found.expect("the default of a declaration is one of its words").1
}

/// Declares a table: its name, and a row for each setting.
///
/// A row has a doc comment (the text of the reference), a name, a kind with its limits, and a default: a value
/// (`= "30s"`), or words (`else "none"`, `else "required"`). Its field is an `Option<Placed<T>>`, or a
/// [`Value`](crate::declare::Value) if the default is a value. `as "static"` gives the setting another name than the
/// field.
///
/// Kinds: `Text`, `Path`, `Texts`, `Paths`, `TextOrTexts`, `Flag`, `Count(least, "why")`, `Counts(least, "why")`,
/// `Size(least)`, `Duration` (may be zero), `Deadline` (may not), `Rate`, `Niceness`, `Choice(Type, WORDS)`, `Pairs`,
/// tables: `Table(T)` (`= {}`: always there), `TableOr(T, row, least, "why")` (or the number alone), `Tables(T)`, and
/// `Rows(T)`: the rows of the declaration `T` stand here, in the same table.
///
/// A second struct behind `=>` is the one that the code uses. It has a field for each row with `-> Type`, or an
/// `Option<Type>` if the row has no default as a value, and fields of its own for values that are resolved. It is made
/// with `From<&Table>`; its `Default` has the defaults of the rows.
#[macro_export]
macro_rules! settings_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Table:ident = $path:literal =>
        $(#[$values_meta:meta])*
        $values_vis:vis struct $Values:ident {
            $($(#[$field_meta:meta])* $field:ident : $Field:ty = $initial:expr;)*
        }
        $($rows:tt)*
    ) => {
        $crate::settings_table! {
            $(#[$meta])*
            $vis struct $Table = $path;
            $($rows)*
        }

        $crate::__settings_values! {
            ($Table $Values table [$(#[$values_meta])*] [$values_vis])
            { $($(#[$field_meta])* $values_vis $field: $Field,)* }
            { $($field: $initial,)* }
            $($rows)*
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $Table:ident = $path:literal;
        $(
            $(#[doc = $about:literal])+
            $name:ident $(as $key:literal)? : $kind:ident $(($($arg:tt)*))? $(-> $Value:ident)? $(= $default:tt)?
                $(else $words:literal)?;
        )*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $Table {
            /// Its header.
            $vis heading: $crate::declare::Header,
            $(
                $(#[doc = $about])+
                $vis $name: $crate::__settings_field!($kind $(($($arg)*))? $(= $default)?),
            )*
        }

        impl ::std::default::Default for $Table {
            fn default() -> Self {
                Self {
                    heading: $crate::declare::Header::default(),
                    $($name: $crate::__settings_value!(::std::option::Option::None, $kind $(($($arg)*))? $(= $default)?),)*
                }
            }
        }

        impl $crate::declare::Declared for $Table {
            const TABLE: &'static $crate::SettingsTable = {
                const PARTS: &[&[$crate::Word]] = &[$($crate::__settings_words!(
                    $crate::Word {
                        name: $crate::__settings_key!($name $(as $key)?),
                        default: $crate::__settings_default!($(= $default)? $(else $words)?),
                        about: concat!($($about),+),
                        kinds: $crate::__settings_kinds!($kind $(($($arg)*))?),
                        path: $crate::__settings_path!($kind),
                        below: $crate::__settings_below!($kind $(($($arg)*))?),
                    },
                    $kind $(($($arg)*))?
                )),*];
                const WORDS: [$crate::Word; $crate::declare::count(PARTS)] = $crate::declare::joined(PARTS);
                &$crate::SettingsTable {
                    name: $path,
                    words: &WORDS,
                }
            };

            fn read(reader: &mut $crate::reader::Reader<'_>, section: &$crate::reader::Section<'_>) -> Self {
                Self {
                    heading: reader.header(section),
                    $($name: $crate::__settings_value!(
                        $crate::__settings_read!(reader, section, $crate::__settings_key!($name $(as $key)?), $kind $(($($arg)*))?),
                        $kind $(($($arg)*))? $(= $default)?
                    ),)*
                }
            }

            fn header(&self) -> &$crate::declare::Header {
                &self.heading
            }
        }
    };
}

/// Defines the struct that the code uses, one row after another.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_values {
    (
        ($Table:ident $Values:ident $table:ident [$($meta:tt)*] [$($vis:tt)*]) { $($fields:tt)* } { $($values:tt)* }
    ) => {
        $($meta)*
        $($vis)* struct $Values {
            $($fields)*
        }

        impl ::std::convert::From<&$Table> for $Values {
            fn from($table: &$Table) -> Self {
                let _ = $table;
                Self { $($values)* }
            }
        }

        impl ::std::default::Default for $Values {
            fn default() -> Self {
                Self::from(&<$Table as ::std::default::Default>::default())
            }
        }
    };
    (
        ($Table:ident $Values:ident $table:ident $meta:tt [$($vis:tt)*]) { $($fields:tt)* } { $($values:tt)* }
        $(#[doc = $about:literal])+
        $name:ident $(as $key:literal)? : $kind:ident $(($($arg:tt)*))? -> $Value:ident = $default:tt;
        $($rest:tt)*
    ) => {
        $crate::__settings_values! {
            ($Table $Values $table $meta [$($vis)*])
            { $($fields)* $(#[doc = $about])+ $($vis)* $name: $Value, }
            { $($values)* $name: <$Value as $crate::declare::Taken<_>>::taken(&$table.$name), }
            $($rest)*
        }
    };
    (
        ($Table:ident $Values:ident $table:ident $meta:tt [$($vis:tt)*]) { $($fields:tt)* } { $($values:tt)* }
        $(#[doc = $about:literal])+
        $name:ident $(as $key:literal)? : $kind:ident $(($($arg:tt)*))? -> $Value:ident else $words:literal;
        $($rest:tt)*
    ) => {
        $crate::__settings_values! {
            ($Table $Values $table $meta [$($vis)*])
            { $($fields)* $(#[doc = $about])+ $($vis)* $name: ::std::option::Option<$Value>, }
            { $($values)* $name: $crate::declare::Taken::taken(&$table.$name), }
            $($rest)*
        }
    };
    (
        $head:tt $fields:tt $values:tt
        $(#[doc = $about:literal])+
        $name:ident $(as $key:literal)? : $kind:ident $(($($arg:tt)*))? $(= $default:tt)? $(else $words:literal)?;
        $($rest:tt)*
    ) => {
        $crate::__settings_values! { $head $fields $values $($rest)* }
    };
}

/// A row as a part of its table.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_words {
    ($word:expr, Rows($T:ty)) => {
        <$T as $crate::declare::Declared>::TABLE.words
    };
    ($word:expr, $kind:ident $(($($arg:tt)*))?) => {
        &[$word]
    };
}

/// The name of a setting.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_key {
    ($name:ident as $key:literal) => {
        $key
    };
    ($name:ident) => {
        stringify!($name)
    };
}

/// The default in the words of the reference.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_default {
    () => {
        ""
    };
    (= $default:tt) => {
        stringify!($default)
    };
    (else $words:literal) => {
        $words
    };
}

/// The type of a value.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_type {
    (Text) => {
        ::std::string::String
    };
    (Path) => {
        ::std::string::String
    };
    (Flag) => {
        bool
    };
    (Count $args:tt) => {
        u64
    };
    (Size $args:tt) => {
        u64
    };
    (Duration) => {
        ::std::time::Duration
    };
    (Deadline) => {
        ::std::time::Duration
    };
    (Rate) => {
        $crate::value::Rate
    };
    (Niceness) => {
        i32
    };
    (Choice($T:ty, $words:expr)) => {
        $T
    };
}

/// The type of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_field {
    (Rows($T:ty)) => { $T };
    (Table($T:ty) = {}) => { $T };
    (Table($T:ty)) => { ::std::option::Option<$T> };
    (TableOr($T:ty, $($rest:tt)*)) => { ::std::option::Option<$T> };
    (Tables($T:ty)) => { ::std::vec::Vec<$T> };
    (Texts $(= $default:tt)?) => { ::std::option::Option<::std::vec::Vec<$crate::Placed<::std::string::String>>> };
    (Paths $(= $default:tt)?) => { ::std::option::Option<::std::vec::Vec<$crate::Placed<::std::string::String>>> };
    (TextOrTexts $(= $default:tt)?) => { ::std::option::Option<::std::vec::Vec<$crate::Placed<::std::string::String>>> };
    (Counts $args:tt $(= $default:tt)?) => { ::std::option::Option<::std::vec::Vec<$crate::Placed<u64>>> };
    (Pairs $(= $default:tt)?) => { ::std::option::Option<$crate::Pairs> };
    ($kind:ident $(($($arg:tt)*))? = $default:tt) => {
        $crate::declare::Value<$crate::__settings_type!($kind $(($($arg)*))?)>
    };
    ($kind:ident $(($($arg:tt)*))?) => {
        ::std::option::Option<$crate::Placed<$crate::__settings_type!($kind $(($($arg)*))?)>>
    };
}

/// The value of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_value {
    ($written:expr, Rows($T:ty)) => {
        $written.unwrap_or_default()
    };
    ($written:expr, Table($T:ty) = {}) => {
        $written.unwrap_or_default()
    };
    ($written:expr, Tables($T:ty)) => {
        $written.unwrap_or_default()
    };
    ($written:expr, Texts = $default:tt) => {
        $written
    };
    ($written:expr, Paths = $default:tt) => {
        $written
    };
    ($written:expr, TextOrTexts = $default:tt) => {
        $written
    };
    ($written:expr, Pairs = $default:tt) => {
        $written
    };
    ($written:expr, Choice($T:ty, $words:expr) = $default:tt) => {
        $crate::declare::Value::new($written, || $crate::declare::chosen(&$words, stringify!($default)))
    };
    ($written:expr, $kind:ident $(($($arg:tt)*))? = $default:tt) => {
        $crate::declare::Value::new($written, || $crate::declare::Literal::of(stringify!($default)))
    };
    ($written:expr, $kind:ident $(($($arg:tt)*))?) => {
        $written
    };
}

/// Takes a value out of a section.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_read {
    ($r:ident, $s:ident, $key:expr, Text) => {
        $r.text($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Path) => {
        $r.text($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Texts) => {
        $r.texts($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Paths) => {
        $r.texts($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, TextOrTexts) => {
        $r.text_or_texts($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Flag) => {
        $r.flag($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Count($least:expr, $why:expr)) => {
        $r.count($s, $key, $least, $why)
    };
    ($r:ident, $s:ident, $key:expr, Counts($least:expr, $why:expr)) => {
        $r.counts($s, $key, $least, $why)
    };
    ($r:ident, $s:ident, $key:expr, Size($least:expr)) => {
        $r.size($s, $key, $least)
    };
    ($r:ident, $s:ident, $key:expr, Duration) => {
        $r.duration($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Deadline) => {
        $r.deadline($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Rate) => {
        $r.rate($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Niceness) => {
        $r.niceness($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Choice($T:ty, $words:expr)) => {
        $r.choice($s, $key, &$words)
    };
    ($r:ident, $s:ident, $key:expr, Pairs) => {
        $r.map($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, Rows($T:ty)) => {
        Some(<$T as $crate::declare::Declared>::read($r, $s))
    };
    ($r:ident, $s:ident, $key:expr, Table($T:ty)) => {
        $r.declared::<$T>($s, $key)
    };
    ($r:ident, $s:ident, $key:expr, TableOr($T:ident, $row:ident, $least:expr, $why:expr)) => {
        if $r.is_table($s, $key) {
            $r.declared::<$T>($s, $key)
        } else {
            let number = $r.count($s, $key, $least, $why);
            number.map(|number| $T {
                $row: Some(number),
                ..$T::default()
            })
        }
    };
    ($r:ident, $s:ident, $key:expr, Tables($T:ty)) => {
        Some($r.declared_list::<$T>($s, $key))
    };
}

/// The forms of a value.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_kinds {
    (Text) => {
        &[$crate::ValueKind::Text]
    };
    (Path) => {
        &[$crate::ValueKind::Text]
    };
    (Texts) => {
        &[$crate::ValueKind::Texts]
    };
    (Paths) => {
        &[$crate::ValueKind::Texts]
    };
    (TextOrTexts) => {
        &[$crate::ValueKind::Text, $crate::ValueKind::Texts]
    };
    (Flag) => {
        &[$crate::ValueKind::Flag]
    };
    (Count $args:tt) => {
        &[$crate::ValueKind::Count]
    };
    (Counts $args:tt) => {
        &[$crate::ValueKind::Counts]
    };
    (Niceness) => {
        &[$crate::ValueKind::Count]
    };
    (Choice($T:ty, $words:expr)) => {
        &[$crate::ValueKind::Choice(|| {
            $words.iter().map(|(word, _)| *word).collect()
        })]
    };
    (Pairs) => {
        &[$crate::ValueKind::Pairs]
    };
    (Table $args:tt) => {
        &[]
    };
    (Tables $args:tt) => {
        &[]
    };
    (TableOr $args:tt) => {
        &[$crate::ValueKind::Count]
    };
    ($kind:ident $(($($arg:tt)*))?) => {
        &[$crate::ValueKind::Text]
    };
}

/// True for paths, which start at the file.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_path {
    (Path) => {
        true
    };
    (Paths) => {
        true
    };
    ($kind:ident) => {
        false
    };
}

/// The table below.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_below {
    (Table($T:ty)) => {
        $crate::Below::Table(<$T as $crate::declare::Declared>::TABLE)
    };
    (TableOr($T:ty, $($rest:tt)*)) => {
        $crate::Below::Table(<$T as $crate::declare::Declared>::TABLE)
    };
    (Tables($T:ty)) => {
        $crate::Below::List(<$T as $crate::declare::Declared>::TABLE)
    };
    ($kind:ident $(($($arg:tt)*))?) => {
        $crate::Below::Nothing
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Declared;
    use crate::reader::{Reader, parse};
    use crate::{Language, Placed, Report, SourceFile};

    settings_table! {
        /// The part about customers.
        pub(crate) struct CustomerRows = "shop" =>

        /// Customers.
        #[derive(Debug, PartialEq)]
        pub(crate) struct CustomerSettings {
            /// Resolved elsewhere.
            names: Vec<String> = vec!["somebody".to_owned()];
        }

        /// The shop is open.
        open: Flag -> bool = true;
        /// Most customers at once.
        most as "customers": Count(1, "a shop has customers") -> u32 = 10;
        /// Longest visit.
        visit: Duration -> Duration else "no limit";
        /// The text on the door.
        sign: Text else "none";
    }

    settings_table! {
        /// `[shop]`
        pub(crate) struct ShopTable = "shop";

        /// Its address.
        street: Text else "none";
        /// Its customers.
        customers: Rows(CustomerRows);
        /// Its door.
        door: Text = "left";
    }

    static LANGUAGE: Language = Language {
        name: "test",
        tables: &[ShopTable::TABLE],
        foreign: None,
    };

    fn read(text: &str) -> ShopTable {
        let mut report = Report::default();
        report.sources.push(SourceFile {
            path: "shop.toml".into(),
            text: text.to_owned(),
        });
        let parsed = parse(text, 0).expect("TOML");
        let mut reader = Reader::new(&LANGUAGE, 0, &mut report, &|_| None);
        let table = reader.declared_table("shop", Placed::default(), parsed.get_ref());
        assert_eq!(report.errors(), 0, "{}", report.render(false));
        table
    }

    #[test]
    fn rows_of_another_declaration_stand_in_the_table() {
        let names: Vec<&str> = ShopTable::TABLE.names().collect();
        assert_eq!(names, ["street", "open", "customers", "visit", "sign", "door"]);
        let shop = read("open = false\ndoor = \"right\"");
        assert!(!shop.customers.open.get() && shop.door.get() == "right");
        assert!(shop.heading.has("open") && !shop.heading.has("visit"));
        assert!(shop.street.is_none() && shop.customers.sign.is_none());
    }

    #[test]
    fn the_struct_of_the_code_has_the_values_of_its_rows() {
        let usual = CustomerSettings {
            names: vec!["somebody".to_owned()],
            open: true,
            most: 10,
            visit: None,
        };
        assert_eq!(CustomerSettings::default(), usual);
        let shop = read("customers = 3\nvisit = \"5m\"");
        let written = CustomerSettings {
            most: 3,
            visit: Some(Duration::from_secs(300)),
            ..usual
        };
        assert_eq!(CustomerSettings::from(&shop.customers), written);
    }
}
