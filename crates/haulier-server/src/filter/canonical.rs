//! `canonical` of a site: redirects from its other names to the canonical one.

use haulier_http::Response;
use haulier_proto::head::split_port;

use crate::answer::redirect;
use crate::context::RequestContext;

/// 308 to the same path and query, with the client's scheme and port unless the setting has its own.
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    let canonical = context.site.settings.filters.canonical.as_ref()?;
    let (host, port) = split_port(context.request.head.authority()?);
    if host.eq_ignore_ascii_case(canonical.host.as_bytes()) {
        return None;
    }
    let mut origin = match &canonical.origin {
        Some(origin) => origin.clone().into_bytes(),
        None => format!("{}://{}", context.scheme(), canonical.host).into_bytes(),
    };
    if canonical.origin.is_none() && !port.is_empty() {
        origin.push(b':');
        origin.extend_from_slice(port);
    }
    Some(redirect::to_origin(
        origin,
        context.request.head.path(),
        context.request.head.query(),
    ))
}
