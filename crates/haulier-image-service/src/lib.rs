//! The image service of a site, without HTTP: originals in a store, variants in caches, and rendering.
//!
//! [`ImageService`] is the interface. Each part behind it has its own state: `cache` holds images, `originals` reads
//! and checks the store, `render` renders a variant once for all clients that wait for it, `background` renders
//! variants that no client waits for, `upload` stores new originals. README.md follows a variant through them.

mod background;
mod cache;
mod clock;
mod error;
mod image;
mod info;
mod integrity;
mod options;
mod originals;
mod presence;
mod render;
mod request;
mod service;
mod stream;
mod upload;

pub use background::Background;
pub use error::ServiceError;
pub use image::{FoundImage, Image, ImageContent};
pub use info::ImageInfo;
pub use options::{ServiceOptions, ServiceRows};
pub use request::{Original, VariantRequest, original_key};
pub use service::{BACKGROUND_FACTOR, ImageService, Opened, Settings};
pub use stream::OriginalStream;
pub use upload::Stored;
