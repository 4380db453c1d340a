//! The recipe for starting a php-cgi: program, arguments and environment, made from a pool's settings before haulier
//! leaves root.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::spawn::groups_of;
use crate::marker::finish_marker;
use crate::settings::Supervised;

/// By default php-cgi ends a child after 500 requests, without regard to open connections. The pool replaces workers
/// itself.
const BEYOND_REACH: &str = "2147483647";

/// Last, so that they take precedence. With cgi.fix_pathinfo=0 PHP_SELF would be PATH_INFO alone, and PHP would run the
/// file of PATH_TRANSLATED instead of SCRIPT_FILENAME, such as an uploaded picture. With 1 PHP guesses only if
/// SCRIPT_FILENAME does not exist, and the server names only existing scripts.
///
/// fcgi.logging=1, PHP's default, sends STDERR with the response: errors, and announcements of the script.
const OWN_INI: [&str; 6] = [
    "-d",
    "cgi.fix_pathinfo=1",
    "-d",
    "cgi.discard_path=1",
    "-d",
    "fcgi.logging=1",
];

/// The environment variable with directories of further ini files.
pub(crate) const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

/// A program with its arguments, environment, account and limits. Each start adds the inherited directories and the
/// listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Value of [`SCAN_DIR`] before our own directory.
    pub(crate) scan_dir: OsString,
    /// The account that it runs as; `None` is haulier's own.
    pub(crate) account: Option<Account>,
    pub(crate) nice: i32,
    /// Number of the resource, and its limit; `None` is no limit.
    pub(crate) rlimits: Vec<(u32, Option<u64>)>,
    /// Number of programs that the pool runs at a time.
    pub(crate) programs: usize,
}

/// A user with all its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Recipe {
    /// The recipe of a master with the pool's children, or of one of its `separate` workers.
    ///
    /// # Errors
    /// The groups of the account cannot be looked up.
    pub(crate) fn of(own: &Supervised, separate: bool) -> io::Result<Self> {
        let account = own.user.as_ref().map(|user| {
            Ok::<_, io::Error>(Account {
                uid: user.uid,
                gid: user.gid,
                groups: groups_of(&user.name, user.gid)?,
            })
        });
        let rlimits = own.rlimits.iter();
        Ok(Self {
            program: own.php.clone(),
            arguments: arguments(own),
            environment: environment(own, separate),
            scan_dir: scan_dir(own),
            account: account.transpose()?,
            nice: own.nice,
            rlimits: rlimits.map(|rlimit| (rlimit.resource as u32, rlimit.limit)).collect(),
            programs: if separate { own.workers } else { 1 },
        })
    }
}

fn arguments(own: &Supervised) -> Vec<String> {
    let ini = own.ini.iter().chain(&own.ini_admin);
    let ini = ini.flat_map(|(name, value)| ["-d".to_owned(), format!("{name}={value}")]);
    ini.chain(OWN_INI.map(str::to_owned)).collect()
}

fn environment(own: &Supervised, separate: bool) -> Vec<(OsString, OsString)> {
    let copied = own
        .env_copy
        .iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let named = own.env.iter().map(|(name, value)| (name.into(), value.into()));
    let children = if separate { 0 } else { children(own) };
    let ours = if let Some(embedded) = &own.embedded {
        let script = embedded.script.as_ref().map_or_else(OsString::new, OsString::from);
        vec![
            ("HAULIER_WORKERS".into(), children.to_string().into()),
            ("HAULIER_SCRIPT".into(), script),
            ("HAULIER_MARKER".into(), finish_marker().into()),
        ]
    } else {
        vec![
            ("PHP_FCGI_CHILDREN".into(), children.to_string().into()),
            ("PHP_FCGI_MAX_REQUESTS".into(), BEYOND_REACH.into()),
        ]
    };
    copied.chain(named).chain(ours).collect()
}

/// Number of children: one more than workers if workers are replaced, so that a replacement waits in accept before the
/// old one ends. A fresh child takes little memory.
pub(crate) fn children(own: &Supervised) -> usize {
    own.workers + usize::from(own.recycle.is_on() || own.boots_script())
}

/// The directory that the pool's settings name; empty stands for PHP's own.
fn scan_dir(own: &Supervised) -> OsString {
    let named = own.env.iter().rev().find(|(name, _)| name == SCAN_DIR);
    let copied = own.env_copy.iter().any(|name| name == SCAN_DIR);
    match named {
        Some((_, value)) => OsString::from(value),
        None if copied => std::env::var_os(SCAN_DIR).unwrap_or_default(),
        None => OsString::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Recycle, Rlimit, User};
    use rustix::process::Resource;

    #[test]
    fn a_recipe_holds_all_that_a_start_needs_and_survives_being_sent() {
        let own = Supervised {
            workers: 3,
            recycle: Recycle {
                requests: 10,
                ..Recycle::default()
            },
            ini: vec![("memory_limit".into(), "64M".into())],
            env: vec![("A".into(), "1".into()), (SCAN_DIR.into(), "/etc/more".into())],
            user: Some(User {
                name: "root".into(),
                uid: 0,
                gid: 0,
            }),
            rlimits: vec![Rlimit {
                resource: Resource::Core,
                limit: Some(0),
            }],
            ..Supervised::new("/usr/bin/php-cgi".into(), "/run/x".into())
        };
        let recipe = Recipe::of(&own, false).expect("root is an account");
        assert_eq!(recipe.arguments[..2], ["-d", "memory_limit=64M"]);
        assert!(
            recipe.environment.contains(&("PHP_FCGI_CHILDREN".into(), "4".into())),
            "one in reserve"
        );
        assert_eq!(recipe.scan_dir, "/etc/more");
        assert_eq!(recipe.rlimits, [(libc::RLIMIT_CORE, Some(0))]);
        assert!(
            recipe
                .account
                .as_ref()
                .is_some_and(|account| account.groups.contains(&0))
        );
        let sent = serde_json::to_string(&recipe).expect("plain values");
        assert_eq!(serde_json::from_str::<Recipe>(&sent).expect("the same"), recipe);

        let single = Recipe::of(&own, true).expect("root is an account");
        assert!(single.environment.contains(&("PHP_FCGI_CHILDREN".into(), "0".into())));
        assert_eq!(single.programs, 3);
    }
}
