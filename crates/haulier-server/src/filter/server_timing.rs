//! `Server-Timing` for sites in development: what the browser's tools show as the time in the queue and in PHP.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::response::Response;
use crate::route::Site;

/// Adds the times of a PHP answer. An answer that is still coming has no time in PHP yet.
pub(super) fn on_response(site: &Site, response: &mut Response) {
    if !site.settings.development {
        return;
    }
    let Some(php) = &response.trace.php else { return };
    let mut value = format!("queue;dur={:.1}", php.queued.as_secs_f64() * 1000.0);
    let busy = php.busy.load(Ordering::Relaxed);
    if busy > 0 {
        let _ = write!(value, ", php;dur={:.1}", busy as f64 / 1000.0);
    }
    response.head.fields_mut().append("Server-Timing", value);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::handler::static_files::fixture::Root;
    use crate::response::{Handler, PhpTrace};

    fn answered_by_php() -> Response {
        let mut response = Response::new(200, Handler::Php);
        response.trace.php = Some(Box::new(PhpTrace {
            queued: Duration::from_micros(200),
            busy: Arc::new(AtomicU64::new(38_000)),
            ..PhpTrace::default()
        }));
        response
    }

    #[test]
    fn a_site_in_development_tells_its_times_and_no_other_does() {
        for (development, expected) in [(true, Some(&b"queue;dur=0.2, php;dur=38.0"[..])), (false, None)] {
            let site = Root::new().with(|settings| settings.development = development).site();
            let mut response = answered_by_php();
            on_response(&site, &mut response);
            assert_eq!(response.head.fields().get("Server-Timing"), expected);
        }
    }
}
