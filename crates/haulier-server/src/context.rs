//! The context of a request whose site and routes are known: input of filters and handlers.

use std::sync::Arc;

use haulier_http::{Network, Request};

use crate::files::{self, FoundPath, Script};
use crate::site::{Mount, PathRules, Site};
use crate::thread::Thread;

/// A pass of a request through the filters. An internal one follows a password check or a local redirect of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    First,
    Internal,
}

/// A request on its way to a handler.
pub(crate) struct RequestContext<'a> {
    pub(crate) thread: &'a Thread,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) request: &'a Request,
    pub(crate) pass: Pass,
    /// The path and query of a local redirect (RFC 3875 §6.2.2); they replace the client's.
    pub(crate) local: Option<&'a [u8]>,
    /// Decoded and normalised.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// The matching routes of the site.
    pub(crate) routes: &'a PathRules<'a>,
}

impl<'a> RequestContext<'a> {
    /// True if the client's address is in one of these networks.
    pub(crate) fn comes_from(&self, networks: &[Network]) -> bool {
        let address = self.request.peer.remote.ip();
        networks.iter().any(|network| network.contains(address))
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.request.peer.tls { "https" } else { "http" }
    }

    /// Looks up a path in the site, or in the site mounted there.
    pub(crate) fn find(&self, path: &[u8]) -> FoundPath {
        match self.routes.mount {
            // `deny` patterns are for paths of the outer site, mounted or not.
            Some(_) if files::is_denied(&self.site.files, path) => FoundPath::Denied,
            Some(mount) => match mount.inside(path) {
                Some(inside) => self.find_mounted(mount, inside),
                None => FoundPath::SlashMissing,
            },
            None => self.find_in(self.site, path),
        }
    }

    /// Looks up the front controller; `None` if the site has none.
    pub(crate) fn find_front(&self) -> Option<FoundPath> {
        let front = self.owner().settings.php.as_ref()?.front.as_deref()?;
        Some(self.find_of_owner(front))
    }

    /// Looks up the page that replaces missing files; `None` if the site has none.
    pub(crate) fn find_fallback(&self) -> Option<FoundPath> {
        let page = self.owner().settings.files.fallback.as_deref()?;
        Some(self.find_of_owner(page))
    }

    fn find_of_owner(&self, path: &str) -> FoundPath {
        match self.routes.mount {
            Some(mount) => self.find_mounted(mount, path.as_bytes()),
            None => self.find_in(self.site, path.as_bytes()),
        }
    }

    /// Looks up a path in a mounted site. A script gets its name in the outer site.
    fn find_mounted(&self, mount: &Mount, inside: &[u8]) -> FoundPath {
        match self.find_in(&mount.site, inside) {
            FoundPath::Script(script) => FoundPath::Script(Script {
                name: [mount.prefix.as_bytes(), &script.name].concat(),
                ..script
            }),
            found => found,
        }
    }

    fn find_in(&self, site: &Site, path: &[u8]) -> FoundPath {
        self.thread
            .caches
            .files
            .find(&site.files, path, self.thread.io.clock.coarse())
    }

    /// The site whose files and PHP answer: this one, or the one mounted in it.
    pub(crate) fn owner(&self) -> &'a Arc<Site> {
        self.routes.mount.map_or(self.site, |mount| &mount.site)
    }

    /// The path within [`RequestContext::owner`].
    pub(crate) fn inside(&self) -> &'a [u8] {
        match self.routes.mount {
            Some(mount) => mount.inside(self.path).unwrap_or(b"/"),
            None => self.path,
        }
    }
}
