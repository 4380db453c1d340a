//! Serves the page dictionaries of a site (RFC 9842).

use haulier_http::{Handler, Response};
use haulier_proto::dictionary;

use crate::compress::dictionary::page_dictionary::PLACE;
use crate::context::RequestContext;

/// Answers with the dictionary in the path.
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    let name = context.path.strip_prefix(PLACE)?;
    let (page_dictionary, dictionary) = context.site.coding.page_dictionaries.named(name)?;
    let pattern = dictionary::use_as(page_dictionary.pages.as_str(), true)?;
    let mut response = Response::new(200, Handler::Static)
        // The text of a page, but not to be shown as a page.
        .with("Content-Type", "text/plain; charset=utf-8")
        .with("X-Content-Type-Options", "nosniff")
        .with("Cache-Control", "public, max-age=604800")
        .with("Use-As-Dictionary", pattern);
    response.body = dictionary.content.clone().into();
    Some(response)
}
