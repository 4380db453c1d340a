//! The declaration of a table of settings: one row a setting, and everything that follows from it.
//!
//! [`settings_table!`](crate::settings_table) makes of a declaration the struct as written, with the place of every
//! value, its reader, and the [`Table`] that the error texts, the reference page, the JSON Schema and the shown
//! configuration are made of.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use crate::reader::{Reader, Section};
use crate::source::Placed;
use crate::value;
use crate::words::Table;

/// The header of a table in a file.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The last part of the header, `shop` of `[site.shop]`, and where it stands; without a place the table is not
    /// written in any file.
    pub name: Placed<String>,
    /// The directory at which relative paths of the table start.
    pub directory: PathBuf,
    /// The settings that are there, whatever their values are.
    pub written: Vec<Placed<&'static str>>,
    /// The settings that somebody meant by an unknown name.
    pub misspelt: Vec<&'static str>,
}

impl Header {
    /// A table of this name that no file has.
    pub fn named(name: &str) -> Self {
        Self {
            name: Placed::unplaced(name.to_owned()),
            directory: PathBuf::from("."),
            ..Self::default()
        }
    }

    /// Whether a setting is there, whatever its value is.
    pub fn has(&self, setting: &str) -> bool {
        self.written.iter().any(|written| written.value == setting)
    }

    /// Whether a file has the table, be it empty.
    pub fn is_written(&self) -> bool {
        self.name.place.is_some()
    }
}

/// A table that is declared by [`settings_table!`](crate::settings_table).
pub trait Declared: Default {
    /// Its settings.
    const TABLE: &'static Table;

    /// Takes its values out of a section.
    fn read(reader: &mut Reader<'_>, section: &Section<'_>) -> Self;

    /// Its header.
    fn header(&self) -> &Header;
}

/// A setting with a default that the declaration has as a value.
pub struct Value<T> {
    written: Option<Placed<T>>,
    default: fn() -> T,
}

impl<T> Value<T> {
    /// What is written, if anything, and the default.
    pub fn new(written: Option<Placed<T>>, default: fn() -> T) -> Self {
        Self { written, default }
    }

    /// What is written, without the default.
    pub fn clone_written(&self) -> Option<Placed<T>>
    where
        T: Clone,
    {
        self.written.clone()
    }

    /// Puts a value in the place of what is written.
    pub fn set(&mut self, value: T) {
        self.set_placed(Placed::unplaced(value));
    }

    /// The same with the place where the value stands.
    pub fn set_placed(&mut self, value: Placed<T>) {
        self.written = Some(value);
    }
}

impl<T: Clone> Value<T> {
    /// The value written, else the default.
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

/// What is written, if anything.
impl<T> Deref for Value<T> {
    type Target = Option<Placed<T>>;

    fn deref(&self) -> &Self::Target {
        &self.written
    }
}

/// A value that a declaration may name as the default.
pub trait Literal {
    /// Reads the default of a declaration; every one of them is read by a test.
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

/// The default among a closed set of words.
pub fn chosen<T: Copy>(known: &[(&str, T)], text: &'static str) -> T {
    let word = text.trim_matches('"');
    let found = known.iter().find(|(known, _)| *known == word);
    found.expect("the default of a declaration is one of its words").1
}

/// Declares a table: its name, and a row for each setting.
///
/// A row is a doc comment (the text of the reference), the name, the kind with what it is limited by, and the default:
/// as a value (`= "30s"`), in words (`else "none"`), or `required`. The field holds `Option<Placed<T>>`, or a
/// [`Value`](crate::declare::Value) where the default is one. A name that Rust reserves is given with `as "static"`.
///
/// Kinds: `Text`, `Path`, `Texts`, `Paths`, `TextOrTexts`, `Flag`, `Count(least, "why")`, `Counts(least, "why")`,
/// `Size(least)`, `Duration` (may be zero), `Deadline` (may not), `Rate`, `Niceness`, `Choice(Type, WORDS)`, `Pairs`,
/// and tables: `Table(T)` (`= {}`: always there), `TableOr(T, row, least, "why")` (or the number alone), `Tables(T)`.
#[macro_export]
macro_rules! settings_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Table:ident = $path:literal;
        $(
            $(#[doc = $about:literal])+
            $name:ident $(as $key:literal)? : $kind:ident $(($($arg:tt)*))? $(= $default:tt)? $(else $words:literal)?;
        )*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $Table {
            /// Where it stands.
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
            const TABLE: &'static $crate::Table = &$crate::Table {
                name: $path,
                words: &[$($crate::Word {
                    name: $crate::__settings_key!($name $(as $key)?),
                    default: $crate::__settings_default!($(= $default)? $(else $words)?),
                    about: concat!($($about),+),
                    kinds: $crate::__settings_kinds!($kind $(($($arg)*))?),
                    path: $crate::__settings_path!($kind),
                    below: $crate::__settings_below!($kind $(($($arg)*))?),
                }),*],
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

/// The default as the reference has it.
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

/// A field of what is written.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_value {
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

/// What may be written.
#[doc(hidden)]
#[macro_export]
macro_rules! __settings_kinds {
    (Text) => {
        &[$crate::Kind::Text]
    };
    (Path) => {
        &[$crate::Kind::Text]
    };
    (Texts) => {
        &[$crate::Kind::Texts]
    };
    (Paths) => {
        &[$crate::Kind::Texts]
    };
    (TextOrTexts) => {
        &[$crate::Kind::Text, $crate::Kind::Texts]
    };
    (Flag) => {
        &[$crate::Kind::Flag]
    };
    (Count $args:tt) => {
        &[$crate::Kind::Count]
    };
    (Counts $args:tt) => {
        &[$crate::Kind::Counts]
    };
    (Niceness) => {
        &[$crate::Kind::Count]
    };
    (Choice($T:ty, $words:expr)) => {
        &[$crate::Kind::Choice(|| $words.iter().map(|(word, _)| *word).collect())]
    };
    (Pairs) => {
        &[$crate::Kind::Pairs]
    };
    (Table $args:tt) => {
        &[]
    };
    (Tables $args:tt) => {
        &[]
    };
    (TableOr $args:tt) => {
        &[$crate::Kind::Count]
    };
    ($kind:ident $(($($arg:tt)*))?) => {
        &[$crate::Kind::Text]
    };
}

/// Whether it is a path that starts at the file.
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
