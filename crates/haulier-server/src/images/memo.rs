//! Responses that a thread remembers by address: a repeated request needs no parsing and no hashing.
//!
//! It holds no image itself: an image dropped by the memory cache is gone here too.

use std::sync::{Arc, Weak};
use std::time::Instant;

use haulier_http::Response;
use haulier_image::Hints;
use haulier_image_service::Image;
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};

use super::answer::{self, VariantSelection};
use super::site::ImageSite;

/// Longer addresses are parsed each time, bytes.
const LONGEST: usize = 512;

/// The addresses of one thread.
#[derive(Debug, Default)]
pub(crate) struct Memo(haulier_store::Memo<Remembered>);

#[derive(Debug)]
struct Remembered {
    image: Weak<Image>,
    frame: Arc<Fields>,
    selection: VariantSelection,
}

impl Memo {
    /// The response for an address requested before. `key` is a buffer to work in.
    pub(crate) fn answer(
        &self,
        site: &ImageSite,
        head: &RequestHead,
        now: Instant,
        key: &mut Vec<u8>,
    ) -> Option<Response> {
        if !is_plain(site, head) {
            return None;
        }
        write_key(key, site, head);
        self.0.find(key, now, site.service.generation(), |found| {
            let image = found.image.upgrade()?;
            Some(answer::respond(&image, head, &found.frame, found.selection))
        })
    }

    /// Remembers the response for an address until a time.
    pub(crate) fn note(
        &self,
        site: &ImageSite,
        head: &RequestHead,
        image: &Arc<Image>,
        frame: &Arc<Fields>,
        selection: VariantSelection,
        until: Instant,
    ) {
        if !is_plain(site, head) || head.target().len() > LONGEST {
            return;
        }
        let mut key = Vec::new();
        write_key(&mut key, site, head);
        let remembered = Remembered {
            image: Arc::downgrade(image),
            frame: Arc::clone(frame),
            selection,
        };
        self.0.keep(key, remembered, until, site.service.generation());
    }
}

/// True if the address alone decides: not if it is signed for a time or restricted to some clients, nor for a client
/// that has the image, which may revalidate in zimg's way.
fn is_plain(site: &ImageSite, head: &RequestHead) -> bool {
    matches!(head.method(), Method::Get | Method::Head)
        && site.settings.download.is_none()
        && site.settings.sign.is_empty()
        && head.fields().known(Known::IfNoneMatch).is_none()
}

/// The address as a site distinguishes it. A site that replaced another one has its own addresses.
fn write_key(key: &mut Vec<u8>, site: &ImageSite, head: &RequestHead) {
    key.clear();
    key.extend_from_slice(&site.number.to_le_bytes());
    key.extend_from_slice(head.target());
    key.push(0);
    key.extend_from_slice(head.fields().get("Accept").unwrap_or_default());
    if site.settings.client_hints {
        let Hints { density, width } = hints(head);
        key.push(0);
        key.extend_from_slice(&density.unwrap_or(0).to_le_bytes());
        key.extend_from_slice(&width.unwrap_or(0).to_le_bytes());
    }
}

/// The client hints about a screen.
pub(crate) fn hints(head: &RequestHead) -> Hints {
    let text = |name| std::str::from_utf8(head.fields().get(name)?).ok();
    Hints::read(
        text("Sec-CH-DPR").or_else(|| text("DPR")),
        text("Sec-CH-Width").or_else(|| text("Width")),
    )
}
