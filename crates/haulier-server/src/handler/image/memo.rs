//! What a thread remembers of addresses: the same one, asked again, needs no reading and no hashing.
//!
//! It holds nothing by itself: what the memory cache lets go is gone here too, and what is deleted is not remembered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use haulier_http::Response;
use haulier_image::Hints;
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};

use super::order;
use super::ready::{Ready, Terms};
use super::service::ImageService;

/// Addresses a thread remembers; when there are more it begins anew.
const MOST: usize = 1024;
/// Longer addresses are read each time, bytes.
const LONGEST: usize = 512;

/// The addresses of one thread.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    entries: RefCell<HashMap<Box<[u8]>, Remembered, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct Remembered {
    ready: Weak<Ready>,
    frame: Arc<Fields>,
    terms: Terms,
    /// The image is known to be there until then.
    until: Instant,
    /// Of the service: another one means that something was deleted.
    generation: u64,
}

impl Memo {
    /// The answer for an address that was asked for before. `key` is memory to work in.
    pub(super) fn answer(
        &self,
        service: &ImageService,
        head: &RequestHead,
        now: Instant,
        key: &mut Vec<u8>,
    ) -> Option<Response> {
        if !is_plain(service, head) {
            return None;
        }
        write_key(key, service, head);
        let entries = self.entries.borrow();
        let found = entries.get(key.as_slice())?;
        if now >= found.until || found.generation != service.generation() {
            return None;
        }
        Some(found.ready.upgrade()?.answer(head, &found.frame, found.terms))
    }

    /// Remembers what an address means until a time.
    pub(super) fn note(
        &self,
        service: &ImageService,
        head: &RequestHead,
        ready: &Arc<Ready>,
        frame: &Arc<Fields>,
        terms: Terms,
        until: Instant,
    ) {
        if !is_plain(service, head) || head.target().len() > LONGEST {
            return;
        }
        let mut key = Vec::new();
        write_key(&mut key, service, head);
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= MOST {
            entries.clear();
        }
        let remembered = Remembered {
            ready: Arc::downgrade(ready),
            frame: Arc::clone(frame),
            terms,
            until,
            generation: service.generation(),
        };
        entries.insert(key.into_boxed_slice(), remembered);
    }
}

/// Whether the address alone decides: not where it is signed for a time or meant for some clients, and not for a client
/// that has the image, which may say so in zimg's way.
fn is_plain(service: &ImageService, head: &RequestHead) -> bool {
    matches!(head.method(), Method::Get | Method::Head)
        && service.settings.download.is_none()
        && service.settings.sign.is_empty()
        && head.fields().known(Known::IfNoneMatch).is_none()
}

/// A service that took the place of another one has addresses of its own.
fn write_key(key: &mut Vec<u8>, service: &ImageService, head: &RequestHead) {
    key.clear();
    key.extend_from_slice(&service.number.to_le_bytes());
    key.extend_from_slice(head.target());
    key.push(0);
    key.extend_from_slice(head.fields().get("Accept").unwrap_or_default());
    if service.settings.client_hints {
        let Hints { density, width } = order::hints(head);
        key.push(0);
        key.extend_from_slice(&density.unwrap_or(0).to_le_bytes());
        key.extend_from_slice(&width.unwrap_or(0).to_le_bytes());
    }
}
