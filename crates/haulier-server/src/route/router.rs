//! Host name → site (RFC 9110 §7.4: a server decides what it is authoritative for).

use std::collections::HashMap;
use std::sync::Arc;

use super::Site;

/// Finds the site for a host: an exact name, then the longest wildcard, then the site for every host.
#[derive(Debug, Default)]
pub struct Router {
    exact: HashMap<Vec<u8>, Arc<Site>, foldhash::fast::RandomState>,
    /// `.example.com` for `*.example.com`.
    suffixes: HashMap<Vec<u8>, Arc<Site>, foldhash::fast::RandomState>,
    any: Option<Arc<Site>>,
}

impl Router {
    /// The first site that names a host has it.
    #[must_use]
    pub fn new(sites: &[Arc<Site>]) -> Self {
        let mut router = Self::default();
        for site in sites {
            for host in &site.settings.hosts {
                let site = Arc::clone(site);
                match host.strip_prefix('*') {
                    Some("") => router.any.get_or_insert(site),
                    Some(suffix) => router.suffixes.entry(suffix.as_bytes().to_vec()).or_insert(site),
                    None => router.exact.entry(host.as_bytes().to_vec()).or_insert(site),
                };
            }
        }
        router
    }

    /// The site for this host (without port). `None`: nobody here answers to it, or there is no host and no site
    /// for every host.
    #[must_use]
    pub fn find(&self, host: Option<&[u8]>) -> Option<&Arc<Site>> {
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return self.any.as_ref();
        }
        host.and_then(|host| self.find_named(host)).or(self.any.as_ref())
    }

    fn find_named(&self, host: &[u8]) -> Option<&Arc<Site>> {
        let mut name = host.to_ascii_lowercase();
        // RFC 1034 §3.1: the root's dot may be written.
        if name.last() == Some(&b'.') {
            name.pop();
        }
        if let Some(site) = self.exact.get(&name) {
            return Some(site);
        }
        let dots = name.iter().enumerate().filter(|&(_, &byte)| byte == b'.').map(|(at, _)| at);
        dots.filter(|&at| at > 0).find_map(|at| self.suffixes.get(&name[at..]))
    }
}
