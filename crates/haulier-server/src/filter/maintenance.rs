//! `maintenance` of a site: while a file exists, everybody but those let in gets 503 with Retry-After.

use haulier_http::{Reason, Response};

use crate::answer::error_page;
use crate::context::Visit;

pub(super) fn on_request(visit: &Visit<'_>) -> Option<Response> {
    let maintenance = visit.site.settings.filters.maintenance.as_ref()?;
    if visit.comes_from(&maintenance.allow) {
        return None;
    }
    let now = visit.thread.io.clock.coarse();
    visit.site.maintenance.is_on(&maintenance.file, now).then(|| {
        let mut response = error_page::respond(
            503,
            Some(Reason::Maintenance),
            Some(visit.site),
            &visit.request.id,
            None,
        );
        let seconds = maintenance.retry_after.as_secs().max(1);
        response.head.fields_mut().set("Retry-After", seconds.to_string());
        response
    })
}
