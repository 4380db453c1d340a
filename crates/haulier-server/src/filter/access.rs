//! `deny` and `allow` of routes: paths nobody gets, and paths only some addresses get.

use haulier_http::{Handler, Response};

use crate::answer::error_page;
use crate::context::Visit;

/// 404 for what is denied to all, as for what is not there; 403 for who is not let in.
pub(super) fn on_request(visit: &Visit<'_>) -> Option<Response> {
    let status = if visit.routes.deny {
        404
    } else if visit.routes.allow.is_some_and(|networks| !visit.comes_from(networks)) {
        403
    } else {
        return None;
    };
    let mut response = error_page::respond(status, None, Some(visit.site), &visit.request.id, None);
    response.trace.handler = Handler::Denied;
    Some(response)
}
