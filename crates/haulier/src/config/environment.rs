//! The environment of PHP under `haulier serve`: the caller's, without variables that are not for PHP.

/// Variables of haulier and of the service manager, and those that change php-cgi itself.
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

/// Variables of a request (RFC 3875 §4.1). PHP puts its environment into `$_SERVER`, too, so an application would take
/// them for those of every request that does not set them.
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

/// Prefixes of both kinds.
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

/// Names of the variables that PHP gets. Names and values that are no text are left out.
pub(super) fn names_for_php() -> Vec<String> {
    let all = std::env::vars_os();
    let names = all.filter_map(|(name, value)| value.to_str().is_some().then(|| name.into_string().ok())?);
    let mut names: Vec<String> = names.filter(|name| is_for_php(name)).collect();
    // Always in one order: a reload keeps a pool whose settings are the same.
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
