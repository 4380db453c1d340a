//! The images of a site: its image service, with the settings and response heads that belong to it.
//!
//! A site holds an [`ImageSite`]; `handler::image` answers the requests.

pub(crate) mod answer;
mod memo;
mod settings;
mod site;

pub(crate) use answer::VariantSelection;
pub(crate) use memo::{Memo, hints};
pub use settings::{Compat, ImageSettings, ImagesTable, UploadTable};
pub use site::ImageSite;
pub(crate) use site::RenderStep;
