//! The filters before and after every handler. This module alone defines their order.

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

/// A response before any handler is chosen.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one: boxing it would cost an allocation"
)]
pub(crate) enum EarlyResponse {
    Response(Response),
    /// Decided only after waiting.
    Check(PasswordCheck),
}

/// The request filters in their order.
pub(crate) fn on_request(context: &RequestContext<'_>) -> Option<EarlyResponse> {
    // First: an unknown method needs no look at the path.
    method::on_request(&context.request.head)
        // Before the rate limit: an authority connects from several addresses at once, and a refusal costs the
        // certificate.
        .or_else(|| https::answer_challenge(context))
        // Before all costly filters, so that requests they refuse are counted.
        .or_else(|| rate::on_request(context))
        // Before all others of a site with TLS: they are not for requests without TLS.
        .or_else(|| https::on_request(context))
        // Before any password is asked for, which belongs to the canonical name.
        .or_else(|| canonical::on_request(context))
        // Before the site's rules, which may be incomplete during maintenance.
        .or_else(|| maintenance::on_request(context))
        // The path is haulier's own, so no rule of the site applies.
        .or_else(|| dictionary::on_request(context))
        // Before files: a redirect is meant for a former content of the path. It reveals nothing, so it needs no
        // password.
        .or_else(|| redirect::find(context.site, context.path, context.query))
        .map(EarlyResponse::Response)
        .or_else(|| on_path(context))
}

/// The filters of a path: applied to the requested path, and again to a rewritten one.
pub(crate) fn on_path(context: &RequestContext<'_>) -> Option<EarlyResponse> {
    // Checking an address costs less than a password.
    access::on_request(context)
        .map(EarlyResponse::Response)
        // Last: it may have to wait.
        .or_else(|| basic_auth::on_request(context))
}

/// Applies the filters to the other names of the script that a path leads to. Returns true if one of them asks for a
/// password. Rules for its name cover every PATH_INFO, and the PATH_INFO of a front controller is a path of its own.
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

/// Other paths of a script with PATH_INFO to which rules may apply.
fn further_names<'s>(context: &RequestContext<'_>, script: &'s Script) -> impl Iterator<Item = Vec<u8>> + use<'s> {
    let has_more = !script.path_info.is_empty();
    let prefix = context.routes.mount.map_or("", |place| place.prefix.as_str());
    let front = context
        .owner()
        .settings
        .php
        .as_ref()
        .and_then(|php| php.front.as_deref());
    let is_front = front.is_some_and(|front| script.name == [prefix, front].concat().as_bytes());
    let behind = (has_more && is_front).then(|| [prefix.as_bytes(), &script.path_info].concat());
    has_more.then(|| script.name.clone()).into_iter().chain(behind)
}

/// Adjusts a response before it is sent, whichever handler made it.
pub(crate) fn on_response(site: &Site, request: &Request, response: &mut Response) {
    adjust(site, request, response, None);
}

/// Decides on a body that is still being made, before its first piece. [`on_response`] follows later and changes no
/// decision made here.
pub(crate) fn on_body(
    site: &Site,
    request: &Request,
    response: &mut Response,
    length: Option<u64>,
    pacing: Pacing,
) -> Option<BodyCoder> {
    adjust(site, request, response, Some(&UnfinishedBody { length, pacing }))
}

/// A body that is still being made.
struct UnfinishedBody {
    /// Announced bytes.
    length: Option<u64>,
    pacing: Pacing,
}

/// The response filters in their order.
fn adjust(
    site: &Site,
    request: &Request,
    response: &mut Response,
    unfinished: Option<&UnfinishedBody>,
) -> Option<BodyCoder> {
    let Request { head, peer, .. } = request;
    if unfinished.is_none() {
        request_id::on_response(&request.id, response);
        // Before compression: it may add trailers to the body.
        server_timing::on_response(site, head, response);
        client_hints::on_response(site, response);
    }
    // The configuration overrides PHP, and its `no-transform` affects compression.
    site_headers::on_response(site, peer.tls, response);
    // Last: it depends on all other fields, and a coded body must not change.
    match unfinished {
        Some(&UnfinishedBody { length, pacing }) => body_coder::decide(&site.coding, head, response, length, pacing),
        None => {
            compress::on_response(&site.coding, head, response);
            None
        }
    }
}
