//! The HTTP face of the image service: routes, authorisation, and responses.
//!
//! `api` reads the route, `order` authorises a variant and reads its query, `deliver` gets it from the service and
//! `images::answer` makes the response. `upload` takes images in, `manage` tells about them and deletes them. Images themselves are the
//! business of `haulier-image-service`.

mod api;
mod compat;
mod deliver;
mod failure;
mod manage;
mod multipart;
mod order;
mod page;
mod signature;
mod upload;

use std::sync::Arc;

use haulier_http::{Handler, ImageResult, Request, Response};
use haulier_proto::head::Method;
use haulier_store::Key;

use self::api::Ask;
use self::failure::{Failure, refuse};
use self::order::Order;
use crate::context::Visit;
use crate::files::Entry;
use crate::images::ImageSite;
use crate::site::Site;
use crate::thread::Thread;

pub use self::signature::sign;

/// A request that the handler took.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path: a box would cost it an allocation"
)]
pub(crate) enum Started {
    Response(Response),
    /// The response needs waiting.
    Waiting(Call),
}

/// Work to wait for.
#[derive(Debug)]
pub(crate) struct Call(Work);

#[derive(Debug)]
enum Work {
    Upload,
    Image(Order),
    Info(Key),
    Delete(Key),
    /// zimg's way to delete, with the number of its command.
    Command(Key, i64),
}

fn wait_for(work: Work) -> Started {
    Started::Waiting(Call(work))
}

/// Starts to answer a path of the image service; `None` if the path belongs to the site.
pub(crate) fn start(visit: &Visit<'_>) -> Option<Started> {
    let images = visit.site.settings.images.as_ref()?;
    if !images.settings.has_store {
        return None;
    }
    if let Some(response) = remembered(visit, images) {
        return Some(Started::Response(response));
    }
    let head = &visit.request.head;
    let ask = api::read(images.settings.compat, head.method(), visit.path, head.path());
    if !images.settings.is_alone && !belongs_to_a_site_too(&ask, visit.path) {
        return None;
    }
    Some(match ask {
        Ask::Image(id) => start_image(visit, images, &id),
        Ask::Upload => start_upload(visit, images),
        Ask::Delete(id) => manage::start_delete(visit, images, id),
        Ask::Info => manage::start_info(visit, images),
        Ask::Admin => manage::start_admin(visit, images),
        Ask::Page => Started::Response(page::respond(images)),
        Ask::Echo => Started::Response(compat::echo()),
        Ask::Favicon => Started::Response(compat::html(200, "")),
        Ask::Methods => {
            Started::Response(Response::new(204, Handler::Image).with("Allow", "GET, HEAD, POST, DELETE, OPTIONS"))
        }
        Ask::Climbing => Started::Response(compat::forbidden()),
        Ask::Nothing => Started::Response(refuse(visit.site, visit.request, &Failure::missing())),
        Ask::WrongMethod(allow) => {
            let failure = Failure::new(405, "this method means nothing here");
            Started::Response(refuse(visit.site, visit.request, &failure).with("Allow", allow))
        }
    })
}

/// The response that this thread remembers for the address.
fn remembered(visit: &Visit<'_>, images: &ImageSite) -> Option<Response> {
    let head = &visit.request.head;
    // A mounted site, a rewrite or a local redirect asks for another path than the address.
    if visit.local.is_some() || visit.path != head.path() {
        return None;
    }
    let mut key = visit.thread.io.buffers.take();
    let now = visit.thread.io.clock.coarse();
    let remembered = visit.thread.caches.images.answer(images, head, now, &mut key);
    visit.thread.io.buffers.give(key);
    let mut response = remembered?;
    response.trace.image = Some(ImageResult::Memory);
    Some(response)
}

/// In a site that has files or scripts as well, the service takes only what can be nothing else.
fn belongs_to_a_site_too(ask: &Ask, path: &[u8]) -> bool {
    match ask {
        Ask::Image(_) | Ask::Delete(_) => true,
        Ask::Upload | Ask::WrongMethod(_) => path == b"/upload",
        Ask::Info => path == b"/info",
        _ => false,
    }
}

/// Starts to answer a file of the document root with a variant of it; `None` if the file is sent as it is.
pub(crate) fn start_file(visit: &Visit<'_>, entry: &Entry) -> Option<Started> {
    let images = visit.site.settings.images.as_ref()?;
    let prefix = images.settings.files.as_ref()?;
    let query = visit.query.filter(|query| !query.is_empty())?;
    let reads = matches!(visit.request.head.method(), Method::Get | Method::Head);
    if !reads || !visit.path.starts_with(prefix.as_bytes()) || !entry.content_type.starts_with("image/") {
        return None;
    }
    let order = match order::of_file(visit, images, entry, query)? {
        Ok(order) => order,
        Err(failure) => return Some(Started::Response(refuse(visit.site, visit.request, &failure))),
    };
    Some(deliver::start(visit, images, order))
}

fn start_image(visit: &Visit<'_>, images: &Arc<ImageSite>, id: &Key) -> Started {
    let download = images.settings.download.as_ref();
    let is_refused = download.is_some_and(|networks| !visit.comes_from(networks));
    let order = match is_refused {
        true => Err(Failure::new(403, "not for this address")),
        false => order::of_image(visit, images, id),
    };
    match order {
        Ok(order) => deliver::start(visit, images, order),
        Err(failure) => Started::Response(refuse(visit.site, visit.request, &failure)),
    }
}

fn start_upload(visit: &Visit<'_>, images: &ImageSite) -> Started {
    match upload::refusal(visit, images) {
        Some(response) => Started::Response(response),
        None => wait_for(Work::Upload),
    }
}

/// The response that needs waiting.
pub(crate) async fn respond(thread: &Thread, site: &Arc<Site>, request: &Request, call: Call) -> Response {
    let Some(images) = &site.settings.images else {
        return refuse(site, request, &Failure::missing());
    };
    match call.0 {
        Work::Upload => upload::respond(thread, site, images, request).await,
        Work::Image(order) => deliver::respond(site, images, request, order).await,
        Work::Info(id) => manage::info(site, images, id).await,
        Work::Delete(id) => manage::delete(site, images, request, id).await,
        Work::Command(id, number) => manage::command(images, id, number).await,
    }
}
