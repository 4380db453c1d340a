//! Responses to requests for an image: at once from memory, else after waiting.

use std::sync::Arc;

use bytes::Bytes;
use haulier_http::{Body, Handler, ImageResult, ImageTimes, Request, Response};
use haulier_image_service::{FoundImage, Opened, OriginalStream, ServiceError, VariantRequest};
use haulier_proto::field::Fields;

use super::failure::{ImageFailure, refuse};
use super::order::VariantOrder;
use super::{ImageWork, Started, wait_for};
use crate::context::RequestContext;
use crate::files;
use crate::images::ImageSite;
use crate::images::answer::{self, VariantSelection, etag};
use crate::site::Site;

/// Starts to respond: at once if the client or memory has the image.
pub(super) fn start(context: &RequestContext<'_>, images: &Arc<ImageSite>, order: VariantOrder) -> Started {
    for (rank, preferred) in order.preferred.iter().enumerate() {
        let selection = order.selection_of(rank, images);
        if let Some(response) = try_immediate(context, images, &order, preferred, selection) {
            return Started::Response(response);
        }
        // A cache on disk or on the network may have it.
        if !images.service.background().is_pending(preferred) {
            return wait_for(ImageWork::Image(order));
        }
    }
    match try_immediate(context, images, &order, &order.request, order.selection(images)) {
        Some(response) => Started::Response(response),
        None => wait_for(ImageWork::Image(order)),
    }
}

/// The response if the client or memory has the variant.
fn try_immediate(
    context: &RequestContext<'_>,
    images: &Arc<ImageSite>,
    order: &VariantOrder,
    request: &VariantRequest,
    selection: VariantSelection,
) -> Option<Response> {
    let head = &context.request.head;
    if let Some(response) = answer::unchanged(head, &etag(request.tag()), &order.frame, selection) {
        return Some(response);
    }
    let (image, until) = images.service.cached(request, context.thread.io.clock.coarse())?;
    let mut response = answer::respond(&image, head, &order.frame, selection);
    response.trace.image = Some(ImageResult::Memory);
    let is_lasting = context.local.is_none() && context.path == head.path() && !selection.temporary;
    if let Some(until) = until.filter(|_| is_lasting) {
        let memo = &context.thread.caches.images;
        memo.note(images, head, &image, &order.frame, selection, until);
    }
    Some(response)
}

/// The response if caches, the store or a rendering have to be waited for.
pub(super) async fn respond(
    site: &Arc<Site>,
    images: &Arc<ImageSite>,
    request: &Request,
    order: VariantOrder,
) -> Response {
    if images.service.is_missing(&order.request.original) {
        return missing(site, images, request, &order).await;
    }
    let mut response = fulfil(images, request, &order).await;
    for fallback in &order.fallbacks {
        match &response {
            Err(error) if error.allows_fallback() => response = fulfil(images, request, fallback).await,
            _ => break,
        }
    }
    match response {
        Ok(response) => response,
        Err(ServiceError::Missing) => missing(site, images, request, &order).await,
        Err(error) => refuse(site, request, &ImageFailure::from(&error)),
    }
}

/// The response to an order. Missing preferred formats are rendered in the background.
async fn fulfil(images: &Arc<ImageSite>, request: &Request, order: &VariantOrder) -> Result<Response, ServiceError> {
    if order.preferred.is_empty() {
        return send(images, request, order, order.request.clone()).await;
    }
    if let Some(response) = preferred(images, request, order).await? {
        return Ok(response);
    }
    let selection = order.selection(images);
    let unchanged = answer::unchanged(&request.head, &etag(order.request.tag()), &order.frame, selection);
    let response = match unchanged {
        Some(response) => response,
        None => send(images, request, order, order.request.clone()).await?,
    };
    for preferred in &order.preferred {
        images.service.background().start(preferred);
    }
    Ok(response)
}

/// The response in the best preferred format that a cache has.
async fn preferred(
    images: &Arc<ImageSite>,
    request: &Request,
    order: &VariantOrder,
) -> Result<Option<Response>, ServiceError> {
    let background = images.service.background();
    for (rank, preferred) in order.preferred.iter().enumerate() {
        if background.is_pending(preferred) {
            continue;
        }
        if let Some(found) = images.service.find(preferred.clone()).await? {
            for missed in &order.preferred[..rank] {
                background.start(missed);
            }
            let selection = order.selection_of(rank, images);
            return Ok(Some(with_image(&found, request, &order.frame, selection)));
        }
    }
    Ok(None)
}

/// The response with one variant, or with an original.
async fn send(
    images: &Arc<ImageSite>,
    request: &Request,
    order: &VariantOrder,
    variant: VariantRequest,
) -> Result<Response, ServiceError> {
    if variant.transform.is_some() {
        let found = images.service.get(variant).await?;
        return Ok(with_image(&found, request, &order.frame, order.selection(images)));
    }
    let etag = etag(variant.tag());
    let range = answer::range_asked(&request.head, &etag).map(Bytes::copy_from_slice);
    let opened = images.service.open(variant, range).await?;
    let selection = order.selection(images);
    Ok(match opened {
        Opened::Image(found) => with_image(&found, request, &order.frame, selection),
        Opened::Whole { format, body, times } => {
            let fields = answer::fields(&etag, format, &order.frame, selection);
            with_stream(200, fields, body, times)
        }
        Opened::Part {
            range,
            total,
            format,
            body,
            times,
        } => {
            let mut fields = answer::fields(&etag, format, &order.frame, selection);
            fields.append("Content-Range", files::content_range(range, total));
            with_stream(206, fields, body, times)
        }
        Opened::Beyond(total) => answer::unsatisfiable(total),
    })
}

fn with_image(found: &FoundImage, request: &Request, frame: &Fields, selection: VariantSelection) -> Response {
    let mut response = answer::respond(&found.image, &request.head, frame, selection);
    response.trace.image = Some(found.source);
    response.trace.image_times = Some(Box::new(found.times));
    response
}

/// The response with an original that is still being received from the store.
fn with_stream(status: u16, fields: Fields, body: OriginalStream, times: ImageTimes) -> Response {
    let mut response = Response::new(status, Handler::Image);
    *response.head.fields_mut() = fields;
    response.body = Body::Stream(Box::new(body));
    response.trace.image = Some(ImageResult::Original);
    response.trace.image_times = Some(Box::new(times));
    response
}

/// The 404, with the site's fallback image if there is one.
async fn missing(site: &Arc<Site>, images: &Arc<ImageSite>, request: &Request, order: &VariantOrder) -> Response {
    let fallback = match images.fallback(&order.request) {
        Some(variant) => send(images, request, order, variant).await.ok(),
        None => None,
    };
    match fallback {
        Some(mut response) => {
            if response.status == 200 {
                response.status = 404;
            }
            // The image may be uploaded at any moment.
            response.head.fields_mut().set("Cache-Control", "no-cache");
            response
        }
        None => refuse(site, request, &ImageFailure::missing()),
    }
}
