//! `[site.NAME]` and the tables below it that the server does not declare itself.

use haulier_server::{FileRows, ImagesTable, MaintenanceTable, OffloadTable, RouteTable, SiteCompressTable, SiteRows};
use haulier_settings::settings_table;

use super::dictionary::DictionaryTable;
use super::tls::SiteTlsTable;
use crate::log::SiteLogTable;

settings_table! {
    /// `[site.NAME]`
    pub(crate) struct SiteTable = "site.NAME";

    /// The project directory; the document root in it is found by `app`.
    root: Path else "required, unless `images` has a `store`";
    /// Host names it answers to: `example.com`, `*.example.com`, or `*`.
    hosts: Texts = ["*"];
    /// Kind of the project: `auto` looks, a name decides, `plain` turns presets off.
    app: Text = "auto";
    /// The pool that runs its PHP.
    pool: Text else "the only one";
    /// The script or page that answers for every path that is no file, such as `/index.php` or `/index.html`.
    front: Text else "as `app` says";
    /// The script that stays booted and takes one request after the other (worker mode), such as `public/index.php`.
    worker: Path else "none: every request boots the application";
    /// The names of the site, the fields of its responses, and where paths lead.
    rules: Rows(SiteRows);
    /// Its files.
    files: Rows(FileRows);
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
    /// Longest time that a connection is kept after an answer of this site.
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
