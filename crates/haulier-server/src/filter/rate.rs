//! `requests_per_ip` of a site and `rate` of its routes: answers requests beyond them with 429 (RFC 6585 §4).

use std::time::Duration;

use haulier_http::{Reason, Response};

use crate::answer::error_page;
use crate::clock::now;
use crate::context::{Pass, RequestContext};
use crate::rate_limiter::RateLimiter;

/// The site's limit first, then the narrower one of a route. A request counts once.
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    if context.pass == Pass::Internal {
        return None;
    }
    let mut limiters = context
        .site
        .settings
        .filters
        .requests_per_ip
        .iter()
        .chain(context.routes.rate);
    limiters.find_map(|limiter| count(context, limiter))
}

/// Counts for a route that applies to the script only.
pub(super) fn of_route(context: &RequestContext<'_>, limiter: &RateLimiter) -> Option<Response> {
    if context.pass == Pass::Internal {
        return None;
    }
    count(context, limiter)
}

fn count(context: &RequestContext<'_>, limiter: &RateLimiter) -> Option<Response> {
    let counted = limiter.take(context.request.peer.remote.ip(), now());
    counted.err().map(|wait| refused(context, wait))
}

fn refused(context: &RequestContext<'_>, wait: Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    error_page::respond(
        429,
        Some(Reason::RateLimited),
        Some(context.site),
        &context.request.id,
        None,
    )
    .with("Retry-After", seconds.to_string())
}
