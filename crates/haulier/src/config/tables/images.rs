//! `[site.NAME.images]` and `[store.NAME]`.

use haulier_server::Compat;
use haulier_settings::settings_table;

const COMPATS: [(&str, Compat); 3] = [
    ("native", Compat::Native),
    ("zimg", Compat::Zimg),
    ("zimg_v1", Compat::Zimg1),
];
/// Whether variants say whose they are.
const METADATA: [(&str, bool); 2] = [("none", false), ("copyright", true)];

settings_table! {
    /// `[site.NAME.images]`
    pub(crate) struct ImagesTable = "site.NAME.images";

    /// Where uploads are kept: a directory, `s3://bucket/prefix`, `gs://…` or `az://…`.
    store: Path else "none";
    /// Folder of the document root whose images take the parameters too; `"."` is all of it.
    root: Text else "none";
    /// Caches, the nearest first: `memory:SIZE`, `disk:PATH:SIZE`, `memcached://HOST:PORT,…`, `redis://HOST:PORT`.
    cache: Texts = ["memory:128MiB"];
    /// Whose clients work unchanged: `zimg`, `zimg_v1`, or `native`: statuses mean what they say.
    compat: Choice(Compat, COMPATS) = "native";
    /// Format without `f`: a name, `none` for the original's, `auto` for the best the browser takes.
    format: Text else "`none`; `jpeg` for zimg";
    /// What `f=auto` chooses from, the best first.
    formats: Texts = ["webp", "jpeg"];
    /// Those of `formats` that are made behind the first answer, which has the next best.
    behind: Texts = ["avif"];
    /// Quality without `q`, 1 to 100; never above the original's.
    quality: Count(1, "1 is the coarsest") = 75;
    /// Images may be made larger than they are.
    enlarge: Flag = true;
    /// What of an original's metadata its variants have: `copyright` is who made it and whose it is.
    metadata: Choice(bool, METADATA) = "none";
    /// Most pixels of an original, told from its header.
    max_pixels: Count(1, "every image has one") else "40000000; 50000000 without `store`";
    /// Longest side of a variant, pixels.
    max_side: Count(1, "every image has one pixel") = 4096;
    /// The sizes there are, such as `[320, 640, 1280]`: what is asked for becomes the next larger one, its ratio stays.
    widths: Counts(1, "every image has one pixel") else "any";
    /// Density and width that a browser says choose sizes the address leaves open; pages ask for them.
    client_hints: Flag = false;
    /// New variants of an image that are kept within a day; more are made but kept nowhere. 0 keeps all.
    variants: Count(0, "0 keeps all") = 64;
    /// `[site.NAME.images.upload]`: who may upload, and how much.
    upload: Table(UploadTable) = {};
    /// Addresses and networks that get images; 403 for the others.
    download: Texts else "everybody";
    /// Addresses and networks for which zimg's `/admin` deletes.
    admin: Texts = [];
    /// What `DELETE /<id>` has to show as `Authorization: Bearer …`; without it nothing is deleted.
    token: Text else "none";
    /// Name → query: `thumb = "w=100&h=100"` is `?t=thumb`.
    presets: Pairs = {};
    /// Nothing but presets is made; 403 for the rest.
    only_presets: Flag = false;
    /// Key of signed addresses, or a list of keys while one is replaced; presets need no signature.
    sign: TextOrTexts else "none";
    /// File of an image that stands in for one that is missing.
    fallback: Path else "none";
    /// Processes that make variants.
    workers: Count(1, "somebody has to do the work") else "the processors we may use";
    /// Variants that may wait for one; 503 beyond.
    queue: Count(0, "0 lets nobody wait") = 64;
    /// Longest time for one variant.
    timeout: Deadline = "5s";
}

settings_table! {
    /// `[site.NAME.images.upload]`
    pub(crate) struct UploadTable = "site.NAME.images.upload";

    /// Addresses and networks that may upload.
    from: Texts = ["127.0.0.0/8", "::1"];
    /// Longest upload; 413 beyond.
    max_size: Size(1) = "32MiB";
}

settings_table! {
    /// `[store.NAME]`
    pub(crate) struct StoreTable = "store.NAME";

    /// Address of the service, such as `https://s3.example.com`.
    endpoint: Text else "the service's own";
    /// Region of the bucket.
    region: Text else "as the environment says";
    /// Access key id; for Azure the account.
    key: Text else "as the environment says";
    /// Secret access key; for Azure the key of the account.
    secret: Text else "as the environment says";
    /// Anything else, by the names of the crate `object_store`: `google_service_account = "/etc/key.json"`.
    options: Pairs = {};
}
