//! Settings of the HTTP face of the image service.

use std::path::PathBuf;

use haulier_http::Network;
use haulier_image::{Defaults, Format, Limits, Transform};
use haulier_proto::field::Fields;

/// The images of one site: uploads, images of its document root, or both.
#[derive(Debug)]
pub struct ImageSettings {
    /// The server whose clients work unchanged.
    pub compat: Compat,
    /// There is a store of originals; without it no uploads are taken.
    pub has_store: bool,
    /// Prefix of the images in the document root that may be transformed, with a slash at both ends.
    pub files: Option<String>,
    /// The site has no document root: every path is the service's.
    pub is_alone: bool,
    /// Parameters that a query leaves open.
    pub defaults: Defaults,
    /// The formats for `f=auto`, the best first.
    pub formats: Vec<Format>,
    /// The cost an image may have.
    pub limits: Limits,
    /// Addresses that may upload; empty: none.
    pub upload: Vec<Network>,
    /// Addresses that get images; `None`: all.
    pub download: Option<Vec<Network>>,
    /// Addresses that may use `/admin`; empty: none.
    pub admin: Vec<Network>,
    /// The token that a client sends to delete an image; without it no image is deleted.
    pub token: Option<String>,
    /// Client hints choose the sizes that an address leaves open.
    pub client_hints: bool,
    /// Transforms by name.
    pub presets: Vec<(String, Transform)>,
    /// Other transforms are refused.
    pub only_presets: bool,
    /// The allowed sizes, ascending: a variant gets the next larger one. Empty: any.
    pub widths: Vec<u32>,
    /// Keys of signed addresses; with a key, an address without a signature gets presets only.
    pub sign: Vec<Vec<u8>>,
    /// The image that stands in for missing ones.
    pub fallback: Option<PathBuf>,
    /// Cache-Control of the images in the store.
    pub cache_control: Option<String>,
    /// Fields the site sets on every response.
    pub fields: Fields,
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
    /// Tells whether responses are zimg's.
    #[must_use]
    pub fn is_zimg(self) -> bool {
        self != Self::Native
    }
}
