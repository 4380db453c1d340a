//! `[site.NAME.dictionary]`.

use haulier_settings::settings_table;

/// `static`: earlier versions of files are kept.
const STATIC: [(&str, bool); 2] = [("off", false), ("previous", true)];

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
