//! `[compress]`, `[site.NAME.compress]` and `[site.NAME.dictionary]`.

use haulier_server::CompressLevel;
use haulier_settings::settings_table;

const COMPRESS_LEVELS: [(&str, CompressLevel); 4] = [
    ("off", CompressLevel::Off),
    ("fast", CompressLevel::Fast),
    ("balanced", CompressLevel::Balanced),
    ("small", CompressLevel::Small),
];
/// Whether earlier versions of files are kept.
const STATIC: [(&str, bool); 2] = [("off", false), ("previous", true)];

settings_table! {
    /// `[compress]`
    pub(crate) struct CompressTable = "compress";

    /// What is dearer, time or bytes: `off`, `fast`, `balanced` or `small`; load lowers it.
    level: Choice(CompressLevel, COMPRESS_LEVELS) = "balanced";
    /// The codings that are used; size and load decide among those a client likes equally.
    algorithms: Texts = ["zstd", "br", "gzip"];
    /// Shorter bodies are sent as they are.
    min_size: Size(0) = "256B";
    /// Media types that are compressed, such as `"text/*"` or `"*+json"`, in place of the list.
    types: Texts else "a list of text types";
    /// A fixed level for zstd, 1 to 19.
    zstd: Count(1, "level 1 is the fastest") else "by size and load";
    /// A fixed level for brotli, 0 to 11.
    br: Count(0, "level 0 is the fastest") else "by size and load";
    /// A fixed level for gzip, 1 to 12.
    gzip: Count(1, "level 1 is the fastest") else "by size and load";
    /// Leave alone what sets a cookie and repeats a part of the query (BREACH).
    no_secrets: Flag = false;
    /// Room for compressed copies of files below `spool_dir`; 0 keeps none.
    store: Size(0) = "256MiB";
}

settings_table! {
    /// `[site.NAME.compress]`
    pub(crate) struct SiteCompressTable = "site.NAME.compress";

    /// `off`, `fast`, `balanced` or `small`.
    level: Choice(CompressLevel, COMPRESS_LEVELS) else "as in `[compress]`";
    /// The codings that are used.
    algorithms: Texts else "as in `[compress]`";
    /// Shorter bodies are sent as they are.
    min_size: Size(0) else "as in `[compress]`";
    /// Media types that are compressed.
    types: Texts else "as in `[compress]`";
    /// A fixed level for zstd, 1 to 19.
    zstd: Count(1, "level 1 is the fastest") else "as in `[compress]`";
    /// A fixed level for brotli, 0 to 11.
    br: Count(0, "level 0 is the fastest") else "as in `[compress]`";
    /// A fixed level for gzip, 1 to 12.
    gzip: Count(1, "level 1 is the fastest") else "as in `[compress]`";
    /// Leave alone what sets a cookie and repeats a part of the query.
    no_secrets: Flag else "as in `[compress]`";
}

settings_table! {
    /// `[site.NAME.dictionary]`
    pub(crate) struct DictionaryTable = "site.NAME.dictionary";

    /// `previous`: earlier versions of `files` are dictionaries of the later ones.
    of_files as "static": Choice(bool, STATIC) = "off";
    /// Patterns of these files.
    files: Texts = ["*.js", "*.css"];
    /// Pattern of pages → public page that looks like them: `"/wiki/*" = "/wiki/Main"`.
    pages: Pairs = {};
}
