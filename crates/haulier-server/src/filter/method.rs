//! Methods no site serves: CONNECT would make us a proxy, TRACE would show cookies to scripts (RFC 9110 §9.3.6, §9.3.8).

use haulier_http::{Handler, Response};
use haulier_proto::head::{Method, RequestHead};

/// RFC 9110 §15.5.6 wants Allow; what a script takes beyond this is its own matter.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

pub(super) fn on_request(head: &RequestHead) -> Option<Response> {
    matches!(head.method(), Method::Connect | Method::Trace)
        .then(|| Response::new(405, Handler::Denied).with("Allow", ALLOW))
}
