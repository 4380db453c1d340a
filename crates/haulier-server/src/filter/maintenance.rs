//! `maintenance` of a site: while a file exists, all but allowed addresses get 503 with Retry-After.

use haulier_http::{Reason, Response};

use crate::answer::error_page;
use crate::context::RequestContext;

pub(super) fn on_request(context: &RequestContext<'_>) -> Option<Response> {
    let maintenance = context.site.settings.filters.maintenance.as_ref()?;
    if context.comes_from(&maintenance.allow) {
        return None;
    }
    let now = context.thread.io.clock.coarse();
    context.site.maintenance.is_on(&maintenance.file, now).then(|| {
        let mut response = error_page::respond(
            503,
            Some(Reason::Maintenance),
            Some(context.site),
            &context.request.id,
            None,
        );
        let seconds = maintenance.retry_after.as_secs().max(1);
        response.head.fields_mut().set("Retry-After", seconds.to_string());
        response
    })
}
