//! The page dictionary of a route: the common part of its pages, taken from one of them.
//!
//! haulier requests that page itself without cookie or password, so it contains no private content. Clients learn its
//! address (`Link: rel="compression-dictionary"`) and fetch it when idle. From then on they receive pages of the route
//! as differences.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_proto::dictionary::Hash;
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};

use super::{DictionarySettings, hex};
use crate::compress::codec::Dictionary;
use crate::compress::media_type::is_html;
use crate::lock::lock;
use crate::pattern::glob::Glob;

/// The folder of the dictionaries in every site that has some.
pub(crate) const PLACE: &[u8] = b"/.well-known/haulier/dictionary/";
/// Time until the page is requested again: pages change with each deployment.
const FRESH: Duration = Duration::from_secs(3600);
/// Time until the next attempt after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// Earlier page dictionaries kept for clients that still hold them.
const KEPT: usize = 4;
/// The page dictionaries of a site.
#[derive(Debug)]
pub(crate) struct PageDictionaries(Vec<PageDictionary>);

/// The page dictionary of one route.
#[derive(Debug)]
pub(crate) struct PageDictionary {
    pub(crate) pages: Glob,
    /// Path and query of the page it is taken from.
    pub(crate) page: String,
    state: Mutex<DictionaryState>,
}

#[derive(Debug, Default)]
struct DictionaryState {
    /// Newest first.
    dictionaries: VecDeque<Arc<Dictionary>>,
    /// The next request for the page; `None`: at once.
    due: Option<Instant>,
}

impl PageDictionaries {
    pub(crate) fn new(settings: &DictionarySettings) -> Self {
        let page_dictionary = |(pages, page): &(Glob, String)| PageDictionary {
            pages: pages.clone(),
            page: page.clone(),
            state: Mutex::default(),
        };
        Self(settings.pages.iter().map(page_dictionary).collect())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PageDictionary> {
        self.0.iter()
    }

    /// The dictionary with this name, and its route.
    pub(crate) fn named(&self, name: &[u8]) -> Option<(&PageDictionary, Arc<Dictionary>)> {
        self.0.iter().find_map(|page_dictionary| {
            let state = page_dictionary.lock();
            let named = |known: &&Arc<Dictionary>| hex(&known.hash).as_bytes() == name;
            state
                .dictionaries
                .iter()
                .find(named)
                .map(|found| (page_dictionary, Arc::clone(found)))
        })
    }

    /// The page dictionary for a response; `None` if it is no page, or the route has no dictionary.
    pub(super) fn of(&self, head: &RequestHead, status: u16, fields: &Fields) -> Option<&PageDictionary> {
        if self.0.is_empty() || status != 200 || !matches!(head.method(), Method::Get | Method::Head) {
            return None;
        }
        let is_html = fields.known(Known::ContentType).is_some_and(is_html);
        self.0
            .iter()
            .find(|page_dictionary| page_dictionary.pages.matches(head.path()))
            .filter(|_| is_html)
    }
}

impl PageDictionary {
    fn lock(&self) -> MutexGuard<'_, DictionaryState> {
        lock(&self.state)
    }

    /// The dictionary with this hash, if still kept.
    pub(super) fn dictionary(&self, hash: &Hash) -> Option<Arc<Dictionary>> {
        self.lock()
            .dictionaries
            .iter()
            .find(|known| known.hash == *hash)
            .cloned()
    }

    /// Announces the newest dictionary to a client that does not hold it (RFC 9842 §3).
    pub(super) fn announce(&self, held: Option<Hash>, fields: &mut Fields) {
        if let Some(newest) = self.lock().dictionaries.front()
            && held != Some(newest.hash)
        {
            let place = String::from_utf8_lossy(PLACE);
            let link = format!("<{place}{}>; rel=\"compression-dictionary\"", hex(&newest.hash));
            fields.append("Link", link);
        }
    }

    /// Stores a page that was fetched, or notes the failure.
    pub(crate) fn take(&self, page: Option<Bytes>, now: Instant) {
        let mut state = self.lock();
        let Some(dictionary) = page.and_then(Dictionary::prepare) else {
            state.due = Some(now + RETRY);
            return;
        };
        state.due = Some(now + FRESH);
        state.dictionaries.retain(|known| known.hash != dictionary.hash);
        state.dictionaries.push_front(Arc::new(dictionary));
        state.dictionaries.truncate(KEPT);
    }

    /// True if the page is due; the caller fetches it, and it is not due again for a while.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_due = state.due.is_none_or(|due| due <= now);
        if is_due {
            state.due = Some(now + RETRY);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn page_dictionary() -> PageDictionary {
        PageDictionary {
            pages: Glob::new("/wiki/*").expect("a pattern"),
            page: "/wiki/Main".into(),
            state: Mutex::default(),
        }
    }

    #[test]
    fn a_page_is_due_at_once_and_again_after_an_hour() {
        let page_dictionary = page_dictionary();
        let now = now();
        assert!(page_dictionary.is_due(now));
        assert!(!page_dictionary.is_due(now), "it is under way");
        page_dictionary.take(Some(Bytes::from_static(b"<html>")), now);
        assert!(!page_dictionary.is_due(now + FRESH / 2));
        assert!(page_dictionary.is_due(now + FRESH));
    }

    #[test]
    fn a_failed_page_is_due_soon_and_the_last_one_stays() {
        let page_dictionary = page_dictionary();
        let now = now();
        page_dictionary.take(Some(Bytes::from_static(b"<html>")), now);
        let hash = page_dictionary.lock().dictionaries[0].hash;
        page_dictionary.take(None, now);
        assert!(page_dictionary.dictionary(&hash).is_some());
        assert!(!page_dictionary.is_due(now) && page_dictionary.is_due(now + RETRY));
    }

    #[test]
    fn only_the_newest_dictionaries_are_kept_each_once() {
        let page_dictionary = page_dictionary();
        for page in ["a", "b", "a", "c", "d", "e"] {
            page_dictionary.take(Some(Bytes::from(page.repeat(100))), now());
        }
        let first = |known: &Arc<Dictionary>| known.content[0];
        let kept: Vec<_> = page_dictionary.lock().dictionaries.iter().map(first).collect();
        assert_eq!(kept, *b"edca");
    }

    #[test]
    fn a_dictionary_is_announced_to_a_client_without_it() {
        let page_dictionary = page_dictionary();
        let mut fields = Fields::new();
        page_dictionary.announce(None, &mut fields);
        assert!(!fields.contains("Link"), "there is none yet");
        page_dictionary.take(Some(Bytes::from_static(b"<html>")), now());
        let hash = page_dictionary.lock().dictionaries[0].hash;
        page_dictionary.announce(Some(hash), &mut fields);
        assert!(!fields.contains("Link"), "it has it");
        page_dictionary.announce(Some([0; 32]), &mut fields);
        let link = String::from_utf8_lossy(fields.get("Link").expect("a link")).into_owned();
        assert_eq!(
            link,
            format!(
                "</.well-known/haulier/dictionary/{}>; rel=\"compression-dictionary\"",
                hex(&hash)
            )
        );
    }

    #[test]
    fn html_is_recognised_with_and_without_charset() {
        assert!(is_html(b"text/html") && is_html(b"Text/HTML; charset=UTF-8"));
        assert!(!is_html(b"text/htmlx") && !is_html(b"application/json"));
    }
}
