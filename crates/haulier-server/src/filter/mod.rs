//! What stands before and behind every handler. The order is written here and nowhere else.

mod method;
mod server_timing;
mod site_headers;

use haulier_proto::head::RequestHead;

use crate::handler::redirect;
use crate::response::Response;
use crate::route::Site;

/// May answer before any handler is asked. `path` is decoded and normalised.
pub(crate) fn on_request(site: &Site, head: &RequestHead, path: &[u8]) -> Option<Response> {
    // First: a method nobody here serves is no reason to look at the path.
    method::on_request(head)
        // Then redirects, before files: a rule is meant for what stood there before, whatever stands there now.
        .or_else(|| redirect::find(site, path, head.query()))
}

/// Adjusts a response, whoever made it. Nothing yet depends on what the client accepts.
pub(crate) fn on_response(site: &Site, _head: &RequestHead, response: &mut Response) {
    server_timing::on_response(site, response);
    // Last word: what the configuration sets holds over what PHP says.
    site_headers::on_response(site, response);
}
