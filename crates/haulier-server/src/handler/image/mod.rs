//! The HTTP interface of the image service: routes, authorisation, and responses.
//!
//! `api` reads the route, `order` authorises a variant and reads its query, `deliver` gets it from the service and
//! `images::answer` makes the response. `upload` stores images; `manage` describes and deletes them. The images
//! themselves belong to `haulier-image-service`.

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

use self::api::ImageRoute;
use self::failure::{ImageFailure, refuse};
use self::order::VariantOrder;
use crate::context::RequestContext;
use crate::files::FileEntry;
use crate::images::ImageSite;
use crate::site::Site;
use crate::thread::Thread;

pub use self::signature::sign;

/// A request that the handler has accepted.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path: a box would cost it an allocation"
)]
pub(crate) enum Started {
    Response(Response),
    /// The response has to wait.
    Waiting(ImageCall),
}

/// A response that has to wait.
#[derive(Debug)]
pub(crate) struct ImageCall(ImageWork);

#[derive(Debug)]
enum ImageWork {
    Upload,
    Image(VariantOrder),
    Info(Key),
    Delete(Key),
    /// zimg's deletion, with the number of its command.
    Command(Key, i64),
}

fn wait_for(work: ImageWork) -> Started {
    Started::Waiting(ImageCall(work))
}

/// Starts to respond to a path of the image service; `None` if the path belongs to the site.
pub(crate) fn start(context: &RequestContext<'_>) -> Option<Started> {
    let images = context.site.settings.images.as_ref()?;
    if !images.settings.has_store {
        return None;
    }
    if let Some(response) = remembered(context, images) {
        return Some(Started::Response(response));
    }
    let head = &context.request.head;
    let ask = api::read(images.settings.compat, head.method(), context.path, head.path());
    if !images.settings.is_alone && !belongs_to_a_site_too(&ask, context.path) {
        return None;
    }
    Some(match ask {
        ImageRoute::Image(id) => start_image(context, images, &id),
        ImageRoute::Upload => start_upload(context, images),
        ImageRoute::Delete(id) => manage::start_delete(context, images, id),
        ImageRoute::Info => manage::start_info(context, images),
        ImageRoute::Admin => manage::start_admin(context, images),
        ImageRoute::Page => Started::Response(page::respond(images)),
        ImageRoute::Echo => Started::Response(compat::echo()),
        ImageRoute::Favicon => Started::Response(compat::html(200, "")),
        ImageRoute::Methods => {
            Started::Response(Response::new(204, Handler::Image).with("Allow", "GET, HEAD, POST, DELETE, OPTIONS"))
        }
        ImageRoute::Climbing => Started::Response(compat::forbidden()),
        ImageRoute::Nothing => Started::Response(refuse(context.site, context.request, &ImageFailure::missing())),
        ImageRoute::WrongMethod(allow) => {
            let failure = ImageFailure::new(405, "this method is not allowed here");
            Started::Response(refuse(context.site, context.request, &failure).with("Allow", allow))
        }
    })
}

/// The response that this thread has cached for the address.
fn remembered(context: &RequestContext<'_>, images: &ImageSite) -> Option<Response> {
    let head = &context.request.head;
    // A mount, a rewrite or a local redirect has changed the path.
    if context.local.is_some() || context.path != head.path() {
        return None;
    }
    let mut key = context.thread.io.buffers.take();
    let now = context.thread.io.clock.coarse();
    let remembered = context.thread.caches.images.answer(images, head, now, &mut key);
    context.thread.io.buffers.give(key);
    let mut response = remembered?;
    response.trace.image = Some(ImageResult::Memory);
    Some(response)
}

/// True if the service may take the path in a site that has files or scripts as well.
fn belongs_to_a_site_too(ask: &ImageRoute, path: &[u8]) -> bool {
    match ask {
        ImageRoute::Image(_) | ImageRoute::Delete(_) => true,
        ImageRoute::Upload | ImageRoute::WrongMethod(_) => path == b"/upload",
        ImageRoute::Info => path == b"/info",
        _ => false,
    }
}

/// Starts to respond with a variant of a file; `None` if the file is to be sent unchanged.
pub(crate) fn start_file(context: &RequestContext<'_>, entry: &FileEntry) -> Option<Started> {
    let images = context.site.settings.images.as_ref()?;
    let prefix = images.settings.files.as_ref()?;
    let query = context.query.filter(|query| !query.is_empty())?;
    let reads = matches!(context.request.head.method(), Method::Get | Method::Head);
    if !reads || !context.path.starts_with(prefix.as_bytes()) || !entry.content_type.starts_with("image/") {
        return None;
    }
    let order = match order::of_file(context, images, entry, query)? {
        Ok(order) => order,
        Err(failure) => return Some(Started::Response(refuse(context.site, context.request, &failure))),
    };
    Some(deliver::start(context, images, order))
}

fn start_image(context: &RequestContext<'_>, images: &Arc<ImageSite>, id: &Key) -> Started {
    let download = images.settings.download.as_ref();
    let is_refused = download.is_some_and(|networks| !context.comes_from(networks));
    let order = match is_refused {
        true => Err(ImageFailure::new(403, "not allowed from this address")),
        false => order::of_image(context, images, id),
    };
    match order {
        Ok(order) => deliver::start(context, images, order),
        Err(failure) => Started::Response(refuse(context.site, context.request, &failure)),
    }
}

fn start_upload(context: &RequestContext<'_>, images: &ImageSite) -> Started {
    match upload::refusal(context, images) {
        Some(response) => Started::Response(response),
        None => wait_for(ImageWork::Upload),
    }
}

/// The response of a request that has to wait.
pub(crate) async fn respond(thread: &Thread, site: &Arc<Site>, request: &Request, call: ImageCall) -> Response {
    let Some(images) = &site.settings.images else {
        return refuse(site, request, &ImageFailure::missing());
    };
    match call.0 {
        ImageWork::Upload => upload::respond(thread, site, images, request).await,
        ImageWork::Image(order) => deliver::respond(site, images, request, order).await,
        ImageWork::Info(id) => manage::info(site, images, id).await,
        ImageWork::Delete(id) => manage::delete(site, images, request, id).await,
        ImageWork::Command(id, number) => manage::command(images, id, number).await,
    }
}
