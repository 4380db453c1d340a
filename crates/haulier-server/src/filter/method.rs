//! Methods never served: CONNECT is for proxies, TRACE reveals cookies to scripts (RFC 9110 §9.3.6, §9.3.8).

use haulier_http::{Handler, Response};
use haulier_proto::head::{Method, RequestHead};

/// RFC 9110 §15.5.6 requires Allow; scripts may accept further methods.
const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

pub(super) fn on_request(head: &RequestHead) -> Option<Response> {
    matches!(head.method(), Method::Connect | Method::Trace)
        .then(|| Response::new(405, Handler::Denied).with("Allow", ALLOW))
}
