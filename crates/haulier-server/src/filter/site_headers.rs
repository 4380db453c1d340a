//! `headers` of a site: field lines set on every response.

use haulier_http::{Handler, Head, Response};
use haulier_proto::field::Fields;

use crate::compress;
use crate::site::Site;
use crate::site::WithoutTls;

/// RFC 6797 §7.2: only TLS makes it true.
const ONLY_OVER_TLS: &str = "Strict-Transport-Security";

/// Whether this is Cache-Control, and the response has one. What is sent until a better image is made, or until one is
/// uploaded, is not to be kept as long as the site's images are; and a 304 says what the 200 did.
fn is_timed(name: &str, fields: &Fields) -> bool {
    name.eq_ignore_ascii_case("Cache-Control") && fields.contains("Cache-Control")
}

/// Sets them. A prepared head was made with them.
pub(super) fn on_response(site: &Site, tls: bool, response: &mut Response) {
    let is_silent = !tls && site.settings.filters.without_tls == Some(WithoutTls::RedirectOnly);
    if let Head::Fields(fields) = &mut response.head {
        for (name, value) in &site.settings.filters.headers {
            let is_left = is_silent && name.eq_ignore_ascii_case(ONLY_OVER_TLS)
                || response.trace.handler == Handler::Image && is_timed(name, fields);
            // What the answer depends on is added to; and what compression has said of a body on its way stands.
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
    fn an_image_knows_best_how_long_it_is_to_be_kept() {
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
