//! `requests_per_ip` of a site and `rate` of its routes: beyond them 429 with Retry-After (RFC 6585 §4).

use std::time::Duration;

use haulier_http::{Reason, Response};

use crate::answer::error_page;
use crate::clock::now;
use crate::context::{Round, Visit};
use crate::rate_limiter::RateLimiter;

/// The site's own limit first, then the narrower one of a route. A request counts once.
pub(super) fn on_request(visit: &Visit<'_>) -> Option<Response> {
    if visit.round == Round::Further {
        return None;
    }
    let mut limiters = visit
        .site
        .settings
        .filters
        .requests_per_ip
        .iter()
        .chain(visit.routes.rate);
    limiters.find_map(|limiter| count(visit, limiter))
}

/// Counts for a route that was found only with the script.
pub(super) fn of_route(visit: &Visit<'_>, limiter: &RateLimiter) -> Option<Response> {
    if visit.round == Round::Further {
        return None;
    }
    count(visit, limiter)
}

fn count(visit: &Visit<'_>, limiter: &RateLimiter) -> Option<Response> {
    let counted = limiter.take(visit.request.peer.remote.ip(), now());
    counted.err().map(|wait| refused(visit, wait))
}

fn refused(visit: &Visit<'_>, wait: Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    error_page::respond(
        429,
        Some(Reason::RateLimited),
        Some(visit.site),
        &visit.request.id,
        None,
    )
    .with("Retry-After", seconds.to_string())
}
