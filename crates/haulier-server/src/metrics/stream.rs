//! Scripts that stream large bodies through PHP, which a rule could offload.
//!
//! The list is bounded: its keys are existing scripts, and the one with the fewest bytes makes room.

use std::sync::Arc;

use haulier_http::Streamed;

use crate::site::Site;

/// Least size of a large body, bytes.
pub(super) const LARGE: u64 = 1024 * 1024;
/// Most entries kept.
const MOST: usize = 100;

/// A script that streams, as `haulier status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamingScript {
    /// The name of its site.
    pub site: String,
    /// Its path below the document root.
    pub script: String,
    /// The media type of its last large body.
    pub media_type: Option<String>,
    /// Number of large bodies.
    pub responses: u64,
    /// Total bytes of those bodies.
    pub bytes: u64,
    /// The media types in the site's rule.
    pub listed: Vec<String>,
}

/// All such scripts.
#[derive(Debug, Default)]
pub(super) struct StreamingTable {
    entries: Vec<StreamingEntry>,
}

#[derive(Debug)]
struct StreamingEntry {
    /// Series of the site.
    site: u32,
    streamed: Streamed,
    responses: u64,
    bytes: u64,
}

impl StreamingTable {
    /// Notes a large body of `bytes`.
    pub(super) fn note(&mut self, site: u32, streamed: &Streamed, bytes: u64) {
        let same = |entry: &&mut StreamingEntry| entry.site == site && entry.streamed.script == streamed.script;
        if let Some(entry) = self.entries.iter_mut().find(same) {
            entry.responses += 1;
            entry.bytes += bytes;
            entry.streamed.media_type.clone_from(&streamed.media_type);
            return;
        }
        if self.entries.len() >= MOST
            && let Some(least) = (0..self.entries.len()).min_by_key(|&place| self.entries[place].bytes)
        {
            self.entries.swap_remove(least);
        }
        self.entries.push(StreamingEntry {
            site,
            streamed: streamed.clone(),
            responses: 1,
            bytes,
        });
    }

    /// The scripts that no present rule covers, largest first.
    pub(super) fn worst_first(&self, sites: &[Arc<Site>]) -> Vec<StreamingScript> {
        let named = self.entries.iter().filter_map(|entry| {
            let site = sites.iter().find(|site| site.series == entry.site)?;
            let rule = site.php.as_ref().and_then(|php| php.settings.offload.as_ref());
            let media_type = entry.streamed.media_type.as_deref().unwrap_or_default();
            if rule.is_some_and(|rule| rule.lists(media_type.as_bytes())) {
                return None;
            }
            Some(StreamingScript {
                listed: rule.map(|rule| rule.types.clone()).unwrap_or_default(),
                site: site.settings.name.clone(),
                script: entry.streamed.script.clone(),
                media_type: entry.streamed.media_type.clone(),
                responses: entry.responses,
                bytes: entry.bytes,
            })
        });
        let mut list: Vec<_> = named.collect();
        list.sort_by_key(|script| std::cmp::Reverse(script.bytes));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use crate::site::OffloadSettings;

    fn streamed(script: &str) -> Box<Streamed> {
        Streamed::new(script.as_bytes(), Some(b"Application/PDF; charset=x"))
    }

    #[test]
    fn large_bodies_are_gathered_by_script_and_the_worst_comes_first() {
        let site = Arc::new(
            fixture::Root::new()
                .with(|settings| settings.name = "shop".into())
                .site(),
        );
        let mut table = StreamingTable::default();
        table.note(site.series, &streamed("/once.php"), 3 * LARGE);
        table.note(site.series, &streamed("/twice.php"), 2 * LARGE);
        table.note(site.series, &streamed("/twice.php"), 2 * LARGE);
        let list = table.worst_first(&[site]);
        let shown: Vec<_> = list
            .iter()
            .map(|script| (script.script.as_str(), script.responses))
            .collect();
        assert_eq!(shown, [("/twice.php", 2), ("/once.php", 1)]);
        assert_eq!(list[0].bytes, 4 * LARGE);
        assert_eq!(list[0].media_type.as_deref(), Some("application/pdf"));
    }

    #[test]
    fn scripts_covered_by_a_rule_leave_the_list() {
        let with = |types: &[&str]| {
            let types = types.iter().map(|&kind| kind.to_owned()).collect();
            let rule = OffloadSettings {
                types,
                extensions: Vec::new(),
                min_size: 0,
            };
            let root = fixture::Root::new().php(&[], &[]);
            let root = root.with(|settings| settings.php.as_mut().expect("it has PHP").offload = Some(rule));
            Arc::new(root.site())
        };
        for (types, is_covered) in [
            (["application/pdf"], true),
            (["application/*"], true),
            (["video/*"], false),
        ] {
            let site = with(&types);
            let mut table = StreamingTable::default();
            table.note(site.series, &streamed("/a.php"), LARGE);
            let list = table.worst_first(&[site]);
            assert_eq!(list.is_empty(), is_covered, "{types:?}");
            assert!(list.iter().all(|script| script.listed == types));
        }
    }

    #[test]
    fn the_list_is_bounded_and_the_least_makes_room() {
        let mut table = StreamingTable::default();
        for number in 0..2 * MOST as u64 {
            table.note(0, &streamed(&format!("/{number}.php")), LARGE + 1 + number);
        }
        assert_eq!(table.entries.len(), MOST);
        assert!(table.entries.iter().all(|entry| entry.bytes > LARGE + MOST as u64));
    }
}
