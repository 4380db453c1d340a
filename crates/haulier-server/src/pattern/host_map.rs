//! Values by host name: an exact name, then the longest wildcard, then `*`.

use std::collections::HashMap;

/// Written once, then read.
#[derive(Debug)]
pub(crate) struct HostMap<T> {
    exact: HashMap<Vec<u8>, T, foldhash::fast::RandomState>,
    /// `.example.com` for `*.example.com`.
    suffixes: HashMap<Vec<u8>, T, foldhash::fast::RandomState>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::default(),
            suffixes: HashMap::default(),
            any: None,
        }
    }
}

impl<T> HostMap<T> {
    /// `host` is lower case: `example.com`, `*.example.com`, or `*`. An existing value stays.
    pub(crate) fn insert(&mut self, host: &str, value: T) {
        match host.strip_prefix('*') {
            Some("") => self.any.get_or_insert(value),
            Some(suffix) => self.suffixes.entry(suffix.as_bytes().to_vec()).or_insert(value),
            None => self.exact.entry(host.as_bytes().to_vec()).or_insert(value),
        };
    }

    /// All values, once for each host.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.suffixes.values()).chain(&self.any)
    }

    /// The value for a host, without port, or for every host.
    pub(crate) fn find(&self, host: Option<&[u8]>) -> Option<&T> {
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return self.any.as_ref();
        }
        host.and_then(|host| self.find_named(host)).or(self.any.as_ref())
    }

    fn find_named(&self, host: &[u8]) -> Option<&T> {
        // RFC 1034 §3.1: a name may end with the root's dot.
        let name = host.strip_suffix(b".").unwrap_or(host);
        if let Some(value) = self.exact.get(name) {
            return Some(value);
        }
        self.find_lowercase(&name.to_ascii_lowercase())
    }

    /// The rare cases: capitals, or a wildcard.
    fn find_lowercase(&self, name: &[u8]) -> Option<&T> {
        if let Some(value) = self.exact.get(name) {
            return Some(value);
        }
        let dots = name
            .iter()
            .enumerate()
            .filter(|&(_, &byte)| byte == b'.')
            .map(|(at, _)| at);
        dots.filter(|&at| at > 0).find_map(|at| self.suffixes.get(&name[at..]))
    }
}
