//! `headers` of a site: field lines set on every response.

use crate::response::{Head, Response};
use crate::route::Site;
use crate::settings::WithoutTls;

/// RFC 6797 §7.2: only TLS makes it true.
const ONLY_OVER_TLS: &str = "Strict-Transport-Security";

/// Sets them. A prepared head was made with them.
pub(super) fn on_response(site: &Site, tls: bool, response: &mut Response) {
    let is_silent = !tls && site.settings.without_tls == Some(WithoutTls::RedirectOnly);
    if let Head::Fields(fields) = &mut response.head {
        for (name, value) in &site.settings.headers {
            if is_silent && name.eq_ignore_ascii_case(ONLY_OVER_TLS) {
                continue;
            }
            fields.set(name, value);
        }
    }
}
