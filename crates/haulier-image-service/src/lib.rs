//! The image service of a site, without its HTTP face: originals in a store, variants in caches, and rendering in between.
//!
//! [`ImageService`] is the door. Behind it each part has its own state: `cache` holds images, `originals` reads and
//! checks what the store has, `render` makes a variant once for all clients that want it, `background` makes the ones
//! that no client waits for, `upload` takes new originals in. README.md follows a variant through them.

mod background;
mod cache;
mod clock;
mod error;
mod image;
mod info;
mod integrity;
mod originals;
mod presence;
mod render;
mod request;
mod service;
mod stream;
mod upload;

pub use background::Background;
pub use error::ServiceError;
pub use image::{ImageContent, FoundImage, Image};
pub use info::ImageInfo;
pub use request::{Original, VariantRequest, original_key};
pub use service::{BACKGROUND_FACTOR, ImageService, Opened, Settings};
pub use stream::OriginalStream;
pub use upload::Stored;
