//! Settings of `[compress]`.

use haulier_proto::accept::Coding;
use haulier_settings::settings_table;

const COMPRESS_LEVELS: [(&str, CompressLevel); 4] = [
    ("off", CompressLevel::Off),
    ("fast", CompressLevel::Fast),
    ("balanced", CompressLevel::Balanced),
    ("small", CompressLevel::Small),
];

settings_table! {
    /// `[compress]`
    pub struct CompressTable = "compress" =>

    /// Compression of a site.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CompressSettings {
        /// The codings in use. Size and load decide between those a client ranks equally.
        algorithms: Vec<Coding> = Coding::PLAIN.to_vec();
        /// Media types to code: `text/html`, `text/*`, `application/*+json`; `None` is the built-in list.
        types: Option<Vec<String>> = None;
        /// Levels used at any load: zstd 1–19, br 0–11, gzip 1–12, in this order.
        explicit: [Option<u8>; 3] = [None; 3];
    }

    /// Balance of time and bytes: `off`, `fast`, `balanced` or `small`; load lowers the level.
    level: Choice(CompressLevel, COMPRESS_LEVELS) -> CompressLevel = "balanced";
    /// Codings in use; size and load decide between those a client ranks equally.
    algorithms: Texts = ["zstd", "br", "gzip"];
    /// Shorter bodies are sent uncoded.
    min_size: Size(0) -> u64 = "256B";
    /// Media types to compress, such as `"text/*"` or `"*+json"`, in place of the built-in list.
    types: Texts else "a list of text types";
    /// Fixed level of zstd, 1 to 19.
    zstd: Count(1, "level 1 is the fastest") else "by size and load";
    /// Fixed level of brotli, 0 to 11.
    br: Count(0, "level 0 is the fastest") else "by size and load";
    /// Fixed level of gzip, 1 to 12.
    gzip: Count(1, "level 1 is the fastest") else "by size and load";
    /// Leaves responses uncoded that set a cookie and repeat a part of the query (BREACH).
    no_secrets: Flag -> bool = false;
    /// Space for compressed copies of files below `spool_dir`; 0 keeps none.
    store: Size(0) = "256MiB";
}

settings_table! {
    /// `[site.NAME.compress]`
    pub struct SiteCompressTable = "site.NAME.compress";

    /// `off`, `fast`, `balanced` or `small`.
    level: Choice(CompressLevel, COMPRESS_LEVELS) else "as in `[compress]`";
    /// Codings in use.
    algorithms: Texts else "as in `[compress]`";
    /// Shorter bodies are sent uncoded.
    min_size: Size(0) else "as in `[compress]`";
    /// Media types to compress.
    types: Texts else "as in `[compress]`";
    /// Fixed level of zstd, 1 to 19.
    zstd: Count(1, "level 1 is the fastest") else "as in `[compress]`";
    /// Fixed level of brotli, 0 to 11.
    br: Count(0, "level 0 is the fastest") else "as in `[compress]`";
    /// Fixed level of gzip, 1 to 12.
    gzip: Count(1, "level 1 is the fastest") else "as in `[compress]`";
    /// Leaves responses uncoded that set a cookie and repeat a part of the query.
    no_secrets: Flag else "as in `[compress]`";
}

impl CompressSettings {
    /// Settings that code nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            level: CompressLevel::Off,
            ..Self::default()
        }
    }

    /// True if anything is coded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != CompressLevel::Off && !self.algorithms.is_empty()
    }
}

/// The balance between time and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressLevel {
    Off,
    Fast,
    Balanced,
    Small,
}
