//! Settings of `[site.NAME.images]`, and those of responses with images.

use std::path::PathBuf;

use haulier_http::Network;
use haulier_image::{Defaults, Format, Limits, Transform};
use haulier_image_service::ServiceRows;
use haulier_settings::settings_table;

const COMPATS: [(&str, Compat); 3] = [
    ("native", Compat::Native),
    ("zimg", Compat::Zimg),
    ("zimg_v1", Compat::Zimg1),
];
/// `metadata`: variants keep the copyright of the original.
const METADATA: [(&str, bool); 2] = [("none", false), ("copyright", true)];

settings_table! {
    /// `[site.NAME.images]`
    pub struct ImagesTable = "site.NAME.images" =>

    /// The images of one site: uploads, images of its document root, or both.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ImageSettings {
        /// There is a store of originals; without it no uploads are taken.
        has_store: bool = false;
        /// Prefix of the images in the document root that may be transformed, with a slash at both ends.
        files: Option<String> = None;
        /// The site has no document root: every path is the service's.
        is_alone: bool = false;
        /// Parameters that a query leaves open.
        defaults: Defaults = Defaults::default();
        /// The formats for `f=auto`, the best first.
        formats: Vec<Format> = vec![Format::WebP, Format::Jpeg];
        /// The cost an image may have.
        limits: Limits = Limits::default();
        /// Addresses that may upload; empty: none.
        upload: Vec<Network> = Vec::new();
        /// Addresses that get images; `None`: all.
        download: Option<Vec<Network>> = None;
        /// Addresses that may use `/admin`; empty: none.
        admin: Vec<Network> = Vec::new();
        /// The token that a client sends to delete an image; without it no image is deleted.
        token: Option<String> = None;
        /// Transforms by name.
        presets: Vec<(String, Transform)> = Vec::new();
        /// The allowed sizes, ascending: a variant gets the next larger one. Empty: any.
        widths: Vec<u32> = Vec::new();
        /// Keys of signed addresses; with a key, an address without a signature gets presets only.
        sign: Vec<Vec<u8>> = Vec::new();
        /// The image that stands in for missing ones.
        fallback: Option<PathBuf> = None;
        /// Cache-Control of the images in the store.
        cache_control: Option<String> = None;
        /// Fields the site sets on every response.
        headers: Vec<(String, String)> = Vec::new();
    }

    /// Store of uploads: a directory, `s3://bucket/prefix`, `gs://…` or `az://…`.
    store: Path else "none";
    /// Folder of the document root whose images take the parameters too; `"."` is the whole root.
    root: Text else "none";
    /// Caches, the nearest first: `memory:SIZE`, `disk:PATH:SIZE`, `memcached://HOST:PORT,…`, `redis://HOST:PORT`.
    cache: Texts = ["memory:128MiB"];
    /// Server whose clients work unchanged: `zimg`, `zimg_v1`, or `native`, with statuses by RFC 9110.
    compat: Choice(Compat, COMPATS) -> Compat = "native";
    /// Format without `f`: a name, `none` for the original's, `auto` for the best that the browser accepts.
    format: Text else "`none`; `jpeg` for zimg";
    /// Formats for `f=auto`, the best first.
    formats: Texts = ["webp", "jpeg"];
    /// Those of `formats` that are rendered in the background, after a response in the next best format.
    behind: Texts = ["avif"];
    /// Quality without `q`, 1 to 100; never above the original's.
    quality: Count(1, "1 is the coarsest") = 75;
    /// Allows variants larger than the original.
    enlarge: Flag = true;
    /// Metadata of the original that variants keep: `copyright` is its author and owner.
    metadata: Choice(bool, METADATA) = "none";
    /// Most pixels of an original, by its header.
    max_pixels: Count(1, "every image has one") else "40000000; 50000000 without `store`";
    /// Longest side of a variant, pixels.
    max_side: Count(1, "every image has one pixel") = 4096;
    /// Allowed sizes, such as `[320, 640, 1280]`: a request gets the next larger one with its own ratio.
    widths: Counts(1, "every image has one pixel") else "any";
    /// Client hints for density and width choose sizes that the address leaves open; pages request them.
    client_hints: Flag -> bool = false;
    /// Settings that the image service takes as written.
    service: Rows(ServiceRows);
    /// `[site.NAME.images.upload]`: who may upload, and how much.
    upload: Table(UploadTable) = {};
    /// Addresses and networks that get images; 403 for the others.
    download: Texts else "everybody";
    /// Addresses and networks for which zimg's `/admin` deletes.
    admin: Texts = [];
    /// Token for `DELETE /<id>`, sent as `Authorization: Bearer …`; without it nothing is deleted.
    token: Text else "none";
    /// Name → query: `thumb = "w=100&h=100"` is `?t=thumb`.
    presets: Pairs = {};
    /// Allows presets only; 403 for others.
    only_presets: Flag -> bool = false;
    /// Key of signed addresses, or a list of keys while one is replaced; presets need no signature.
    sign: TextOrTexts else "none";
    /// Image file to send in place of a missing one.
    fallback: Path else "none";
    /// Processes that render variants.
    workers: Count(1, "somebody has to do the work") else "the processors we may use";
    /// Variants that may wait for a process; 503 beyond.
    queue: Count(0, "0 lets nobody wait") = 64;
    /// Longest time for one variant.
    timeout: Deadline = "5s";
}

settings_table! {
    /// `[site.NAME.images.upload]`
    pub struct UploadTable = "site.NAME.images.upload";

    /// Addresses and networks that may upload.
    from: Texts = ["127.0.0.0/8", "::1"];
    /// Longest upload; 413 beyond.
    max_size: Size(1) = "32MiB";
}

/// The server whose clients work unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// None: statuses follow RFC 9110, and errors are explained.
    Native,
    /// zimg 3.
    Zimg,
    /// zimg 1, which reads the two sizes differently.
    Zimg1,
}

impl Compat {
    /// True if responses are zimg's.
    #[must_use]
    pub fn is_zimg(self) -> bool {
        self != Self::Native
    }
}
