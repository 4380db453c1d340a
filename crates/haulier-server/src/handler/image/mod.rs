//! Images: uploads, variants of them and of a site's own files, and what zimg's clients ask for.
//!
//! `api` reads what is asked for, `order` what a query means, `service` gets it from a cache, the store or the workers,
//! `originals` compares what it is made of, `ready` answers with it; `upload` takes images in. What is in memory is
//! answered at once; everything else waits on the runtime's thread (`flight`), once for all who want the same.

mod api;
mod compat;
mod failure;
mod memo;
mod multipart;
mod order;
mod originals;
mod page;
mod ready;
mod service;
pub(crate) mod settings;
mod signature;
mod stream;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{Body, Handler, ImageResult, ImageTimes, Reason, Request, Response};
use haulier_image::Format;
use haulier_proto::field::Fields;
use haulier_proto::head::Method;
use haulier_store::Key;

use self::api::Ask;
use self::compat::{Admin, Code};
use self::failure::Failure;
use self::order::Order;
use self::ready::Terms;
use self::service::{Made, Opened, Wanted};
use self::settings::Compat;
use self::stream::OriginalStream;
use crate::answer::error_page;
use crate::clock::now;
use crate::context::Visit;
use crate::files::Entry;
use crate::site::Site;
use crate::thread::Thread;

pub(crate) use self::memo::Memo;
pub use self::service::ImageService;
pub(crate) use self::service::Step;
pub use self::service::original_key;
pub use self::signature::sign;

/// What the service makes of a request.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path: a box would cost it an allocation"
)]
pub(crate) enum Begun {
    Response(Response),
    /// Known only after waiting.
    Later(Call),
}

/// What is to be waited for.
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

fn later(work: Work) -> Begun {
    Begun::Later(Call(work))
}

/// Begins to answer a path that is the service's; `None` if it is the site's.
pub(crate) fn begin(visit: &Visit<'_>) -> Option<Begun> {
    let service = visit.site.settings.images.as_ref()?;
    let settings = &service.settings;
    settings.store.as_ref()?;
    let head = &visit.request.head;
    // A place within the site, a rewrite or a local redirect asks for another path than the address says.
    if visit.local.is_none() && visit.path == head.path() {
        let mut key = visit.thread.io.buffers.take();
        let now = visit.thread.io.clock.coarse();
        let remembered = visit.thread.caches.images.answer(service, head, now, &mut key);
        visit.thread.io.buffers.give(key);
        if let Some(mut response) = remembered {
            response.trace.image = Some(ImageResult::Memory);
            return Some(Begun::Response(response));
        }
    }
    let ask = api::read(settings.compat, head.method(), visit.path, head.path());
    if !settings.is_alone && !belongs_to_a_site_too(&ask, visit.path) {
        return None;
    }
    Some(match ask {
        Ask::Image(id) => begin_image(visit, service, &id),
        Ask::Upload => begin_upload(visit, service),
        Ask::Delete(id) => begin_delete(visit, service, id),
        Ask::Info => begin_info(visit, service),
        Ask::Admin => begin_admin(visit, service),
        Ask::Page => Begun::Response(page::respond(service)),
        Ask::Echo => Begun::Response(compat::echo()),
        Ask::Favicon => Begun::Response(compat::html(200, "")),
        Ask::Methods => {
            Begun::Response(Response::new(204, Handler::Image).with("Allow", "GET, HEAD, POST, DELETE, OPTIONS"))
        }
        Ask::Climbing => Begun::Response(compat::forbidden()),
        Ask::Nothing => Begun::Response(refuse(visit.site, visit.request, &Failure::missing())),
        Ask::WrongMethod(allow) => {
            let failure = Failure::new(405, "this method means nothing here");
            Begun::Response(refuse(visit.site, visit.request, &failure).with("Allow", allow))
        }
    })
}

/// In a site that has files or scripts as well, the service takes what can be nothing else.
fn belongs_to_a_site_too(ask: &Ask, path: &[u8]) -> bool {
    match ask {
        Ask::Image(_) | Ask::Delete(_) => true,
        Ask::Upload | Ask::WrongMethod(_) => path == b"/upload",
        Ask::Info => path == b"/info",
        _ => false,
    }
}

/// A file of the document root: as it is without a query, else as that wants it. `None` if the file is to be sent as it
/// is.
pub(crate) fn begin_file(visit: &Visit<'_>, entry: &Entry) -> Option<Begun> {
    let service = visit.site.settings.images.as_ref()?;
    let prefix = service.settings.files.as_ref()?;
    let query = visit.query.filter(|query| !query.is_empty())?;
    let reads = matches!(visit.request.head.method(), Method::Get | Method::Head);
    if !reads || !visit.path.starts_with(prefix.as_bytes()) || !entry.content_type.starts_with("image/") {
        return None;
    }
    let order = match order::of_file(visit, service, entry, query)? {
        Ok(order) => order,
        Err(failure) => return Some(Begun::Response(refuse(visit.site, visit.request, &failure))),
    };
    Some(begin_order(visit, service, order))
}

fn begin_image(visit: &Visit<'_>, service: &Arc<ImageService>, id: &Key) -> Begun {
    let download = service.settings.download.as_ref();
    if download.is_some_and(|networks| !visit.comes_from(networks)) {
        return Begun::Response(refuse(
            visit.site,
            visit.request,
            &Failure::new(403, "not for this address"),
        ));
    }
    match order::of_image(visit, service, id) {
        Ok(order) => begin_order(visit, service, order),
        Err(failure) => Begun::Response(refuse(visit.site, visit.request, &failure)),
    }
}

/// What needs no waiting: the client has it, it is in memory, or there is none.
fn begin_order(visit: &Visit<'_>, service: &Arc<ImageService>, order: Order) -> Begun {
    for (rank, better) in order.better.iter().enumerate() {
        if let Some(response) = at_once(visit, service, better, order.terms_of(rank, service)) {
            return Begun::Response(response);
        }
        // A cache on disk or elsewhere may have it.
        if !service.is_awaited(better) {
            return later(Work::Image(order));
        }
    }
    match at_once(visit, service, &order.wanted, order.terms_now(service)) {
        Some(response) => Begun::Response(response),
        None => later(Work::Image(order)),
    }
}

fn at_once(visit: &Visit<'_>, service: &Arc<ImageService>, wanted: &Wanted, terms: Terms) -> Option<Response> {
    let head = &visit.request.head;
    if let Some(response) = ready::unchanged(head, &wanted.etag(), &wanted.frame, terms) {
        return Some(response);
    }
    let (ready, until) = service.at_hand(wanted, visit.thread.io.clock.coarse())?;
    let mut response = ready.answer(head, &wanted.frame, terms);
    response.trace.image = Some(ImageResult::Memory);
    let is_lasting = visit.local.is_none() && visit.path == head.path() && !terms.passing;
    if let Some(until) = until.filter(|_| is_lasting) {
        let images = &visit.thread.caches.images;
        images.note(service, head, &ready, &wanted.frame, terms, until);
    }
    Some(response)
}

fn begin_upload(visit: &Visit<'_>, service: &Arc<ImageService>) -> Begun {
    match upload::refusal(visit, service) {
        None => later(Work::Upload),
        Some(response) => Begun::Response(response),
    }
}

fn begin_info(visit: &Visit<'_>, service: &Arc<ImageService>) -> Begun {
    let compat = service.settings.compat;
    if compat.is_zimg() && visit.request.head.method() != Method::Get {
        return Begun::Response(compat::error(200, Code::Method));
    }
    match api::parameter(visit.query, "md5").and_then(api::key) {
        Some(id) => later(Work::Info(id)),
        None if compat.is_zimg() => Begun::Response(compat::error(200, Code::Url)),
        None => Begun::Response(compat::error_in_words(400, Code::Url, "`md5` is missing or no id")),
    }
}

fn begin_delete(visit: &Visit<'_>, service: &Arc<ImageService>, id: Key) -> Begun {
    let Some(token) = &service.settings.token else {
        let failure = Failure::new(403, "deleting is off: the site has no token");
        return Begun::Response(refuse(visit.site, visit.request, &failure));
    };
    if bearer(visit.request).is_some_and(|shown| is_same(shown, token.as_bytes())) {
        return later(Work::Delete(id));
    }
    let failure = Failure::new(401, "deleting takes the site's token");
    let response = refuse(visit.site, visit.request, &failure);
    Begun::Response(response.with("WWW-Authenticate", "Bearer"))
}

/// The token of `Authorization: Bearer …` (RFC 6750 §2.1).
fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.head.fields().get("Authorization")?;
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// In a time that does not depend on where they differ.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differences = shown.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == token.len() && differences == 0
}

/// Deleting by GET is for who asks for it by name: a link in a mail must not do it.
fn begin_admin(visit: &Visit<'_>, service: &Arc<ImageService>) -> Begun {
    if !visit.comes_from(&service.settings.admin) {
        return Begun::Response(match service.settings.compat.is_zimg() {
            true => compat::forbidden(),
            false => refuse(visit.site, visit.request, &Failure::new(403, "not for this address")),
        });
    }
    let Some(query) = visit.query.filter(|query| !query.is_empty()) else {
        return Begun::Response(compat::admin_page());
    };
    let Some(id) = api::parameter(Some(query), "md5").and_then(api::key) else {
        return Begun::Response(refuse(visit.site, visit.request, &Failure::missing()));
    };
    let command = api::parameter(Some(query), "t").and_then(|text| std::str::from_utf8(text).ok());
    let command = command.and_then(|text| text.parse().ok()).unwrap_or(0);
    later(Work::Command(id, command))
}

/// Answers what needs waiting.
pub(crate) async fn respond(thread: &Thread, site: &Arc<Site>, request: &Request, call: Call) -> Response {
    let Some(service) = &site.settings.images else {
        return refuse(site, request, &Failure::missing());
    };
    match call.0 {
        Work::Upload => upload::respond(thread, site, service, request).await,
        Work::Image(order) => image(site, service, request, order).await,
        Work::Info(id) => info(site, service, id).await,
        Work::Delete(id) => match on_runtime(service, Arc::clone(service).delete(id)).await {
            Ok(true) => Response::new(204, Handler::Image),
            Ok(false) => refuse(site, request, &Failure::missing()),
            Err(failure) => refuse(site, request, &failure),
        },
        Work::Command(id, number) => command(service, id, number).await,
    }
}

/// Runs on the thread of the stores; it goes on if the client goes.
async fn on_runtime<T: Send + 'static>(
    service: &ImageService,
    future: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let outcome = service.settings.runtime.spawn(future).await;
    outcome.unwrap_or_else(|_| {
        Err(Failure::ours(
            500,
            Reason::ImageWorkerFailed,
            "the image could not be had",
        ))
    })
}

async fn image(site: &Arc<Site>, service: &Arc<ImageService>, request: &Request, order: Order) -> Response {
    if let service::Original::Stored(id) = &order.wanted.original
        && service.known(id, now()) == Some(false)
    {
        return missing(site, service, request, &order).await;
    }
    let mut answered = answer(service, request, &order).await;
    for instead in &order.instead {
        match &answered {
            Err(failure) if failure.asks_too_much => answered = answer(service, request, instead).await,
            _ => break,
        }
    }
    match answered {
        Ok(response) => response,
        Err(failure) if failure.status == 404 => missing(site, service, request, &order).await,
        Err(failure) => refuse(site, request, &failure),
    }
}

/// The answer to an order; what the client would rather have is made behind it.
async fn answer(service: &Arc<ImageService>, request: &Request, order: &Order) -> Result<Response, Failure> {
    if let Some(response) = better(service, request, order).await? {
        return Ok(response);
    }
    let response = match unchanged(service, request, order) {
        Some(response) => response,
        None => try_image(service, request, order, order.wanted.clone()).await?,
    };
    for better in &order.better {
        service.make_behind(better);
    }
    Ok(response)
}

/// The answer in the best format a cache has, of those the client would rather have than the one that can be had at once.
async fn better(service: &Arc<ImageService>, request: &Request, order: &Order) -> Result<Option<Response>, Failure> {
    for (rank, better) in order.better.iter().enumerate() {
        if service.is_awaited(better) {
            continue;
        }
        let found = on_runtime(service, Arc::clone(service).find(better.clone())).await?;
        if let Some((ready, result, times)) = found {
            for missed in &order.better[..rank] {
                service.make_behind(missed);
            }
            let mut response = ready.answer(&request.head, &better.frame, order.terms_of(rank, service));
            response.trace.image = Some(result);
            response.trace.image_times = Some(Box::new(times));
            return Ok(Some(response));
        }
    }
    Ok(None)
}

/// The 304 for who has what can be had at once, where there is nothing better yet.
fn unchanged(service: &ImageService, request: &Request, order: &Order) -> Option<Response> {
    let wanted = &order.wanted;
    let (etag, terms) = (wanted.etag(), order.terms_now(service));
    ready::unchanged(&request.head, &etag, &wanted.frame, terms)
}

async fn try_image(
    service: &Arc<ImageService>,
    request: &Request,
    order: &Order,
    wanted: Wanted,
) -> Result<Response, Failure> {
    let frame = Arc::clone(&wanted.frame);
    let begin = now();
    let (ready, result, times) = match wanted.transform {
        Some(_) => match service.obtain(wanted).await {
            Made::Ready(ready, result, times) => (ready, result, times),
            Made::Failed(failure) => return Err(failure),
        },
        None => {
            let etag = wanted.etag();
            let service_of_it = Arc::clone(service);
            let opened = match ready::range_asked(&request.head, &etag) {
                Some(asked) => {
                    let asked = Bytes::copy_from_slice(asked);
                    on_runtime(service, service_of_it.open_part(wanted, asked)).await?
                }
                None => on_runtime(service, service_of_it.open(wanted)).await?,
            };
            let times = untouched(&opened, now().saturating_duration_since(begin));
            match opened {
                Opened::Ready(ready, result) => (ready, result, times),
                Opened::Stream {
                    length,
                    first,
                    pieces,
                    passing,
                } => {
                    let format = Format::of_bytes(&first);
                    let fields = ready::fields(&etag, format, &frame, order.terms_now(service));
                    let body = OriginalStream::new(length, first, pieces, Some(passing));
                    return Ok(streamed(200, fields, body, times));
                }
                Opened::Part {
                    range,
                    total,
                    format,
                    pieces,
                } => {
                    let mut fields = ready::fields(&etag, format, &frame, order.terms_now(service));
                    fields.append("Content-Range", ready::place(range, total));
                    let body = OriginalStream::new(range.length(), Bytes::new(), pieces, None);
                    return Ok(streamed(206, fields, body, times));
                }
                Opened::Beyond(total) => return Ok(ready::unsatisfiable(total)),
            }
        }
    };
    let mut response = ready.answer(&request.head, &frame, order.terms_now(service));
    response.trace.image = Some(result);
    response.trace.image_times = Some(Box::new(times));
    Ok(response)
}

/// Where the time of an original went that was opened within it.
fn untouched(opened: &Opened, took: Duration) -> ImageTimes {
    let is_fetched = !matches!(opened, Opened::Ready(_, result) if *result != ImageResult::Original);
    ImageTimes {
        fetch: is_fetched.then_some(took),
        cache: (!is_fetched).then_some(took),
        ..ImageTimes::default()
    }
}

/// What comes over the network as it is sent.
fn streamed(status: u16, fields: Fields, body: OriginalStream, times: ImageTimes) -> Response {
    let mut response = Response::new(status, Handler::Image);
    *response.head.fields_mut() = fields;
    response.body = Body::Stream(Box::new(body));
    response.trace.image = Some(ImageResult::Original);
    response.trace.image_times = Some(Box::new(times));
    response
}

/// 404, with the image that stands in for others if there is one.
async fn missing(site: &Arc<Site>, service: &Arc<ImageService>, request: &Request, order: &Order) -> Response {
    let stand_in = match service.fallback(&order.wanted) {
        Some(wanted) => try_image(service, request, order, wanted).await.ok(),
        None => None,
    };
    match stand_in {
        Some(mut response) => {
            if response.status == 200 {
                response.status = 404;
            }
            // The image may come at any moment.
            response.head.fields_mut().set("Cache-Control", "no-cache");
            response
        }
        None => refuse(site, request, &Failure::missing()),
    }
}

async fn info(site: &Arc<Site>, service: &Arc<ImageService>, id: Key) -> Response {
    let is_zimg = service.settings.compat.is_zimg();
    match on_runtime(service, Arc::clone(service).info(id)).await {
        Ok(info) => compat::info(&info),
        Err(failure) if is_zimg && failure.reason.is_none() => compat::error(200, Code::of(&failure)),
        Err(failure) => told_as_json(site, &failure),
    }
}

async fn command(service: &Arc<ImageService>, id: Key, number: i64) -> Response {
    let name = id.to_string();
    let outcome = match number {
        1 => on_runtime(service, Arc::clone(service).delete(id)).await,
        _ => on_runtime(service, Arc::clone(service).exists(id)).await,
    };
    let admin = match (number, outcome) {
        (1, Ok(true)) => Admin::Done,
        (_, Ok(false)) => Admin::Missing,
        _ => Admin::Failed,
    };
    compat::admin_result(&name, number, admin)
}

/// What an upload, or a question about an image, is told when it comes to nothing.
fn told_as_json(site: &Site, failure: &Failure) -> Response {
    let code = Code::of(failure);
    let status = failure.status;
    let is_zimg = site
        .settings
        .images
        .as_ref()
        .is_some_and(|service| service.settings.compat.is_zimg());
    // zimg answers 200 to everything it understood; what is our own failure must not look like an answer.
    let response = match is_zimg && failure.reason.is_none() {
        true => compat::error(200, code),
        false => compat::error_in_words(status, code, &failure.message),
    };
    with_trace(response, failure)
}

/// The answer where there is no image to send: zimg knows 404 only, but a failure of our own is said to be one.
fn refuse(site: &Arc<Site>, request: &Request, failure: &Failure) -> Response {
    let compat = site
        .settings
        .images
        .as_ref()
        .map_or(Compat::Native, |service| service.settings.compat);
    if compat.is_zimg() && failure.reason.is_none() {
        return match failure.status {
            401 | 403 => compat::forbidden(),
            _ => compat::not_found(),
        };
    }
    let status = failure.status;
    let message = site.settings.development.then_some(&*failure.message);
    let response = error_page::respond(status, failure.reason, Some(site), &request.id, message);
    with_trace(response, failure)
}

fn with_trace(mut response: Response, failure: &Failure) -> Response {
    response.trace.reason = failure.reason;
    response.trace.image = Some(ImageResult::Error);
    if let Some(after) = failure.retry_after {
        let seconds = after.as_secs_f64().ceil().max(1.0);
        response.head.fields_mut().set("Retry-After", format!("{seconds:.0}"));
    }
    response
}
