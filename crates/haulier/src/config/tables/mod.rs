//! Every setting, declared once: name, kind, default and description.
//!
//! What is made of the declarations: the structs as written (with places), their reader, the error texts, the reference
//! in docs/config.md, the JSON Schema (`json_schema`) and the configuration as it is shown (`effective`).

mod compress;
mod images;
mod pool;
mod server;
mod site;
mod tls;

pub(crate) use compress::{CompressTable, DictionaryTable, SiteCompressTable};
pub(crate) use images::{ImagesTable, StoreTable};
pub(crate) use pool::{HealthTable, PoolTable, WorkersTable};
pub(crate) use server::{LimitsTable, LogTable, ServerTable};
pub(crate) use site::{MaintenanceTable, OffloadTable, RouteTable, SiteTable};
pub(crate) use tls::{SiteTlsTable, TlsTable};

use std::path::Path;

use haulier_settings::declare::{Declared, Header};
use haulier_settings::{Below, Foreign, Kind, Language, Placed, Table, Word};

use super::foreign;

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
pub(crate) static TOP: Table = Table {
    name: "",
    words: &[
        Word {
            name: "include",
            default: "[]",
            about: "Further files, as patterns relative to this file; each adds tables.",
            kinds: &[Kind::Texts],
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
static TABLES: &[&Table] = &[
    &TOP,
    ServerTable::TABLE,
    LogTable::TABLE,
    LimitsTable::TABLE,
    CompressTable::TABLE,
    TlsTable::TABLE,
    PoolTable::TABLE,
    WorkersTable::TABLE,
    pool::RecycleTable::TABLE,
    pool::RlimitsTable::TABLE,
    HealthTable::TABLE,
    pool::SlowTable::TABLE,
    SiteTable::TABLE,
    site::SiteLimitsTable::TABLE,
    site::SendfileTable::TABLE,
    OffloadTable::TABLE,
    site::SiteLogTable::TABLE,
    MaintenanceTable::TABLE,
    RouteTable::TABLE,
    SiteCompressTable::TABLE,
    ImagesTable::TABLE,
    images::UploadTable::TABLE,
    StoreTable::TABLE,
    DictionaryTable::TABLE,
    SiteTlsTable::TABLE,
];

impl PoolTable {
    /// A pool that says nothing but its name.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            heading: Header::named(name),
            ..Self::default()
        }
    }
}

impl SiteTable {
    /// A site that says nothing but its name and root.
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

    /// Whether a root is meant, be it no text or misspelt: that error is enough.
    pub(crate) fn means_root(&self) -> bool {
        self.root.is_some() || self.heading.has("root") || self.heading.misspelt.contains(&"root")
    }
}

impl CompressTable {
    /// The part that sites may say themselves.
    pub(crate) fn of_sites(&self) -> SiteCompressTable {
        SiteCompressTable {
            heading: self.heading.clone(),
            level: self.level.clone_written(),
            algorithms: self.algorithms.clone(),
            min_size: self.min_size.clone_written(),
            types: self.types.clone(),
            zstd: self.zstd.clone(),
            br: self.br.clone(),
            gzip: self.gzip.clone(),
            no_secrets: self.no_secrets.clone_written(),
        }
    }
}

impl TlsTable {
    /// The part that sites may say themselves.
    pub(crate) fn of_sites(&self) -> SiteTlsTable {
        SiteTlsTable {
            heading: self.heading.clone(),
            mode: self.mode.clone_written(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            redirect: self.redirect.clone_written(),
            hsts: self.hsts.clone(),
        }
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
        // Reading one that is not what its kind takes panics.
        let (server, log, limits) = (ServerTable::default(), LogTable::default(), LimitsTable::default());
        assert!(server.http2.get() && log.level.get() == tracing::Level::INFO && limits.header.get() == 32 << 10);
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
