//! `headers` of a site: field lines set on every response.

use crate::response::{Head, Response};
use crate::route::Site;

/// Sets them. A prepared head was made with them.
pub(super) fn on_response(site: &Site, response: &mut Response) {
    if let Head::Fields(fields) = &mut response.head {
        for (name, value) in &site.settings.headers {
            fields.set(name, value);
        }
    }
}
