//! Every setting, once: its table, name, default and what it is for.
//!
//! A new setting is one entry here, one field in `file.rs` and its meaning in `settings.rs`. The lists in error
//! messages and the reference in docs/config.md come from this table.

use haulier_settings::{Foreign, Language, Table, word};

use super::foreign;

/// The configuration of a server.
pub(crate) static CONFIGURATION: Language = Language {
    name: "configuration",
    tables: TABLES,
    foreign: Some(&Foreign {
        setting: foreign::setting,
        table: foreign::table,
    }),
};

/// The tables at the top of a file.
pub(super) static TOP: Table = Table {
    name: "",
    words: &[
        word(
            "include",
            "[]",
            "Further files, as patterns relative to this file; each adds tables.",
        ),
        word("server", "", "Where to listen, and how to stop."),
        word("log", "", "What is logged, and how it looks."),
        word("limits", "", "Limits and deadlines of connections and requests."),
        word("compress", "", "How bodies are compressed."),
        word("tls", "", "Encryption: versions, certificates and who signs them."),
        word("pool", "", "`[pool.NAME]`: PHP processes."),
        word("site", "", "`[site.NAME]`: a document root with its rules."),
        word("store", "", "`[store.NAME]`: how the bucket of that name is reached."),
    ],
};

pub(super) static SERVER: Table = Table {
    name: "server",
    words: &[
        word(
            "http",
            "\":80\"",
            "Address to listen on, or a list: `:80` is every address, port 0 takes a free one, `unix:/path` is a socket.",
        ),
        word(
            "https",
            "`:443` once a site has TLS",
            "Address to listen on with TLS, or a list; written alone, it gives TLS to every site.",
        ),
        word(
            "http2",
            "true",
            "Speak HTTP/2 with clients that begin with it, and over TLS with those that can.",
        ),
        word(
            "reuse_port",
            "false",
            "Let a second haulier serve the same port, for more connections than one process may hold.",
        ),
        word(
            "defer_accept",
            "true",
            "Take a connection when its first bytes are there; silent ones wait in the kernel.",
        ),
        word(
            "threads",
            "the processors we may use",
            "Threads, each with its own event loop.",
        ),
        word(
            "admin",
            "\"127.0.0.1:4870\"",
            "Address of `/metrics`, `/healthz` and `/api/state.json`: `host:port`, `unix:/path`, or `off`.",
        ),
        word(
            "probes",
            "\"off\"",
            "Address of `/livez` and `/readyz` alone, for balancers and orchestrators: `:9180`, `unix:/path`, or `off`.",
        ),
        word(
            "control",
            "haulier-PORT.sock in the runtime directory",
            "Socket on which `haulier status`, `reload` and `stop` ask.",
        ),
        word("grace", "\"30s\"", "How long running requests may go on after a stop."),
        word(
            "lame_duck",
            "\"0s\"",
            "How long a server that is to stop serves on, while `/readyz` and its answers say that it leaves.",
        ),
        word(
            "spool_dir",
            "\"/var/tmp\"",
            "Directory of the nameless files that hold bodies; not a tmpfs.",
        ),
        word("socket_mode", "\"0666\"", "Permissions of the Unix sockets in `http`."),
        word(
            "trusted_proxies",
            "[]",
            "Addresses and networks of the proxies whose word about a client counts.",
        ),
        word(
            "proxy_protocol",
            "false",
            "Connections of those proxies begin with a PROXY header, version 1 or 2.",
        ),
        word(
            "user",
            "the account that starts it",
            "Root listens, then becomes this account for good; PHP runs as it too.",
        ),
    ],
};

pub(super) static LOG: Table = Table {
    name: "log",
    words: &[
        word(
            "format",
            "\"auto\"",
            "`text`, `json`, `combined` (requests only), or `auto`: text on a terminal, JSON otherwise.",
        ),
        word(
            "access",
            "\"on\"",
            "The access log: `on`, `off`, or `errors` (4xx and 5xx).",
        ),
        word("level", "\"info\"", "`error`, `warn`, `info`, `debug` or `trace`."),
        word(
            "file",
            "standard error",
            "File of the access log; opened anew on SIGUSR1.",
        ),
    ],
};

pub(super) static LIMITS: Table = Table {
    name: "limits",
    words: &[
        word(
            "body",
            "PHP's post_max_size, else \"8MiB\"",
            "Longest request body; 413 beyond.",
        ),
        word(
            "body_spool",
            "\"4GiB\", or twice the largest `body`",
            "What all request bodies together may take in `spool_dir`; 503 beyond.",
        ),
        word("header", "\"32KiB\"", "Longest request head; 431 beyond."),
        word("header_fields", "100", "Most field lines of a request; 431 beyond."),
        word(
            "head_timeout",
            "\"10s\"",
            "From the first byte of a request head to its last.",
        ),
        word(
            "body_timeout",
            "\"15s\"",
            "Longest time without a byte of the request body.",
        ),
        word("idle_timeout", "\"15s\"", "How long an idle connection is kept."),
        word(
            "send_timeout",
            "\"30s\"",
            "Longest time without progress while sending.",
        ),
        word(
            "min_send_rate",
            "100",
            "Bytes a second a client must take of what waits for it, averaged over a minute; 0 is no limit.",
        ),
        word(
            "keepalive_requests",
            "1000",
            "Requests a connection may carry; 1 turns keep-alive off.",
        ),
        word(
            "connections",
            "what the descriptor limit allows",
            "Most open connections; idle ones are closed for new ones, and where none is idle those wait in the kernel.",
        ),
        word(
            "connections_per_ip",
            "512",
            "Most open connections of one client address (IPv6: of a /64); 0 is no limit. Unless it is written, loopback is exempt.",
        ),
        word(
            "requests_per_ip",
            "none",
            "Requests of one client address, over all sites that do not say their own: `\"20/s\"`, `\"100/m burst 20\"`; 429 beyond.",
        ),
        word(
            "h2_streams",
            "100",
            "Streams an HTTP/2 connection may have open; a further one is refused.",
        ),
        word(
            "h2_stream_window",
            "\"64KiB\"",
            "Bytes of a request body an HTTP/2 stream may have under way unread.",
        ),
        word(
            "h2_connection_window",
            "\"1MiB\"",
            "The same for all streams of a connection together.",
        ),
        word(
            "h2_resets",
            "200",
            "Streams of an HTTP/2 connection that may be reset in a minute; more ends it.",
        ),
        word(
            "h2_control_frames",
            "1000",
            "Frames in a minute that carry nothing; more ends the HTTP/2 connection.",
        ),
    ],
};

pub(super) static COMPRESS: Table = Table {
    name: "compress",
    words: &[
        word(
            "level",
            "\"balanced\"",
            "What is dearer, time or bytes: `off`, `fast`, `balanced` or `small`; load lowers it.",
        ),
        word(
            "algorithms",
            "[\"zstd\", \"br\", \"gzip\"]",
            "The codings that are used; size and load decide among those a client likes equally.",
        ),
        word("min_size", "\"256B\"", "Shorter bodies are sent as they are."),
        word(
            "types",
            "a list of text types",
            "Media types that are compressed, such as `\"text/*\"` or `\"*+json\"`, in place of the list.",
        ),
        word("zstd", "by size and load", "A fixed level for zstd, 1 to 19."),
        word("br", "by size and load", "A fixed level for brotli, 0 to 11."),
        word("gzip", "by size and load", "A fixed level for gzip, 1 to 12."),
        word(
            "no_secrets",
            "false",
            "Leave alone what sets a cookie and repeats a part of the query (BREACH).",
        ),
        word(
            "store",
            "\"256MiB\"",
            "Room for compressed copies of files below `spool_dir`; 0 keeps none.",
        ),
    ],
};

pub(super) static TLS: Table = Table {
    name: "tls",
    words: &[
        word(
            "mode",
            "\"auto\"",
            "Where certificates come from: `acme`, `local` (an authority of our own), `off`, or `auto`: `acme` for public names.",
        ),
        word(
            "cert",
            "none",
            "File of a certificate with its chain, for sites without one of their own.",
        ),
        word(
            "key",
            "in the file of `cert`",
            "File of its private key; both are read anew when they change.",
        ),
        word("redirect", "true", "Clients without TLS are sent to `https://`."),
        word(
            "hsts",
            "none",
            "How long browsers shall insist on TLS, such as `\"1y\"`.",
        ),
        word("min", "\"1.2\"", "The oldest version that is spoken: `1.2` or `1.3`."),
        word("email", "none", "Whom the certificate authority writes to."),
        word(
            "directory",
            "\"https://acme-v02.api.letsencrypt.org/directory\"",
            "The certificate authority, by the address of its ACME directory.",
        ),
        word(
            "challenge",
            "\"auto\"",
            "How the authority asks: `http-01` (port 80), `tls-alpn-01` (port 443), or whichever is open.",
        ),
        word(
            "state",
            "/var/lib/haulier, or ~/.local/state/haulier",
            "Directory of the keys and certificates haulier keeps; servers that share names share it.",
        ),
    ],
};

pub(super) static POOL: Table = Table {
    name: "pool.NAME",
    words: &[
        word(
            "workers",
            "max(4, 2 × cores), less on a small machine",
            "PHP processes of the whole pool: a number, or `{ min, max, idle, spawn_rate }`.",
        ),
        word(
            "recycle",
            "{}",
            "`[pool.NAME.recycle]`: when a worker is replaced, always between two requests.",
        ),
        word("max_requests", "1000", "Short for `requests` of `recycle`; 0 is never."),
        word(
            "php",
            "\"auto\"",
            "The php-cgi program; `auto` takes the newest one found.",
        ),
        word("ini", "{}", "php.ini settings of this pool."),
        word(
            "ini_admin",
            "{}",
            "The same, but neither a script nor a .user.ini can change them.",
        ),
        word("env", "{}", "Environment variables PHP sees."),
        word(
            "env_copy",
            "[\"PATH\", \"TZ\", \"LANG\"]",
            "Variables copied from haulier's own environment.",
        ),
        word("user", "\"www-data\" when started as root", "The account PHP runs as."),
        word("group", "the account's own", "The group PHP runs as."),
        word(
            "nice",
            "0",
            "How much less PHP gets of a busy processor, up to 19; below 0 more, as root.",
        ),
        word(
            "rlimits",
            "{}",
            "`[pool.NAME.rlimits]`: what the system allows each PHP process.",
        ),
        word(
            "servers",
            "none: haulier runs PHP",
            "Running FastCGI servers instead: `host:port` or `unix:/path`.",
        ),
        word(
            "balance",
            "\"least_busy\"",
            "Which server gets a request: `least_busy`, or `hash:cookie` (PHPSESSID) or `hash:cookie:NAME` for the same one.",
        ),
        word(
            "connections",
            "32",
            "Requests to each server at a time: its pm.max_children; one less with `keep_conn` or `health`.",
        ),
        word(
            "remote_root",
            "the site's document root",
            "The document root as those servers see it.",
        ),
        word("connect_timeout", "\"1s\"", "Longest time to connect to a server."),
        word(
            "keep_conn",
            "false",
            "Keep connections for further requests, where no script calls fastcgi_finish_request().",
        ),
        word(
            "idle_timeout",
            "\"5s\"",
            "With `keep_conn`, an idle connection to a server is closed after this long.",
        ),
        word(
            "health",
            "none: by refused connections",
            "`[pool.NAME.health]`: whether servers are well, by php-fpm's ping.",
        ),
        word("timeout", "\"60s\"", "Longest time to the response head; then 504."),
        word(
            "body_timeout",
            "as `timeout`",
            "Longest silence of PHP in a response body; event streams have none.",
        ),
        word(
            "queue",
            "\"10s\"",
            "Longest wait for a free worker; then 503 with Retry-After.",
        ),
        word(
            "queue_length",
            "512",
            "Most waiting requests; one more gets 503 at once.",
        ),
        word(
            "grace",
            "as in `[server]`",
            "How long running requests may go on when the pool is to end, if shorter.",
        ),
        word(
            "slow",
            "none",
            "`[pool.NAME.slow]`: a line about each request that takes long.",
        ),
    ],
};

pub(super) static POOL_WORKERS: Table = Table {
    name: "pool.NAME.workers",
    words: &[
        word(
            "min",
            "1",
            "Workers that keep their memory however long they have nothing to do; 0 ends PHP until the next request.",
        ),
        word(
            "max",
            "max(4, 2 × cores), less on a small machine",
            "PHP processes that may work at a time.",
        ),
        word("idle", "\"10s\"", "The others give theirs back after this long."),
        word(
            "spawn_rate",
            "no limit",
            "Most workers put to work within a second; other requests wait for those at work.",
        ),
    ],
};

pub(super) static POOL_RECYCLE: Table = Table {
    name: "pool.NAME.recycle",
    words: &[
        word("requests", "1000", "After this many requests; 0 is never."),
        word(
            "memory",
            "never",
            "When its own memory is more than this after a request.",
        ),
        word("age", "never", "This long after its first request."),
    ],
};

pub(super) static POOL_RLIMITS: Table = Table {
    name: "pool.NAME.rlimits",
    words: &[
        word("files", "as haulier's", "Open files and connections of each process."),
        word(
            "processes",
            "as haulier's",
            "Processes of the account PHP runs as, all together.",
        ),
        word(
            "memory",
            "as haulier's",
            "Address space of each process; keep it well above memory_limit.",
        ),
        word("file_size", "as haulier's", "Longest file a script may write."),
        word("core", "as haulier's", "Longest core dump."),
    ],
};

pub(super) static POOL_HEALTH: Table = Table {
    name: "pool.NAME.health",
    words: &[
        word("path", "required", "The `ping.path` of the php-fpm pools."),
        word(
            "status",
            "none",
            "Their `pm.status_path`: how busy they are with the requests of others, asked with every ping.",
        ),
        word(
            "every",
            "\"5s\"",
            "Time between two pings, and the longest time for an answer.",
        ),
        word(
            "fail",
            "3",
            "Failures in a row that take a server out; a refused connection does at once.",
        ),
        word("recover", "2", "Answers in a row that take it in again."),
    ],
};

pub(super) static POOL_SLOW: Table = Table {
    name: "pool.NAME.slow",
    words: &[
        word(
            "after",
            "\"5s\"",
            "How long a request may keep its worker without a line about it.",
        ),
        word(
            "log",
            "the server's log",
            "A file for these lines, one JSON object each.",
        ),
    ],
};

pub(super) static SITE: Table = Table {
    name: "site.NAME",
    words: &[
        word(
            "root",
            "required, unless `images` has a `store`",
            "The project directory; the document root in it is found by `app`.",
        ),
        word(
            "hosts",
            "[\"*\"]",
            "Host names it answers to: `example.com`, `*.example.com`, or `*`.",
        ),
        word(
            "app",
            "\"auto\"",
            "What the project is: `auto` looks, a name decides, `plain` turns presets off.",
        ),
        word("pool", "the only one", "The pool that runs its PHP."),
        word(
            "front",
            "as `app` says",
            "What answers for every path that is no file: a script such as `/index.php`, or a page such as `/index.html`.",
        ),
        word(
            "canonical",
            "none",
            "The one of `hosts` clients are sent to, or its whole origin: `\"https://example.com\"`.",
        ),
        word(
            "script_extensions",
            "[\".php\"]",
            "Extensions of its scripts. What else looks like PHP neither runs nor leaves as a file.",
        ),
        word("headers", "{}", "Field lines set on every response."),
        word(
            "redirects",
            "{}",
            "Path → path or URL, such as `\"/old/*\" = \"/new/*\"`, or `\"302 /new\"`.",
        ),
        word(
            "rewrites",
            "{}",
            "Path → path that answers unseen, such as `\"/wiki/*\" = \"/index.php?title=*\"`.",
        ),
        word(
            "errors",
            "{}",
            "Status → page in the document root, a file or a script: `404 = \"/404.html\"`.",
        ),
        word(
            "cache",
            "{}",
            "Pattern → how long clients keep it: `\"1y immutable\"`, `\"10m\"`, `\"no-store\"`.",
        ),
        word(
            "etag",
            "\"stat\"",
            "Entity tags of its files: `stat` of size and time, `content` of what is in them, `off` none.",
        ),
        word(
            "charset",
            "\"utf-8\"",
            "What its text files are written in, as their Content-Type says it; `off` names none.",
        ),
        word("deny", "[]", "Patterns of paths nobody gets; 404."),
        word("limits", "{}", "`[site.NAME.limits]`: limits of this site."),
        word(
            "sendfile",
            "{}",
            "`[site.NAME.sendfile]`: files that scripts name and haulier sends.",
        ),
        word(
            "offload",
            "{}",
            "`[site.NAME.offload]`: bodies of scripts that haulier sends as files.",
        ),
        word("log", "{}", "`[site.NAME.log]`: the access log of this site."),
        word(
            "maintenance",
            "none",
            "`[site.NAME.maintenance]`: closes the site while a file exists.",
        ),
        word("route", "none", "`[[site.NAME.route]]`: what holds for some paths."),
        word(
            "compress",
            "{}",
            "`[site.NAME.compress]`: how bodies of this site are compressed.",
        ),
        word(
            "dictionary",
            "{}",
            "`[site.NAME.dictionary]`: what clients have already is not sent again.",
        ),
        word(
            "images",
            "none",
            "`[site.NAME.images]`: uploads of images, and variants of them and of the site's own.",
        ),
        word("tls", "{}", "`[site.NAME.tls]`: the certificate of this site."),
    ],
};

pub(super) static SITE_IMAGES: Table = Table {
    name: "site.NAME.images",
    words: &[
        word(
            "store",
            "none",
            "Where uploads are kept: a directory, `s3://bucket/prefix`, `gs://…` or `az://…`.",
        ),
        word(
            "root",
            "none",
            "Folder of the document root whose images take the parameters too; `\".\"` is all of it.",
        ),
        word(
            "cache",
            "[\"memory:128MiB\"]",
            "Caches, the nearest first: `memory:SIZE`, `disk:PATH:SIZE`, `memcached://HOST:PORT,…`, `redis://HOST:PORT`.",
        ),
        word(
            "compat",
            "\"native\"",
            "Whose clients work unchanged: `zimg`, `zimg_v1`, or `native`: statuses mean what they say.",
        ),
        word(
            "format",
            "`none`; `jpeg` for zimg",
            "Format without `f`: a name, `none` for the original's, `auto` for the best the browser takes.",
        ),
        word(
            "formats",
            "[\"webp\", \"jpeg\"]",
            "What `f=auto` chooses from, the best first.",
        ),
        word(
            "behind",
            "[\"avif\"]",
            "Those of `formats` that are made behind the first answer, which has the next best.",
        ),
        word(
            "quality",
            "75",
            "Quality without `q`, 1 to 100; never above the original's.",
        ),
        word("enlarge", "true", "Images may be made larger than they are."),
        word(
            "metadata",
            "\"none\"",
            "What of an original's metadata its variants have: `copyright` is who made it and whose it is.",
        ),
        word(
            "max_pixels",
            "40000000; 50000000 without `store`",
            "Most pixels of an original, told from its header.",
        ),
        word("max_side", "4096", "Longest side of a variant, pixels."),
        word(
            "widths",
            "any",
            "The sizes there are, such as `[320, 640, 1280]`: what is asked for becomes the next larger one, its ratio stays.",
        ),
        word(
            "client_hints",
            "false",
            "Density and width that a browser says choose sizes the address leaves open; pages ask for them.",
        ),
        word(
            "variants",
            "64",
            "New variants of an image that are kept within a day; more are made but kept nowhere. 0 keeps all.",
        ),
        word(
            "upload",
            "{}",
            "`[site.NAME.images.upload]`: who may upload, and how much.",
        ),
        word(
            "download",
            "everybody",
            "Addresses and networks that get images; 403 for the others.",
        ),
        word(
            "admin",
            "[]",
            "Addresses and networks for which zimg's `/admin` deletes.",
        ),
        word(
            "token",
            "none",
            "What `DELETE /<id>` has to show as `Authorization: Bearer …`; without it nothing is deleted.",
        ),
        word(
            "presets",
            "{}",
            "Name → query: `thumb = \"w=100&h=100\"` is `?t=thumb`.",
        ),
        word(
            "only_presets",
            "false",
            "Nothing but presets is made; 403 for the rest.",
        ),
        word(
            "sign",
            "none",
            "Key of signed addresses, or a list of keys while one is replaced; presets need no signature.",
        ),
        word(
            "fallback",
            "none",
            "File of an image that stands in for one that is missing.",
        ),
        word("workers", "the processors we may use", "Processes that make variants."),
        word("queue", "64", "Variants that may wait for one; 503 beyond."),
        word("timeout", "\"5s\"", "Longest time for one variant."),
    ],
};

pub(super) static SITE_IMAGES_UPLOAD: Table = Table {
    name: "site.NAME.images.upload",
    words: &[
        word(
            "from",
            "[\"127.0.0.0/8\", \"::1\"]",
            "Addresses and networks that may upload.",
        ),
        word("max_size", "\"32MiB\"", "Longest upload; 413 beyond."),
    ],
};

pub(super) static STORE: Table = Table {
    name: "store.NAME",
    words: &[
        word(
            "endpoint",
            "the service's own",
            "Address of the service, such as `https://s3.example.com`.",
        ),
        word("region", "as the environment says", "Region of the bucket."),
        word(
            "key",
            "as the environment says",
            "Access key id; for Azure the account.",
        ),
        word(
            "secret",
            "as the environment says",
            "Secret access key; for Azure the key of the account.",
        ),
        word(
            "options",
            "{}",
            "Anything else, by the names of the crate `object_store`: `google_service_account = \"/etc/key.json\"`.",
        ),
    ],
};

pub(super) static SITE_LIMITS: Table = Table {
    name: "site.NAME.limits",
    words: &[
        word(
            "body",
            "as in `[limits]`",
            "Longest request body of this site; 413 beyond.",
        ),
        word(
            "requests_per_ip",
            "as in `[limits]`",
            "Requests of one client address to this site.",
        ),
        word(
            "body_timeout",
            "as in `[limits]`",
            "Longest time without a byte of a request body of this site; then 408.",
        ),
        word(
            "idle_timeout",
            "as in `[limits]`",
            "How long a connection is kept after an answer of this site.",
        ),
        word(
            "send_timeout",
            "as in `[limits]`",
            "Longest time a client of this site may take nothing; then the connection ends.",
        ),
    ],
};

pub(super) static SITE_MAINTENANCE: Table = Table {
    name: "site.NAME.maintenance",
    words: &[
        word(
            "file",
            "required",
            "While this file exists the site answers 503 with Retry-After.",
        ),
        word("page", "a short page", "Page in the document root that is shown then."),
        word("allow", "[]", "Addresses and networks for which the site stays open."),
        word("retry_after", "\"5m\"", "When clients are told to come back."),
    ],
};

pub(super) static ROUTE: Table = Table {
    name: "site.NAME.route",
    words: &[
        word("path", "required", "The paths it is for, as a pattern."),
        word("pool", "that of the site", "The pool that runs PHP for them."),
        word(
            "root",
            "that of the site",
            "Another project for `/prefix/*`; its paths begin behind the prefix.",
        ),
        word("app", "found, as for a site", "What that project is."),
        word(
            "front",
            "as `app` says",
            "Its front controller, or its page for what is no file.",
        ),
        word("deny", "false", "Nobody gets these paths; 404."),
        word(
            "allow",
            "everybody",
            "Addresses and networks that get them; 403 for the others.",
        ),
        word(
            "basic_auth",
            "none",
            "File of names and passwords as `htpasswd` writes it; `\"off\"` where a wider route has one.",
        ),
        word(
            "rate",
            "none",
            "Requests of one client address to these paths: `\"5/m\"`; 429 beyond.",
        ),
    ],
};

pub(super) static SITE_SENDFILE: Table = Table {
    name: "site.NAME.sendfile",
    words: &[
        word(
            "roots",
            "the project directory",
            "Directories whose files a script may name: X-Sendfile, `zend_send_file()`.",
        ),
        word(
            "map",
            "{}",
            "Prefix of X-Accel-Redirect → directory; without any it is a path in the document root.",
        ),
    ],
};

pub(super) static SITE_OFFLOAD: Table = Table {
    name: "site.NAME.offload",
    words: &[
        word(
            "types",
            "none",
            "Media types of bodies that are taken off PHP, such as `video/*`.",
        ),
        word(
            "extensions",
            "none",
            "The same by extension of the path, or of the name in Content-Disposition.",
        ),
        word("min_size", "\"64KiB\"", "Shorter bodies are left alone."),
        word(
            "memory",
            "\"128MiB\"",
            "What long bodies of the site may take in memory, most of it in pipes of the kernel, before they go to `spool_dir`; `\"0B\"` for none.",
        ),
        word(
            "spool",
            "\"2GiB\"",
            "What all bodies of the site may take in `spool_dir`; beyond it PHP waits for its clients.",
        ),
    ],
};

pub(super) static SITE_LOG: Table = Table {
    name: "site.NAME.log",
    words: &[
        word(
            "format",
            "as in `[log]`",
            "`text`, `json`, `combined` or `auto`: JSON in a file.",
        ),
        word("access", "as in `[log]`", "`on`, `off` or `errors`."),
        word(
            "file",
            "as in `[log]`",
            "File of this site's access log; several sites may share one.",
        ),
    ],
};

pub(super) static SITE_DICTIONARY: Table = Table {
    name: "site.NAME.dictionary",
    words: &[
        word(
            "static",
            "\"off\"",
            "`previous`: earlier versions of `files` are dictionaries of the later ones.",
        ),
        word("files", "[\"*.js\", \"*.css\"]", "Patterns of these files."),
        word(
            "pages",
            "{}",
            "Pattern of pages → public page that looks like them: `\"/wiki/*\" = \"/wiki/Main\"`.",
        ),
    ],
};

pub(super) static SITE_COMPRESS: Table = Table {
    name: "site.NAME.compress",
    words: &[
        word("level", "as in `[compress]`", "`off`, `fast`, `balanced` or `small`."),
        word("algorithms", "as in `[compress]`", "The codings that are used."),
        word("min_size", "as in `[compress]`", "Shorter bodies are sent as they are."),
        word("types", "as in `[compress]`", "Media types that are compressed."),
        word("zstd", "as in `[compress]`", "A fixed level for zstd, 1 to 19."),
        word("br", "as in `[compress]`", "A fixed level for brotli, 0 to 11."),
        word("gzip", "as in `[compress]`", "A fixed level for gzip, 1 to 12."),
        word(
            "no_secrets",
            "as in `[compress]`",
            "Leave alone what sets a cookie and repeats a part of the query.",
        ),
    ],
};

pub(super) static SITE_TLS: Table = Table {
    name: "site.NAME.tls",
    words: &[
        word("mode", "as in `[tls]`", "`auto`, `acme`, `local` or `off`."),
        word(
            "cert",
            "as in `[tls]`",
            "File of the site's certificate with its chain.",
        ),
        word("key", "in the file of `cert`", "File of its private key."),
        word(
            "redirect",
            "as in `[tls]`",
            "Clients without TLS are sent to `https://`.",
        ),
        word("hsts", "as in `[tls]`", "How long browsers shall insist on TLS."),
    ],
};

/// All tables, in the order of the reference.
pub(super) static TABLES: &[&Table] = &[
    &TOP,
    &SERVER,
    &LOG,
    &LIMITS,
    &COMPRESS,
    &TLS,
    &POOL,
    &POOL_WORKERS,
    &POOL_RECYCLE,
    &POOL_RLIMITS,
    &POOL_HEALTH,
    &POOL_SLOW,
    &SITE,
    &SITE_LIMITS,
    &SITE_SENDFILE,
    &SITE_OFFLOAD,
    &SITE_LOG,
    &SITE_MAINTENANCE,
    &ROUTE,
    &SITE_COMPRESS,
    &SITE_IMAGES,
    &SITE_IMAGES_UPLOAD,
    &STORE,
    &SITE_DICTIONARY,
    &SITE_TLS,
];

/// The table of this name, as the reference calls it: `site.NAME.limits`.
pub(super) fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().copied().find(|table| table.name == name)
}

#[cfg(test)]
mod tests {
    use haulier_settings::Word;

    use super::*;

    fn reference() -> String {
        let mut page = String::new();
        for table in &TABLES[1..] {
            let header = if table.name == ROUTE.name {
                format!("[[{}]]", table.name)
            } else {
                format!("[{}]", table.name)
            };
            page.push_str(&format!(
                "### `{header}`\n\n| Setting | Default | Meaning |\n|---|---|---|\n"
            ));
            for word in table.words {
                page.push_str(&format!("| `{}` | {} | {} |\n", word.name, code(word), word.about));
            }
            page.push('\n');
        }
        page
    }

    /// Defaults that can be written as such are set as code.
    fn code(word: &Word) -> String {
        match word.literal_default() {
            Some(_) => format!("`{}`", word.default),
            None => word.default.to_owned(),
        }
    }

    #[test]
    fn the_reference_page_lists_exactly_these_settings() {
        let page = include_str!("../../../../docs/config.md");
        let (_, rest) = page
            .split_once("<!-- reference -->\n\n")
            .expect("docs/config.md marks where its reference begins");
        let (reference_of_page, _) = rest.split_once("<!-- end -->").expect("and where it ends");
        assert_eq!(
            reference_of_page,
            reference(),
            "docs/config.md and words.rs differ; the page should hold the text above"
        );
    }

    #[test]
    fn a_setting_in_the_wrong_table_has_its_homes_elsewhere() {
        assert_eq!(CONFIGURATION.homes_of("grace", &SITE), ["server", "pool.NAME"]);
        assert_eq!(CONFIGURATION.homes_of("connections", &SITE), ["limits", "pool.NAME"]);
        assert!(CONFIGURATION.homes_of("threads", &SERVER).is_empty());
    }
}
