//! The environment of `haulier serve` that its PHP gets: the caller's, without what is not meant for it.

/// Ours and the service manager's, and what changes how php-cgi itself runs.
const OURS: [&str; 9] = [
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "MAINPID",
    "CREDENTIALS_DIRECTORY",
    "MOD_X_SENDFILE_ENABLED",
];

/// PHP puts its environment into `$_SERVER` as well: what has one of these names there belongs to the request (RFC 3875
/// §4.1), and an application would believe it of every one that does not say otherwise.
const OF_A_REQUEST: [&str; 25] = [
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "CONTEXT_DOCUMENT_ROOT",
    "CONTEXT_PREFIX",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "PHP_SELF",
    "QUERY_STRING",
    "REMOTE_ADDR",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_PORT",
    "REMOTE_USER",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
];

/// Whole families of both kinds.
const FAMILIES: [&str; 8] = [
    "HAULIER_",
    "FCGI_",
    "PHP_FCGI_",
    "HTTP_",
    "REQUEST_",
    "REDIRECT_",
    "ORIG_",
    "PHP_AUTH_",
];

/// Names of the variables that PHP gets. One whose name or value is no text is left out.
pub(super) fn names_for_php() -> Vec<String> {
    let all = std::env::vars_os();
    let names = all.filter_map(|(name, value)| value.to_str().is_some().then(|| name.into_string().ok())?);
    let mut names: Vec<String> = names.filter(|name| is_for_php(name)).collect();
    // The same order at every reload: a pool whose settings are the same goes on.
    names.sort_unstable();
    names
}

fn is_for_php(name: &str) -> bool {
    let is_taken =
        OURS.contains(&name) || OF_A_REQUEST.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family));
    !name.is_empty() && !is_taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_gets_the_callers_variables_and_none_that_would_pass_for_a_request() {
        for name in [
            "APP_ENV",
            "HOME",
            "DATABASE_URL",
            "XDEBUG_MODE",
            "PHPRC",
            "http_proxy",
            "SERVER_VERSION",
        ] {
            assert!(is_for_php(name), "{name}");
        }
        for name in [
            "HTTP_PROXY",
            "HTTPS",
            "REQUEST_METHOD",
            "REDIRECT_STATUS",
            "REMOTE_USER",
            "LISTEN_FDS",
            "HAULIER_SEND",
            "PHP_FCGI_CHILDREN",
            "FCGI_WEB_SERVER_ADDRS",
            "",
        ] {
            assert!(!is_for_php(name), "{name}");
        }
        assert!(names_for_php().contains(&"PATH".to_owned()));
    }
}
