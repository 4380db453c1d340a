//! `[site.NAME]` and the tables below it, except those of compression, images and TLS.

use haulier_server::EntityTags;
use haulier_settings::settings_table;

use super::compress::{DictionaryTable, SiteCompressTable};
use super::images::ImagesTable;
use super::server::{ACCESSES, FORMATS};
use super::tls::SiteTlsTable;
use crate::log::{Access, Format};

const ENTITY_TAGS: [(&str, EntityTags); 3] = [
    ("stat", EntityTags::Stat),
    ("content", EntityTags::Content),
    ("off", EntityTags::Off),
];

settings_table! {
    /// `[site.NAME]`
    pub(crate) struct SiteTable = "site.NAME";

    /// The project directory; the document root in it is found by `app`.
    root: Path else "required, unless `images` has a `store`";
    /// Host names it answers to: `example.com`, `*.example.com`, or `*`.
    hosts: Texts = ["*"];
    /// What the project is: `auto` looks, a name decides, `plain` turns presets off.
    app: Text = "auto";
    /// The pool that runs its PHP.
    pool: Text else "the only one";
    /// What answers for every path that is no file: a script such as `/index.php`, or a page such as `/index.html`.
    front: Text else "as `app` says";
    /// The one of `hosts` clients are sent to, or its whole origin: `"https://example.com"`.
    canonical: Text else "none";
    /// Extensions of its scripts. What else looks like PHP neither runs nor leaves as a file.
    script_extensions: Texts = [".php"];
    /// Field lines set on every response.
    headers: Pairs = {};
    /// Path → path or URL, such as `"/old/*" = "/new/*"`, or `"302 /new"`.
    redirects: Pairs = {};
    /// Path → path that answers unseen, such as `"/wiki/*" = "/index.php?title=*"`.
    rewrites: Pairs = {};
    /// Status → page in the document root, a file or a script: `404 = "/404.html"`.
    errors: Pairs = {};
    /// Pattern → how long clients keep it: `"1y immutable"`, `"10m"`, `"no-store"`.
    cache: Pairs = {};
    /// Entity tags of its files: `stat` of size and time, `content` of what is in them, `off` none.
    etag: Choice(EntityTags, ENTITY_TAGS) = "stat";
    /// What its text files are written in, as their Content-Type says it; `off` names none.
    charset: Text = "utf-8";
    /// Patterns of paths nobody gets; 404.
    deny: Texts = [];
    /// `[site.NAME.limits]`: limits of this site.
    limits: Table(SiteLimitsTable) = {};
    /// `[site.NAME.sendfile]`: files that scripts name and haulier sends.
    sendfile: Table(SendfileTable) = {};
    /// `[site.NAME.offload]`: bodies of scripts that haulier sends as files.
    offload: Table(OffloadTable) = {};
    /// `[site.NAME.log]`: the access log of this site.
    log: Table(SiteLogTable) = {};
    /// `[site.NAME.maintenance]`: closes the site while a file exists.
    maintenance: Table(MaintenanceTable) else "none";
    /// `[[site.NAME.route]]`: what holds for some paths.
    route: Tables(RouteTable) else "none";
    /// `[site.NAME.compress]`: how bodies of this site are compressed.
    compress: Table(SiteCompressTable) = {};
    /// `[site.NAME.dictionary]`: what clients have already is not sent again.
    dictionary: Table(DictionaryTable) = {};
    /// `[site.NAME.images]`: uploads of images, and variants of them and of the site's own.
    images: Table(ImagesTable) else "none";
    /// `[site.NAME.tls]`: the certificate of this site.
    tls: Table(SiteTlsTable) = {};
}

settings_table! {
    /// `[site.NAME.limits]`
    pub(crate) struct SiteLimitsTable = "site.NAME.limits";

    /// Longest request body of this site; 413 beyond.
    body: Size(0) else "as in `[limits]`";
    /// Requests of one client address to this site.
    requests_per_ip: Rate else "as in `[limits]`";
    /// Longest time without a byte of a request body of this site; then 408.
    body_timeout: Deadline else "as in `[limits]`";
    /// How long a connection is kept after an answer of this site.
    idle_timeout: Deadline else "as in `[limits]`";
    /// Longest time a client of this site may take nothing; then the connection ends.
    send_timeout: Deadline else "as in `[limits]`";
}

settings_table! {
    /// `[site.NAME.sendfile]`
    pub(crate) struct SendfileTable = "site.NAME.sendfile";

    /// Directories whose files a script may name: X-Sendfile, `zend_send_file()`.
    roots: Paths else "the project directory";
    /// Prefix of X-Accel-Redirect → directory; without any it is a path in the document root.
    map: Pairs = {};
}

settings_table! {
    /// `[site.NAME.offload]`
    pub(crate) struct OffloadTable = "site.NAME.offload";

    /// Media types of bodies that are taken off PHP, such as `video/*`.
    types: Texts else "none";
    /// The same by extension of the path, or of the name in Content-Disposition.
    extensions: Texts else "none";
    /// Shorter bodies are left alone.
    min_size: Size(0) = "64KiB";
    /// What long bodies of the site may take in memory, most of it in pipes of the kernel, before they go to
    /// `spool_dir`; `"0B"` for none.
    memory: Size(0) = "128MiB";
    /// What all bodies of the site may take in `spool_dir`; beyond it PHP waits for its clients.
    spool: Size(0) = "2GiB";
}

settings_table! {
    /// `[site.NAME.log]`
    pub(crate) struct SiteLogTable = "site.NAME.log";

    /// `text`, `json`, `combined` or `auto`: JSON in a file.
    format: Choice(Format, FORMATS) else "as in `[log]`";
    /// `on`, `off` or `errors`.
    access: Choice(Access, ACCESSES) else "as in `[log]`";
    /// File of this site's access log; several sites may share one.
    file: Path else "as in `[log]`";
}

settings_table! {
    /// `[site.NAME.maintenance]`
    pub(crate) struct MaintenanceTable = "site.NAME.maintenance";

    /// While this file exists the site answers 503 with Retry-After.
    file: Path else "required";
    /// Page in the document root that is shown then.
    page: Text else "a short page";
    /// Addresses and networks for which the site stays open.
    allow: Texts = [];
    /// When clients are told to come back.
    retry_after: Deadline = "5m";
}

settings_table! {
    /// `[[site.NAME.route]]`
    pub(crate) struct RouteTable = "site.NAME.route";

    /// The paths it is for, as a pattern.
    path: Text else "required";
    /// The pool that runs PHP for them.
    pool: Text else "that of the site";
    /// Another project for `/prefix/*`; its paths begin behind the prefix.
    root: Path else "that of the site";
    /// What that project is.
    app: Text else "found, as for a site";
    /// Its front controller, or its page for what is no file.
    front: Text else "as `app` says";
    /// Nobody gets these paths; 404.
    deny: Flag = false;
    /// Addresses and networks that get them; 403 for the others.
    allow: Texts else "everybody";
    /// File of names and passwords as `htpasswd` writes it; `"off"` where a wider route has one.
    basic_auth: Path else "none";
    /// Requests of one client address to these paths: `"5/m"`; 429 beyond.
    rate: Rate else "none";
}
