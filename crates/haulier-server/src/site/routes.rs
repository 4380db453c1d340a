//! The routes of a site: rules for some of its paths.
//!
//! Each setting comes from the matching route with the most literal pattern that sets it. So a route that sets a pool
//! for a part of `/admin/*` keeps the password of the whole.

use std::io;
use std::sync::Arc;

use haulier_http::Network;
use haulier_settings::settings_table;

use super::{SharedParts, Site, SiteSettings};
use crate::password::Htpasswd;
use crate::pattern::glob::Glob;
use crate::rate_limiter::RateLimiter;

settings_table! {
    /// `[[site.NAME.route]]`
    pub struct RouteTable = "site.NAME.route" =>

    /// One `[[site.NAME.route]]`.
    #[derive(Debug, Clone)]
    pub struct RouteSettings {
        /// The paths of the route.
        path: Glob = Glob::new("/*").expect("a pattern");
        /// Another document root, or another pool.
        mount: Option<MountSettings> = None;
        /// Clients that may request these paths; others get 403. `None` allows all.
        allow: Option<Vec<Network>> = None;
        /// The required passwords.
        login: Option<Login> = None;
        /// Limits the requests of one client address to these paths.
        rate: Option<Arc<RateLimiter>> = None;
    }

    /// Pattern of its paths.
    path: Text else "required";
    /// The pool that runs PHP for them.
    pool: Text else "that of the site";
    /// The script that stays booted and takes their requests; `"off"` if that of the site is not to.
    worker: Path else "that of the site";
    /// Another project for `/prefix/*`; its paths begin after the prefix.
    root: Path else "that of the site";
    /// Application of that project.
    app: Text else "found, as for a site";
    /// Its front controller, or its page for missing files.
    front: Text else "as `app` says";
    /// Denies these paths to all clients; 404.
    deny: Flag -> bool = false;
    /// Addresses and networks that may request them; 403 for others.
    allow: Texts else "everybody";
    /// Password file in the format of `htpasswd`; `"off"` if a wider route has one.
    basic_auth: Path else "none";
    /// Requests of one client address to these paths: `"5/m"`; 429 beyond.
    rate: Rate else "none";
}

impl RouteSettings {
    /// A route without rules.
    #[must_use]
    pub fn new(path: Glob) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }
}

/// A mounted site.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// Its files and PHP; its hosts, routes and filters are not used.
    pub site: Box<SiteSettings>,
    /// The path of the mount without slash at the end: `/wiki`, or empty.
    pub prefix: String,
}

/// Passwords of a route.
#[derive(Debug, Clone)]
pub enum Login {
    /// The users of a password file.
    Users(Arc<Htpasswd>),
    /// No password, even if a wider route requires one.
    Off,
}

/// All routes of a site, the most literal pattern first.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    routes: Vec<Route>,
    /// The front controller of the site: to its application `/index.php/admin` is `/admin`.
    front: Option<String>,
}

#[derive(Debug)]
struct Route {
    path: Glob,
    mount: Option<Mount>,
    settings: RouteSettings,
}

/// A site within the site: another document root or pool for some paths.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) site: Arc<Site>,
    /// The path before those of the mount: `/wiki` for `/wiki/*`, or empty.
    pub(crate) prefix: String,
}

/// The rules for one path.
#[derive(Debug, Default)]
pub(crate) struct PathRules<'a> {
    pub(crate) deny: bool,
    pub(crate) allow: Option<&'a [Network]>,
    pub(crate) users: Option<&'a Arc<Htpasswd>>,
    pub(crate) rate: Option<&'a Arc<RateLimiter>>,
    pub(crate) mount: Option<&'a Mount>,
}

impl Routes {
    /// Opens the document roots. Mounts count as their site in the metrics.
    ///
    /// # Errors
    /// As [`Site::open`].
    pub(super) fn open(site: &SiteSettings, shared: SharedParts<'_>, series: u32) -> io::Result<Self> {
        let open = |settings: &RouteSettings| {
            let mount = settings.mount.as_ref().map(|mount| {
                Ok::<_, io::Error>(Mount {
                    site: Arc::new(Site::open((*mount.site).clone(), shared, series)?),
                    prefix: mount.prefix.clone(),
                })
            });
            Ok(Route {
                path: settings.path.clone(),
                mount: mount.transpose()?,
                settings: settings.clone(),
            })
        };
        let mut routes = site.routes.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        routes.sort_by_key(|route| std::cmp::Reverse(route.path.weight()));
        let front = site.php.as_ref().and_then(|php| php.front.clone());
        Ok(Self { routes, front })
    }

    /// The mounted sites.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &Site> {
        self.routes
            .iter()
            .filter_map(|route| Some(&*route.mount.as_ref()?.site))
    }

    /// The rules for a path, decoded and normalised.
    pub(crate) fn find(&self, path: &[u8]) -> PathRules<'_> {
        let mut matched = PathRules::default();
        let mut login = None;
        let behind_front = self.behind_front(path);
        for route in &self.routes {
            let is_named = route.names(path);
            if !is_named && !behind_front.is_some_and(|path| route.names(path)) {
                continue;
            }
            let settings = &route.settings;
            matched.deny |= settings.deny;
            matched.allow = matched.allow.or(settings.allow.as_deref());
            matched.rate = matched.rate.or(settings.rate.as_ref());
            matched.mount = matched.mount.or(route.mount.as_ref().filter(|_| is_named));
            login = login.or(settings.login.as_ref());
        }
        matched.users = match login {
            Some(Login::Users(users)) => Some(users),
            Some(Login::Off) | None => None,
        };
        matched
    }

    fn behind_front<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let front = self.front.as_ref().filter(|_| !self.routes.is_empty())?;
        path.strip_prefix(front.as_bytes())
            .filter(|rest| rest.starts_with(b"/"))
    }
}

impl Route {
    fn names(&self, path: &[u8]) -> bool {
        // The mount itself without its slash also belongs to it.
        let is_mount = |mount: &Mount| !mount.prefix.is_empty() && path == mount.prefix.as_bytes();
        self.path.matches(path) || self.mount.as_ref().is_some_and(is_mount)
    }
}

impl Mount {
    /// The path without the prefix; `None` for the prefix alone.
    pub(crate) fn inside<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        path.strip_prefix(self.prefix.as_bytes())
            .filter(|rest| rest.starts_with(b"/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use crate::rate_limiter::Rate;

    fn route(path: &str) -> RouteSettings {
        RouteSettings::new(Glob::new(path).expect("a pattern"))
    }

    fn routes(settings: &[RouteSettings]) -> Routes {
        let root = fixture::Root::new().php(&[], &[]).with(|site| {
            site.routes = settings.to_vec();
            site.php.as_mut().expect("it has PHP").front = Some("/index.php".into());
        });
        let settings = root.site().settings;
        fixture::with_parts(|shared| Routes::open(&settings, shared, 0)).expect("directories that exist")
    }

    #[test]
    fn what_an_application_sees_behind_its_front_controller_is_judged_as_well() {
        let mut admin = route("/admin/*");
        admin.allow = Some(Vec::new());
        let routes = routes(&[admin]);
        assert_eq!(routes.find(b"/index.php/admin/x").allow, Some(&[][..]));
        for path in ["/index.php/x", "/index.phpadmin/x", "/other.php/admin/x"] {
            assert_eq!(routes.find(path.as_bytes()).allow, None, "{path}");
        }
    }

    #[test]
    fn each_setting_comes_from_the_most_literal_route_that_says_it() {
        let everyone: Vec<Network> = vec!["0.0.0.0/0".parse().expect("a network")];
        let rate = RateLimiter::new(Rate {
            count: 1,
            period: std::time::Duration::from_secs(1),
            burst: 1,
        });
        let mut site = route("/*");
        site.rate = Some(Arc::new(rate));
        let mut admin = route("/admin/*");
        admin.allow = Some(Vec::new());
        let mut open = route("/admin/open/*");
        open.allow = Some(everyone.clone());
        let mut old = route("*.old");
        old.deny = true;
        let routes = routes(&[site, admin, open, old]);
        assert_eq!(routes.find(b"/x").allow, None);
        assert_eq!(routes.find(b"/admin/x").allow, Some(&[][..]));
        assert_eq!(routes.find(b"/admin/open/x").allow, Some(&everyone[..]));
        assert!(
            routes.find(b"/admin/open/x").rate.is_some(),
            "the wider route's rate holds too"
        );
        assert!(routes.find(b"/admin/open/x.old").deny && !routes.find(b"/admin/open/x").deny);
    }

    #[test]
    fn nobody_is_asked_where_a_narrower_route_turns_it_off() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("users");
        std::fs::write(&file, "anna:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n").expect("a file");
        let users = Htpasswd::open(&file).expect("one user");
        let mut all = route("/*");
        all.login = Some(Login::Users(Arc::new(users)));
        let mut hook = route("/hook");
        hook.login = Some(Login::Off);
        let routes = routes(&[all, hook]);
        assert!(routes.find(b"/x").users.is_some());
        assert!(routes.find(b"/hook").users.is_none());
    }

    #[test]
    fn a_mount_takes_the_paths_behind_its_prefix() {
        let root = fixture::Root::new().file("a.txt", "inside");
        let mut wiki = route("/wiki/*");
        wiki.mount = Some(MountSettings {
            site: Box::new(root.site().settings),
            prefix: "/wiki".into(),
        });
        let routes = routes(&[wiki]);
        assert!(routes.find(b"/wikis").mount.is_none() && routes.find(b"/").mount.is_none());
        let mount = routes.find(b"/wiki").mount.expect("the mount itself");
        assert_eq!(mount.inside(b"/wiki"), None, "it wants its slash");
        let mount = routes.find(b"/wiki/a.txt").mount.expect("the mount");
        assert_eq!(mount.inside(b"/wiki/a.txt"), Some(&b"/a.txt"[..]));
        assert_eq!(mount.inside(b"/wiki/"), Some(&b"/"[..]));
    }
}
