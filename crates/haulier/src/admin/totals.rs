//! Sums over the counters of sites.

use haulier_server::metrics::{HandlerTotals, SiteTotals, Totals};

/// A site in an earlier reading. A reload may have changed its number, or added it since.
pub(super) fn find<'t>(totals: &'t Totals, number: usize, name: &str) -> Option<&'t SiteTotals> {
    let named = |(found, site): &'t (String, SiteTotals)| (found == name).then_some(site);
    let in_place = totals.sites.get(number).and_then(named);
    in_place.or_else(|| totals.sites.iter().find_map(named))
}

pub(super) fn all_sites(totals: &Totals) -> impl Iterator<Item = &SiteTotals> {
    totals.sites.iter().map(|(_, site)| site)
}

pub(super) fn sum(site: &SiteTotals, of: impl Fn(&HandlerTotals) -> u64) -> u64 {
    site.handlers().map(|(_, handler)| of(handler)).sum()
}

pub(super) fn requests(site: &SiteTotals) -> u64 {
    sum(site, HandlerTotals::requests)
}

pub(super) fn bytes(site: &SiteTotals) -> u64 {
    sum(site, |handler| handler.bytes)
}
