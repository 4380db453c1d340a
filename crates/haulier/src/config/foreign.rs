//! Settings of other servers, with their names here.

const NO_PROXY: &str = "haulier is no reverse proxy for HTTP: PHP is asked by FastCGI (`servers` in `[pool.NAME]`), other \
                        programs need a proxy such as Caddy or nginx in front";
const NO_WEBSOCKET: &str =
    "haulier speaks no WebSocket: run that server on a port of its own; event streams (SSE) of PHP do work";
const NO_PAGE_CACHE: &str = "haulier keeps no answers of PHP: `cache` of the site has browsers and CDNs keep files, PHP says \
                             `Cache-Control` itself";

/// Setting of nginx, Apache, Caddy, lighttpd or php-fpm → advice for haulier.
static WORDS: &[(&str, &str)] = &[
    ("proxy_pass", NO_PROXY),
    ("proxypass", NO_PROXY),
    ("proxypassreverse", NO_PROXY),
    ("proxypassmatch", NO_PROXY),
    ("proxy.server", NO_PROXY),
    ("reverse_proxy", NO_PROXY),
    ("upstream", NO_PROXY),
    ("grpc_pass", NO_PROXY),
    ("uwsgi_pass", NO_PROXY),
    ("scgi_pass", NO_PROXY),
    ("proxy_set_header", NO_PROXY),
    ("proxy_read_timeout", NO_PROXY),
    ("websocket", NO_WEBSOCKET),
    ("websockets", NO_WEBSOCKET),
    ("mercure", NO_WEBSOCKET),
    ("proxy_http_version", NO_WEBSOCKET),
    ("fastcgi_cache", NO_PAGE_CACHE),
    ("fastcgi_cache_path", NO_PAGE_CACHE),
    ("fastcgi_cache_valid", NO_PAGE_CACHE),
    ("fastcgi_cache_key", NO_PAGE_CACHE),
    ("proxy_cache", NO_PAGE_CACHE),
    ("proxy_cache_path", NO_PAGE_CACHE),
    ("cacheenable", NO_PAGE_CACHE),
    ("encode", "haulier compresses by itself; see `[compress]`"),
    ("gzip", "haulier compresses by itself; see `[compress]`"),
    (
        "gzip_types",
        "haulier compresses by itself; see `types` in `[compress]`",
    ),
    (
        "gzip_static",
        "haulier sends `FILE.gz`, `.br` and `.zst` beside a file by itself",
    ),
    ("brotli", "haulier compresses by itself; see `[compress]`"),
    ("mod_deflate", "haulier compresses by itself; see `[compress]`"),
    (
        "addoutputfilterbytype",
        "haulier compresses by itself; see `[compress]`",
    ),
    (
        "rewriterule",
        "in haulier this is `rewrites` of the site (another path answers) or `redirects` (the client is sent on), by `*`",
    ),
    (
        "rewriteengine",
        "leave it out: `rewrites` and `redirects` of the site hold by themselves",
    ),
    (
        "rewritebase",
        "leave it out: paths of `rewrites` begin at the root of the site",
    ),
    (
        "rewritecond",
        "there are no conditions: `canonical` names the host, `front` takes what is no file, `maintenance` closes the site",
    ),
    (
        "if",
        "there are no conditions: `canonical`, `front`, `maintenance` and `[[site.NAME.route]]` take their place",
    ),
    ("map", "there are no variables: give a site or a route each case"),
    (
        "respond",
        "haulier sends no text of the configuration: put it into a file of the site",
    ),
    (
        "handle_path",
        "in haulier this is `[[site.NAME.route]]` with its `root`",
    ),
    (
        "auth_request",
        "haulier asks nobody else: `basic_auth` in `[[site.NAME.route]]`, or the application",
    ),
    (
        "forward_auth",
        "haulier asks nobody else: `basic_auth` in `[[site.NAME.route]]`, or the application",
    ),
    ("ssl_certificate", "in haulier this is `cert` in `[site.NAME.tls]`"),
    ("ssl_certificate_key", "in haulier this is `key` in `[site.NAME.tls]`"),
    ("sslcertificatefile", "in haulier this is `cert` in `[site.NAME.tls]`"),
    ("sslcertificatekeyfile", "in haulier this is `key` in `[site.NAME.tls]`"),
    (
        "allowoverride",
        "haulier reads no .htaccess: write its rules into the site",
    ),
    ("autoindex", "a listing is shown by `haulier serve` only"),
    (
        "client_max_body_size",
        "in haulier this is `body` in `[limits]` or `[site.NAME.limits]`",
    ),
    ("directoryindex", "the index follows from `app`"),
    (
        "document_root",
        "in haulier this is `root`; the folder inside it is found by `app`",
    ),
    (
        "documentroot",
        "in haulier this is `root`; the folder inside it is found by `app`",
    ),
    ("error_log", "haulier logs to standard error; see `[log]`"),
    ("access_log", "in haulier this is `file` and `access` in `[log]`"),
    ("accesslog.filename", "in haulier this is `file` in `[log]`"),
    (
        "customlog",
        "in haulier this is `file` in `[log]`, with `format = \"combined\"`",
    ),
    ("errorlog", "haulier logs to standard error; see `[log]`"),
    ("log_format", "in haulier this is `format` in `[log]`"),
    ("logformat", "in haulier this is `format` in `[log]`"),
    ("set_real_ip_from", "in haulier this is `trusted_proxies` in `[server]`"),
    ("real_ip_header", "`trusted_proxies` in `[server]` is enough"),
    ("remoteipheader", "`trusted_proxies` in `[server]` is enough"),
    (
        "remoteipinternalproxy",
        "in haulier this is `trusted_proxies` in `[server]`",
    ),
    (
        "remoteiptrustedproxy",
        "in haulier this is `trusted_proxies` in `[server]`",
    ),
    ("server.username", "in haulier this is `user` in `[server]`"),
    ("group", "the group is that of `user`"),
    ("fastcgi_pass", "in haulier this is `servers` in `[pool.NAME]`"),
    ("fastcgi_read_timeout", "in haulier this is `timeout` in `[pool.NAME]`"),
    ("fastcgi_param", "in haulier this is `env` in `[pool.NAME]`"),
    ("file_server", "files are served by every site; `root` is enough"),
    (
        "limit_extensions",
        "in haulier this is `script_extensions` in `[site.NAME]`",
    ),
    ("index", "the index follows from `app`"),
    ("keepalive_timeout", "in haulier this is `idle_timeout` in `[limits]`"),
    ("keepalive_requests", "in haulier this stands in `[limits]`"),
    ("listen", "in haulier this is `http` in `[server]`"),
    (
        "port",
        "in haulier this is part of `http` in `[server]`, such as \":8080\"",
    ),
    ("bind", "in haulier this is `http` in `[server]`"),
    ("location", "in haulier this is `[[site.NAME.route]]`"),
    ("handle", "in haulier this is `[[site.NAME.route]]`"),
    ("alias", "in haulier this is `root` in `[[site.NAME.route]]`"),
    ("auth_basic", "in haulier this is `basic_auth` in `[[site.NAME.route]]`"),
    (
        "auth_basic_user_file",
        "in haulier this is `basic_auth` in `[[site.NAME.route]]`",
    ),
    (
        "authuserfile",
        "in haulier this is `basic_auth` in `[[site.NAME.route]]`",
    ),
    ("basicauth", "in haulier this is `basic_auth` in `[[site.NAME.route]]`"),
    (
        "limit_req",
        "in haulier this is `requests_per_ip` in `[limits]`, or `rate` in `[[site.NAME.route]]`",
    ),
    ("error_page", "in haulier this is `errors` of the site"),
    ("errordocument", "in haulier this is `errors` of the site"),
    (
        "php_fastcgi",
        "in haulier PHP is run by `[pool.NAME]` and chosen by `app`",
    ),
    ("php_server", "a site runs PHP by itself; `root` is enough"),
    ("pm.max_children", "in haulier this is `workers` in `[pool.NAME]`"),
    ("max_children", "in haulier this is `workers`"),
    ("max-procs", "in haulier this is `workers` in `[pool.NAME]`"),
    (
        "pm",
        "in haulier this is `workers` in `[pool.NAME]`: a number, or `{ min, max, idle }`",
    ),
    ("pm.start_servers", "in haulier this is `min` in `[pool.NAME.workers]`"),
    (
        "pm.min_spare_servers",
        "in haulier this is `min` in `[pool.NAME.workers]`",
    ),
    (
        "pm.max_spare_servers",
        "in haulier this is `min` in `[pool.NAME.workers]`",
    ),
    ("min-procs", "in haulier this is `min` in `[pool.NAME.workers]`"),
    (
        "pm.process_idle_timeout",
        "in haulier this is `idle` in `[pool.NAME.workers]`",
    ),
    (
        "pm.max_spawn_rate",
        "in haulier this is `spawn_rate` in `[pool.NAME.workers]`",
    ),
    ("process_control_timeout", "in haulier this is `grace` in `[pool.NAME]`"),
    ("php_fcgi_children", "in haulier this is `workers` in `[pool.NAME]`"),
    (
        "php_fcgi_max_requests",
        "in haulier this is `max_requests` in `[pool.NAME]`",
    ),
    (
        "request_slowlog_timeout",
        "in haulier this is `after` in `[pool.NAME.slow]`",
    ),
    ("slowlog", "in haulier this is `log` in `[pool.NAME.slow]`"),
    ("ping.path", "in haulier this is `path` in `[pool.NAME.health]`"),
    ("pm.status_path", "in haulier this is `status` in `[pool.NAME.health]`"),
    ("rlimit_files", "in haulier this is `files` in `[pool.NAME.rlimits]`"),
    ("rlimit_core", "in haulier this is `core` in `[pool.NAME.rlimits]`"),
    ("process.priority", "in haulier this is `nice` in `[pool.NAME]`"),
    (
        "clear_env",
        "PHP sees `env` and what `env_copy` names, and nothing else",
    ),
    ("bin-environment", "in haulier this is `env` in `[pool.NAME]`"),
    ("bin-copy-environment", "in haulier this is `env_copy` in `[pool.NAME]`"),
    (
        "emergency_restart_threshold",
        "a PHP that crashes at its start is started again, ever more slowly",
    ),
    (
        "disable-time",
        "a server that does not answer is left out until it does; see `[pool.NAME.health]`",
    ),
    ("balance", "of several `servers` the least busy one gets the request"),
    (
        "max-load-per-proc",
        "a worker has one request at a time; the others wait in one queue",
    ),
    ("check-local", "a script that does not exist is never sent to PHP"),
    (
        "x-sendfile-docroot",
        "in haulier this is `roots` in `[site.NAME.sendfile]`",
    ),
    ("pm.max_requests", "in haulier this is `max_requests` in `[pool.NAME]`"),
    (
        "request_terminate_timeout",
        "in haulier this is `timeout` in `[pool.NAME]`",
    ),
    ("php_admin_value", "in haulier this is `ini_admin` in `[pool.NAME]`"),
    ("php_admin_flag", "in haulier this is `ini_admin` in `[pool.NAME]`"),
    ("php_flag", "in haulier this is `ini` in `[pool.NAME]`"),
    ("php_value", "in haulier this is `ini` in `[pool.NAME]`"),
    ("bin-path", "in haulier this is `php` in `[pool.NAME]`"),
    ("redir", "in haulier this is `redirects` of the site"),
    (
        "rewrite",
        "in haulier this is `rewrites` of the site, or `front` for a front controller",
    ),
    ("return", "in haulier this is `redirects` of the site"),
    ("server_name", "in haulier this is `hosts`"),
    ("servername", "in haulier this is `hosts`"),
    ("serveralias", "in haulier this is `hosts`"),
    ("domain", "in haulier this is `hosts`"),
    ("host", "in haulier this is `hosts`, a list"),
    (
        "try_files",
        "in haulier the front controller follows from `app`, or is named by `front`: \"/index.php\", or \"/index.html\"",
    ),
    (
        "fallbackresource",
        "in haulier the front controller follows from `app`, or is named by `front`: \"/index.php\", or \"/index.html\"",
    ),
    ("worker_connections", "in haulier this is `connections` in `[limits]`"),
    ("worker_processes", "in haulier this is `threads` in `[server]`"),
    ("expires", "in haulier this is `cache` of the site"),
    ("add_header", "in haulier this is `headers` of the site"),
    ("header", "in haulier this is `headers` of the site"),
];

/// Tables of other servers' configuration → the table here.
static TABLES: &[(&str, &str)] = &[
    ("sites", "in haulier a site is `[site.NAME]`"),
    ("vhost", "in haulier a site is `[site.NAME]`"),
    ("virtualhost", "in haulier a site is `[site.NAME]`"),
    ("pools", "in haulier a pool is `[pool.NAME]`"),
    ("php", "in haulier PHP is set up by `[pool.NAME]`"),
    ("proxy", NO_PROXY),
    ("http", "listen addresses are `http` in `[server]`"),
    ("logging", "in haulier this is `[log]`"),
];

/// Advice for a foreign setting.
pub(super) fn setting(word: &str) -> Option<&'static str> {
    look_up(WORDS, word)
}

/// Advice for a foreign table.
pub(super) fn table(word: &str) -> Option<&'static str> {
    look_up(TABLES, word).or_else(|| setting(word))
}

fn look_up(words: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    words
        .iter()
        .find(|(foreign, _)| foreign.eq_ignore_ascii_case(word))
        .map(|(_, here)| *here)
}
