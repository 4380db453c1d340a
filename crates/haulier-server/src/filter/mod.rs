//! What stands before and behind every handler. The order is written here and nowhere else.

mod access;
pub(crate) mod basic_auth;
mod canonical;
mod client_hints;
mod dictionary;
pub(crate) mod https;
pub(crate) mod maintenance;
mod method;
mod rate;
mod request_id;
mod server_timing;
mod site_headers;

use std::ops::ControlFlow;
use std::sync::Arc;

use haulier_http::{Request, Response};

use crate::answer::redirect;
use crate::body::Pacing;
use crate::compress;
use crate::compress::body_coder::{self, BodyCoder};
use crate::context::RequestContext;
use crate::files::{self, Script};
use crate::site::Site;
use basic_auth::PasswordCheck;

/// An answer before any handler was asked.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one: a box would cost it an allocation"
)]
pub(crate) enum EarlyResponse {
    Response(Response),
    /// Known only after waiting.
    Check(PasswordCheck),
}

/// May answer before any handler is asked.
pub(crate) fn on_request(context: &RequestContext<'_>) -> Option<EarlyResponse> {
    // First: a method nobody here serves is no reason to look at the path.
    method::on_request(&context.request.head)
        // An authority asks from several places at once, and whoever is refused gets no certificate.
        .or_else(|| https::answer_challenge(context))
        // The limit stands before everything that costs, and counts what the rest refuses.
        .or_else(|| rate::on_request(context))
        // Nothing else of a site that has TLS is for those who came without.
        .or_else(|| https::on_request(context))
        // The wrong name leads to the right one before anybody is asked for a password there.
        .or_else(|| canonical::on_request(context))
        // While a site is being worked on none of its rules is to be relied on.
        .or_else(|| maintenance::on_request(context))
        // Under a name of ours, which no rule of the site is about.
        .or_else(|| dictionary::on_request(context))
        // Redirects stand before files: a rule is meant for what stood there before, whatever stands there now. They
        // tell nothing of what is behind them, so nobody is asked for a password for one.
        .or_else(|| redirect::find(context.site, context.path, context.query))
        .map(EarlyResponse::Response)
        .or_else(|| on_path(context))
}

/// Who may have this path: judged for the path that was asked for, and again for the one a rewrite made of it.
pub(crate) fn on_path(context: &RequestContext<'_>) -> Option<EarlyResponse> {
    // An address costs less to judge than a password.
    access::on_request(context)
        .map(EarlyResponse::Response)
        // Last: it may have to wait.
        .or_else(|| basic_auth::on_request(context))
}

/// Judges the script that a path leads to by its other names, and says whether a password was asked for on the way. The
/// rules for its name hold for all that follows it, and the path after a front controller is a path of its own.
pub(crate) fn on_script(context: &RequestContext<'_>, script: &Script) -> ControlFlow<EarlyResponse, bool> {
    let mut asks_password = context.routes.users.is_some();
    for path in further_names(context, script) {
        let mut routes = context.site.routes.find(&path);
        routes.deny |= files::is_denied(&context.site.files, &path);
        asks_password |= routes.users.is_some();
        let is_counted = |limiter| context.routes.rate.is_some_and(|counted| Arc::ptr_eq(counted, limiter));
        let uncounted = routes.rate.filter(|&limiter| !is_counted(limiter));
        let further = RequestContext {
            path: &path,
            routes: &routes,
            ..*context
        };
        let early = uncounted
            .and_then(|limiter| rate::of_route(&further, limiter))
            .map(EarlyResponse::Response)
            .or_else(|| on_path(&further));
        if let Some(early) = early {
            return ControlFlow::Break(early);
        }
    }
    ControlFlow::Continue(asks_password)
}

/// Other paths of a script with PATH_INFO that the site may have rules for.
fn further_names<'s>(context: &RequestContext<'_>, script: &'s Script) -> impl Iterator<Item = Vec<u8>> + use<'s> {
    let has_more = !script.path_info.is_empty();
    let prefix = context.routes.mount.map_or("", |place| place.prefix.as_str());
    let front = context.owner().settings.php.as_ref().and_then(|php| php.front.as_deref());
    let is_front = front.is_some_and(|front| script.name == [prefix, front].concat().as_bytes());
    let behind = (has_more && is_front).then(|| [prefix.as_bytes(), &script.path_info].concat());
    has_more.then(|| script.name.clone()).into_iter().chain(behind)
}

/// Adjusts a response before it leaves, whichever handler made it.
pub(crate) fn on_response(site: &Site, request: &Request, response: &mut Response) {
    adjust(site, request, response, None);
}

/// Decides about a body that still comes, before its first byte is taken. [`on_response`] follows when the body is in place,
/// and changes nothing that was decided here.
pub(crate) fn on_body(
    site: &Site,
    request: &Request,
    response: &mut Response,
    length: Option<u64>,
    pacing: Pacing,
) -> Option<BodyCoder> {
    adjust(site, request, response, Some(&Coming { length, pacing }))
}

/// A body that still comes.
struct Coming {
    /// Bytes that were announced.
    length: Option<u64>,
    pacing: Pacing,
}

/// The response filters in their order.
fn adjust(site: &Site, request: &Request, response: &mut Response, coming: Option<&Coming>) -> Option<BodyCoder> {
    let Request { head, peer, .. } = request;
    if coming.is_none() {
        request_id::on_response(&request.id, response);
        // It may add trailers to the body.
        server_timing::on_response(site, head, response);
        client_hints::on_response(site, response);
    }
    // The configuration overrules PHP, and counts for compression too (`no-transform`).
    site_headers::on_response(site, peer.tls, response);
    // Last: it depends on every other field, and nothing may change a body that is coded.
    match coming {
        Some(&Coming { length, pacing }) => body_coder::decide(&site.coding, head, response, length, pacing),
        None => {
            compress::on_response(&site.coding, head, response);
            None
        }
    }
}
