//! Every setting, declared once: name, kind, default and description.
//!
//! The server, PHP, log and certificates declare the settings that they take as written; this module puts them into the
//! grammar of a file. The declarations make the structs as written, their reader, the error texts, the reference in
//! docs/config.md, the JSON Schema (`schema`) and `haulier config` (`effective`).

mod dictionary;
mod pool;
mod server;
mod site;
mod store;
mod tls;

pub(crate) use dictionary::DictionaryTable;
pub(crate) use pool::PoolTable;
pub(crate) use server::{ServerTable, StopSettings};
pub(crate) use site::SiteTable;
pub(crate) use store::StoreTable;
pub(crate) use tls::{SiteTlsTable, TlsTable};

use std::path::Path;

use haulier_php::{HealthTable, RecycleTable, RlimitsTable, SlowTable, WorkersTable};
use haulier_server::{
    CompressTable, ImagesTable, LimitsTable, MaintenanceTable, OffloadTable, RouteTable, SiteCompressTable, UploadTable,
};
use haulier_settings::declare::{Declared, Header};
use haulier_settings::{Below, Foreign, Language, Placed, SettingsTable, ValueKind, Word};

use super::foreign;
use crate::log::{LogTable, SiteLogTable};

/// The configuration of a server.
pub(crate) static CONFIGURATION: Language = Language {
    name: "configuration",
    tables: TABLES,
    foreign: Some(&Foreign {
        setting: foreign::setting,
        table: foreign::table,
    }),
};

/// The tables at the top of a file.
pub(crate) static TOP: SettingsTable = SettingsTable {
    name: "",
    words: &[
        Word {
            name: "include",
            default: "[]",
            about: "Further files, as patterns relative to this file; each adds tables.",
            kinds: &[ValueKind::Texts],
            path: false,
            below: Below::Nothing,
        },
        Word::table(
            "server",
            "Where to listen, and how to stop.",
            Below::Table(ServerTable::TABLE),
        ),
        Word::table(
            "log",
            "What is logged, and how it looks.",
            Below::Table(LogTable::TABLE),
        ),
        Word::table(
            "limits",
            "Limits and deadlines of connections and requests.",
            Below::Table(LimitsTable::TABLE),
        ),
        Word::table(
            "compress",
            "How bodies are compressed.",
            Below::Table(CompressTable::TABLE),
        ),
        Word::table(
            "tls",
            "Encryption: versions, certificates and who signs them.",
            Below::Table(TlsTable::TABLE),
        ),
        Word::table("pool", "`[pool.NAME]`: PHP processes.", Below::Named(PoolTable::TABLE)),
        Word::table(
            "site",
            "`[site.NAME]`: a document root with its rules.",
            Below::Named(SiteTable::TABLE),
        ),
        Word::table(
            "store",
            "`[store.NAME]`: how the bucket of that name is reached.",
            Below::Named(StoreTable::TABLE),
        ),
    ],
};

/// All tables, in the order of the reference.
static TABLES: &[&SettingsTable] = &[
    &TOP,
    ServerTable::TABLE,
    LogTable::TABLE,
    LimitsTable::TABLE,
    CompressTable::TABLE,
    TlsTable::TABLE,
    PoolTable::TABLE,
    WorkersTable::TABLE,
    RecycleTable::TABLE,
    RlimitsTable::TABLE,
    HealthTable::TABLE,
    SlowTable::TABLE,
    SiteTable::TABLE,
    site::SiteLimitsTable::TABLE,
    site::SendfileTable::TABLE,
    OffloadTable::TABLE,
    SiteLogTable::TABLE,
    MaintenanceTable::TABLE,
    RouteTable::TABLE,
    SiteCompressTable::TABLE,
    ImagesTable::TABLE,
    UploadTable::TABLE,
    StoreTable::TABLE,
    DictionaryTable::TABLE,
    SiteTlsTable::TABLE,
];

impl PoolTable {
    /// A pool with only a name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            heading: Header::named(name),
            ..Self::default()
        }
    }
}

impl SiteTable {
    /// A site with only a name and a root.
    pub(crate) fn rooted(name: &str, root: &Path) -> Self {
        Self {
            heading: Header::named(name),
            root: Some(Placed::unplaced(root.to_string_lossy().into_owned())),
            ..Self::default()
        }
    }

    /// A site that keeps images in a directory and has no files of its own.
    pub(crate) fn of_images(name: &str, store: &Path) -> Self {
        Self {
            heading: Header::named(name),
            images: Some(ImagesTable {
                store: Some(Placed::unplaced(store.to_string_lossy().into_owned())),
                ..ImagesTable::default()
            }),
            ..Self::default()
        }
    }

    /// True if a root is meant, even one that is no text or misspelt, which has its error already.
    pub(crate) fn means_root(&self) -> bool {
        self.root.is_some() || self.heading.has("root") || self.heading.misspelt.contains(&"root")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> String {
        let mut page = String::new();
        for table in &TABLES[1..] {
            let header = match table.name {
                name if name == RouteTable::TABLE.name => format!("[[{name}]]"),
                name => format!("[{name}]"),
            };
            page.push_str(&format!(
                "### `{header}`\n\n| Setting | Default | Meaning |\n|---|---|---|\n"
            ));
            for word in table.words {
                page.push_str(&format!(
                    "| `{}` | {} | {} |\n",
                    word.name,
                    word.shown_default(),
                    word.about()
                ));
            }
            page.push('\n');
        }
        page
    }

    #[test]
    fn the_reference_page_lists_exactly_these_settings() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
        let page = std::fs::read_to_string(&path).expect("the page is there");
        let (before, rest) = page
            .split_once("<!-- reference -->\n\n")
            .expect("docs/config.md marks where its reference begins");
        let (of_page, after) = rest.split_once("<!-- end -->").expect("and where it ends");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let page = format!("{before}<!-- reference -->\n\n{}<!-- end -->{after}", reference());
            std::fs::write(&path, page).expect("the page can be written");
            return;
        }
        assert_eq!(
            of_page,
            reference(),
            "docs/config.md differs from the declarations: UPDATE_DOCS=1 cargo test writes it anew"
        );
    }

    #[test]
    fn every_default_can_be_read() {
        // A default that its kind cannot parse panics.
        let (server, log, limits) = (ServerTable::default(), LogTable::default(), LimitsTable::default());
        assert!(
            server.serving.http2.get() && log.level.get() == tracing::Level::INFO && limits.header.get() == 32 << 10
        );
    }

    #[test]
    fn every_table_below_a_setting_is_in_the_list() {
        for word in TABLES.iter().flat_map(|table| table.words) {
            if let Below::Table(below) | Below::List(below) | Below::Named(below) = word.below {
                assert!(TABLES.iter().any(|table| table.name == below.name), "{}", below.name);
            }
        }
    }

    #[test]
    fn a_setting_in_the_wrong_table_has_its_homes_elsewhere() {
        assert_eq!(
            CONFIGURATION.homes_of("grace", SiteTable::TABLE),
            ["server", "pool.NAME"]
        );
        assert_eq!(
            CONFIGURATION.homes_of("connections", SiteTable::TABLE),
            ["limits", "pool.NAME"]
        );
        assert!(CONFIGURATION.homes_of("threads", ServerTable::TABLE).is_empty());
    }
}
