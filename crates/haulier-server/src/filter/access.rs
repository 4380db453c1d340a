//! `deny` and `allow` of routes: paths that are never served, and paths for some addresses only.

use haulier_http::{Handler, Response};

use crate::answer::error_page;
use crate::context::RequestContext;

/// 404 for a denied path, as for a missing one; 403 for an address that is not allowed.
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    let status = if context.routes.deny {
        404
    } else if context
        .routes
        .allow
        .is_some_and(|networks| !context.comes_from(networks))
    {
        403
    } else {
        return None;
    };
    let mut response = error_page::respond(status, None, Some(context.site), &context.request.id, None);
    response.trace.handler = Handler::Denied;
    Some(response)
}
