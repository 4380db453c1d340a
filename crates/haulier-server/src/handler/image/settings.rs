//! What the image service of a site needs to know.

use std::path::PathBuf;
use std::sync::Arc;

use haulier_http::Network;
use haulier_image::{Defaults, Format, Limits, Transform, Workers};
use haulier_proto::field::Fields;
use haulier_store::cache::Tiered;
use haulier_store::{Store, StoreRuntime};

/// How many times longer something may take that nobody waits for.
pub const PATIENCE: u32 = 6;

/// Images of one site: those that are uploaded to it, or those that lie in its document root.
#[derive(Debug)]
pub struct ImageSettings {
    /// Whose clients are to work unchanged.
    pub compat: Compat,
    /// Where originals are kept; `None` takes no uploads.
    pub store: Option<Arc<dyn Store>>,
    /// Paths in the document root that begin so are images to be transformed, with a slash at both ends; `None`: none.
    pub files: Option<String>,
    /// The site has no document root: every path is the service's.
    pub is_alone: bool,
    /// Memory for variants, bytes; 0 keeps none.
    pub memory: u64,
    /// Further caches, the nearest first.
    pub tiers: Tiered,
    /// Who makes variants.
    pub workers: Arc<Workers>,
    /// The thread of stores and caches.
    pub runtime: StoreRuntime,
    /// How a query is read where it says nothing.
    pub defaults: Defaults,
    /// What `f=auto` may choose, the best first.
    pub formats: Vec<Format>,
    /// Those of them that are made behind the first answer, which has the next best.
    pub behind: Vec<Format>,
    /// Who makes those; `None`: nothing is made behind an answer.
    pub patient: Option<Arc<Workers>>,
    /// What an image may cost.
    pub limits: Limits,
    /// Who may upload; empty: nobody.
    pub upload: Vec<Network>,
    /// Who gets images; `None`: everybody.
    pub download: Option<Vec<Network>>,
    /// Who may ask `/admin`; empty: nobody.
    pub admin: Vec<Network>,
    /// What a client shows to delete an image; `None` lets nobody.
    pub token: Option<String>,
    /// What a browser says of its screen chooses sizes, where the address leaves them open.
    pub client_hints: bool,
    /// Variants by name.
    pub presets: Vec<(String, Transform)>,
    /// Nothing else is made.
    pub only_presets: bool,
    /// The sizes there are, ascending: a variant gets the next larger one. Empty: any.
    pub widths: Vec<u32>,
    /// New variants of one original that are kept within a day; 0: all.
    pub variants: usize,
    /// Keys of signed addresses; with any, an address without a signature is for presets only.
    pub sign: Vec<Vec<u8>>,
    /// An image that stands in for one that is missing.
    pub fallback: Option<PathBuf>,
    /// How long clients keep an image of the store: Cache-Control.
    pub cache_control: Option<String>,
    /// Fields the site sets on every response.
    pub fields: Fields,
}

/// Whose clients work unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// Nobody's: statuses mean what they say, and a mistake is told.
    Native,
    /// Those of zimg 3.
    Zimg,
    /// Those of zimg 1, whose two sizes mean something else.
    Zimg1,
}

impl Compat {
    /// Whether answers are zimg's.
    #[must_use]
    pub fn is_zimg(self) -> bool {
        self != Self::Native
    }
}
