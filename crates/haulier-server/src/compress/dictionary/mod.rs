//! Compression dictionaries (RFC 9842): what a client has already is not sent again.
//!
//! Two kinds of bytes are dictionaries, and both are public: earlier versions of static files (`previous`), and the
//! page dictionary of a site's pages as somebody without cookies gets it (`page dictionary`). Nothing a client sent or got alone ever
//! becomes one.

pub(crate) mod previous;
pub(crate) mod page_dictionary;

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

/// What `[site.X.dictionary]` says.
#[derive(Debug, Clone, Default)]
pub struct DictionarySettings {
    /// Files whose earlier versions are kept; none if they are not.
    pub files: Vec<Glob>,
    /// Which pages look like which one: pattern of their paths, path and query of the page that is asked for.
    pub pages: Vec<(Glob, String)>,
}

/// The hash of the dictionary a client holds for what it asks for.
pub(crate) fn held(request: &Fields) -> Option<Hash> {
    dictionary::available(request.get("Available-Dictionary")?)
}

/// Chooses for a page of PHP, and writes into its fields what follows from the site having dictionaries. `plain` is the
/// choice without one.
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
    // Browsers name `dcz` only once they hold something.
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
