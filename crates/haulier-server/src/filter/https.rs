//! Requests without TLS: redirected to `https://`, refused, or answered if they are a challenge of a certificate
//! authority.

use haulier_http::{Handler, Reason, Request, Response};
use haulier_proto::head::split_port;

use crate::answer::{error_page, redirect};
use crate::context::RequestContext;
use crate::settings::TlsSettings;
use crate::site::WithoutTls;
use crate::thread::Thread;

/// Paths of challenges (RFC 8555 §8.3). Unknown ones are not redirected: another program may keep its answers in the
/// document root.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The answer to a challenge of haulier's own order.
pub(super) fn answer_challenge(context: &RequestContext<'_>) -> Option<Response> {
    let serving = context.thread.serving();
    let tls = serving.settings.tls.as_ref()?;
    let token = context.path.strip_prefix(CHALLENGES)?;
    let answer = tls.acceptor.certificates().http_answer(token)?;
    let response = Response::new(200, Handler::Static).with("Content-Type", "application/octet-stream");
    Some(response.body(answer))
}

/// 308 to the same address with `https://`, which keeps method and body (RFC 9110 §15.4.9).
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    let without = context.site.settings.filters.without_tls?;
    if context.request.peer.tls || without == WithoutTls::Everything || context.path.starts_with(CHALLENGES) {
        return None;
    }
    let serving = context.thread.serving();
    let settings = &serving.settings;
    let (tls, port) = (settings.tls.as_ref()?, settings.https_port?);
    let host = host(context.request)?;
    // Without a certificate `https://` would fail, so the page is served.
    if without == WithoutTls::Redirect && !tls.acceptor.certificates().has(host) {
        return None;
    }
    Some(to_https(context.request, host, port))
}

/// The response to a request without TLS on a TLS port.
pub(crate) fn missed(thread: &Thread, tls: &TlsSettings, request: &Request) -> Response {
    match host(request).filter(|_| tls.redirects_plain) {
        Some(host) => to_https(request, host, request.peer.local.port()),
        None => error_page::respond(400, Some(Reason::PlainHttp), None, &thread.next_id(), None),
    }
}

fn host(request: &Request) -> Option<&[u8]> {
    Some(split_port(request.head.authority()?).0)
}

fn to_https(request: &Request, host: &[u8], port: u16) -> Response {
    let mut origin = [b"https://", host].concat();
    if port != 443 {
        origin.extend_from_slice(format!(":{port}").as_bytes());
    }
    redirect::to_origin(origin, request.head.path(), request.head.query())
}
