//! `Accept-CH` on pages of a site whose images follow client hints: browsers send hints only on request (RFC 8942
//! §3.1).

use haulier_http::Response;
use haulier_proto::field::Known;

use crate::compress::media_type::is_html;
use crate::site::Site;

/// The hints that choose an image, by their present and former names.
const HINTS: &str = "Sec-CH-DPR, Sec-CH-Width, DPR, Width";

/// Requests the hints, unless the page does.
pub(super) fn on_response(site: &Site, response: &mut Response) {
    let images = site.settings.images.as_ref();
    if !images.is_some_and(|images| images.follows_hints()) {
        return;
    }
    let fields = response.head.fields();
    let is_page = fields.known(Known::ContentType).is_some_and(is_html);
    if is_page && !fields.contains("Accept-CH") {
        response.head.fields_mut().append("Accept-CH", HINTS);
    }
}
