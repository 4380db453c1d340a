//! Host → site (RFC 9110 §7.4: a server decides what it is authoritative for).

use std::sync::Arc;

use super::Site;
use crate::pattern::host_map::HostMap;

/// Finds the site of a host: by exact name, then the longest wildcard, then the site for every host.
#[derive(Debug, Default)]
pub(crate) struct Router {
    sites: HostMap<Arc<Site>>,
}

impl Router {
    /// The first site that names a host gets it.
    #[must_use]
    pub(crate) fn new(sites: &[Arc<Site>]) -> Self {
        let mut router = Self::default();
        for site in sites {
            for host in &site.settings.hosts {
                router.sites.insert(host, Arc::clone(site));
            }
        }
        router
    }

    /// All sites; a site with several hosts comes several times.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.sites.values()
    }

    /// The site of a host, without port. `None` if no site has the host; without a host, only a site for every host
    /// answers.
    #[must_use]
    pub(crate) fn find(&self, host: Option<&[u8]>) -> Option<&Arc<Site>> {
        self.sites.find(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;

    /// A router for sites of these names and hosts.
    fn router(sites: &[(&str, &[&str])]) -> Router {
        let site = |&(name, hosts): &(&str, &[&str])| {
            let root = fixture::Root::new().with(|settings| {
                settings.name = name.into();
                settings.hosts = hosts.iter().map(|host| (*host).into()).collect();
            });
            Arc::new(root.site())
        };
        Router::new(&sites.iter().map(site).collect::<Vec<_>>())
    }

    #[track_caller]
    fn assert_found(router: &Router, rows: &[(Option<&str>, Option<&str>)]) {
        for (host, expected) in rows {
            let found = router
                .find(host.map(str::as_bytes))
                .map(|site| site.settings.name.as_str());
            assert_eq!(found, *expected, "{host:?}");
        }
    }

    #[test]
    fn an_exact_name_wins_over_the_longest_wildcard_and_that_over_any() {
        let sites: [(&str, &[&str]); 4] = [
            ("any", &["*"]),
            ("wild", &["*.example.com"]),
            ("deep", &["*.shop.example.com"]),
            ("exact", &["www.example.com", "example.com"]),
        ];
        let rows = [
            (Some("www.example.com"), Some("exact")),
            (Some("WWW.Example.COM"), Some("exact")),
            (Some("www.example.com."), Some("exact")),
            (Some("example.com"), Some("exact")),
            (Some("a.example.com"), Some("wild")),
            (Some("a.b.example.com"), Some("wild")),
            (Some("a.shop.example.com"), Some("deep")),
            (Some("shop.example.com"), Some("wild")),
            (Some("notexample.com"), Some("any")),
            (Some("[::1]"), Some("any")),
            (Some(""), Some("any")),
            (None, Some("any")),
        ];
        assert_found(&router(&sites), &rows);
    }

    #[test]
    fn a_host_nobody_named_is_nobodys() {
        let sites: [(&str, &[&str]); 1] = [("wild", &["*.example.com"])];
        let rows = [
            (Some("a.example.com"), Some("wild")),
            (Some("example.com"), None),
            (Some(".example.com"), None),
            (Some("example.org"), None),
            (None, None),
        ];
        assert_found(&router(&sites), &rows);
        assert_found(&router(&[]), &[(Some("example.com"), None), (None, None)]);
    }

    #[test]
    fn the_first_site_that_names_a_host_has_it() {
        let sites: [(&str, &[&str]); 2] = [("one", &["a.example", "*"]), ("two", &["a.example", "*", "b.example"])];
        assert_found(
            &router(&sites),
            &[
                (Some("a.example"), Some("one")),
                (Some("b.example"), Some("two")),
                (None, Some("one")),
            ],
        );
    }
}
