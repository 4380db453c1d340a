//! Compression dictionaries (RFC 9842): content that a client holds already is not sent again.
//!
//! There are two kinds of dictionaries, both public: earlier versions of static files (`previous`), and the common part
//! of a site's pages, as a visitor without cookies sees it (`page_dictionary`). Content of one client never becomes a
//! dictionary.

pub(crate) mod page_dictionary;
pub(crate) mod previous;

use std::sync::Arc;

use haulier_proto::accept::Accepted;
use haulier_proto::dictionary::{self, Hash};
use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;

use super::codec::Dictionary;
use super::policy::{self, Choice};
use super::site_coding::SiteCoding;
use super::vary::vary_by;
use crate::pattern::glob::Glob;

/// Settings of `[site.X.dictionary]`.
#[derive(Debug, Clone, Default)]
pub struct DictionarySettings {
    /// Files whose earlier versions are kept; may be empty.
    pub files: Vec<Glob>,
    /// Groups of similar pages: a pattern of their paths, and path and query of the page that represents them.
    pub pages: Vec<(Glob, String)>,
}

/// The hash of the dictionary that a client holds for this request.
pub(crate) fn held(request: &Fields) -> Option<Hash> {
    dictionary::available(request.get("Available-Dictionary")?)
}

/// Chooses for a page of PHP, and sets the fields of a site with dictionaries. `plain` is the choice without one.
pub(super) fn choose(
    site: &SiteCoding,
    head: &RequestHead,
    status: u16,
    fields: &mut Fields,
    accepted: &Accepted,
    plain: Option<Choice>,
) -> Option<(Choice, Option<Arc<Dictionary>>)> {
    let without = plain.map(|choice| (choice, None));
    let Some(page_dictionary) = site.page_dictionaries.of(head, status, fields) else {
        return without;
    };
    vary_by(fields, "Available-Dictionary");
    // Browsers name `dcz` only if they hold a dictionary.
    if accepted.is_none() {
        return without;
    }
    let held = held(head.fields());
    page_dictionary.announce(held, fields);
    let dictionary = held.and_then(|hash| page_dictionary.dictionary(&hash));
    match (dictionary, policy::with_dictionary(plain, accepted)) {
        (Some(dictionary), Some(choice)) => Some((choice, Some(dictionary))),
        _ => without,
    }
}

pub(super) fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
