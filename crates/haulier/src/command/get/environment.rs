//! Proxies from environment variables, and the netrc file.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use haulier_client::credentials::Netrc;
use haulier_client::url::{Scheme, Url};

/// The proxy by flag, else by variable. `HTTP_PROXY` in capitals is not read: in a CGI program a client could set it.
pub(super) fn proxy(flag: Option<&Url>, variable: &str) -> Result<Option<Url>, String> {
    let from_environment = || {
        let capital = variable.to_uppercase();
        [variable, "all_proxy", &capital, "ALL_PROXY"]
            .into_iter()
            .filter(|name| *name != "HTTP_PROXY")
            .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    };
    let proxy = match flag {
        Some(url) => Some(url.clone()),
        None => match from_environment() {
            Some(text) => Some(Url::parse(&text).map_err(|error| format!("proxy {text}: {error}"))?),
            None => None,
        },
    };
    match proxy {
        Some(url) if url.origin().scheme != Scheme::Http => {
            Err(format!("proxy {url}: only http proxies are supported"))
        }
        other => Ok(other),
    }
}

/// Hosts that need no proxy.
pub(super) fn no_proxy() -> Vec<String> {
    let value = env::var("no_proxy")
        .or_else(|_| env::var("NO_PROXY"))
        .unwrap_or_default();
    value
        .split(',')
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .collect()
}

/// Reads the netrc file: a named one must exist, the default one may be missing.
pub(super) fn netrc(named: Option<&Path>, is_refused: bool) -> Result<Netrc, String> {
    if is_refused {
        return Ok(Netrc::default());
    }
    let usual = || {
        let from_variable = env::var_os("NETRC").map(PathBuf::from);
        from_variable.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".netrc")))
    };
    let Some(path) = named.map(Path::to_owned).or_else(usual) else {
        return Ok(Netrc::default());
    };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Netrc::parse(&text)),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(Netrc::default()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}
