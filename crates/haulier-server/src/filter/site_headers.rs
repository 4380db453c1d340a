//! `headers` of a site: field lines set on every response.

use haulier_http::{Handler, Head, Response};
use haulier_proto::field::Fields;

use crate::compress;
use crate::site::Site;
use crate::site::WithoutTls;

/// RFC 6797 §7.2: to be sent over TLS only.
const ONLY_OVER_TLS: &str = "Strict-Transport-Security";

/// True for Cache-Control of an image that has its own: a temporary image must not be cached as long as the site's
/// images, and a 304 must match the 200.
fn is_timed(name: &str, fields: &Fields) -> bool {
    name.eq_ignore_ascii_case("Cache-Control") && fields.contains("Cache-Control")
}

/// Sets the fields. Prepared heads include them already.
pub(super) fn on_response(site: &Site, tls: bool, response: &mut Response) {
    let is_silent = !tls && site.settings.filters.without_tls == Some(WithoutTls::RedirectOnly);
    if let Head::Fields(fields) = &mut response.head {
        for (name, value) in &site.settings.filters.headers {
            let is_left = is_silent && name.eq_ignore_ascii_case(ONLY_OVER_TLS)
                || response.trace.handler == Handler::Image && is_timed(name, fields);
            // Vary is added to; Link of a dictionary stays, as compression has announced it.
            let is_link = name.eq_ignore_ascii_case("Link") && response.trace.compressed.is_some();
            if name.eq_ignore_ascii_case("Vary") {
                value.split(',').for_each(|name| compress::vary_by(fields, name.trim()));
            } else if !is_left && !is_link {
                fields.set(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture::Root;

    fn filtered(response: Response) -> Response {
        let headers = [("Cache-Control", "max-age=9"), ("X-Site", "s")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let site = Root::new()
            .with(|settings| settings.filters.headers = headers.to_vec())
            .site();
        let mut response = response;
        on_response(&site, true, &mut response);
        response
    }

    #[test]
    fn the_cache_control_of_an_image_takes_precedence() {
        for (handler, own, expected) in [
            (Handler::Image, Some("no-cache"), "no-cache"),
            (Handler::Image, None, "max-age=9"),
            (Handler::Php, Some("no-cache"), "max-age=9"),
        ] {
            let mut response = Response::new(200, handler);
            if let Some(own) = own {
                response = response.with("Cache-Control", own);
            }
            let response = filtered(response);
            let fields = response.head.fields();
            assert_eq!(fields.get("Cache-Control"), Some(expected.as_bytes()), "{handler:?}");
            assert_eq!(fields.get("X-Site"), Some(&b"s"[..]));
        }
    }
}
