//! The coding of a site's bodies.

use std::sync::Arc;

use super::dictionary::DictionarySettings;
use super::dictionary::page_dictionary::PageDictionaries;
use super::settings::CompressSettings;
use super::store::CompressedStore;
use crate::pattern::glob::Glob;

/// Settings and stores for coding the bodies of one site.
#[derive(Debug)]
pub(crate) struct SiteCoding {
    /// The name of the site, for the log.
    pub(crate) site: String,
    /// Responses report their coding in a field.
    pub(crate) development: bool,
    pub(crate) settings: CompressSettings,
    /// Dictionaries made of pages.
    pub(crate) page_dictionaries: PageDictionaries,
    /// Files whose earlier versions are dictionaries of later ones.
    pub(super) dictionary_files: Vec<Glob>,
    /// Compressed copies of files; `None` keeps none.
    pub(crate) copies: Option<Arc<CompressedStore>>,
}

impl SiteCoding {
    pub(crate) fn new(
        site: &str,
        development: bool,
        settings: &CompressSettings,
        dictionary: &DictionarySettings,
        copies: Option<Arc<CompressedStore>>,
    ) -> Self {
        Self {
            site: site.to_owned(),
            development,
            settings: settings.clone(),
            page_dictionaries: PageDictionaries::new(dictionary),
            dictionary_files: dictionary.files.clone(),
            copies,
        }
    }
}
