//! Error documents: the site's `errors`, pages from files or scripts for statuses of the server. A script's own error
//! page is left alone. An empty 5xx of a script gets a page like an error of the server; in development it shows the
//! script's stderr.

use std::sync::Arc;

use haulier_http::{Body, FileSlice, Handler, Reason, Request, RequestId, Response};

use super::php::{self, PhpCall, PhpOutcome};
use crate::answer::error_page;
use crate::files::{FileEntry, FoundPath};
use crate::site::Site;
use crate::thread::Thread;

/// Fields that belong to the status, whoever makes the page.
const OF_THE_STATUS: [&str; 5] = [
    "Allow",
    "Cache-Control",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
];

/// Fields about the body that was not sent.
const OF_THE_BODY: [&str; 6] = [
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Content-Disposition",
    "ETag",
    "Last-Modified",
];

/// True if the site has a page of its own for this response.
pub(crate) fn is_wanted(site: &Site, response: &Response) -> bool {
    page(site, response).is_some()
}

/// Replaces the page by the site's own, if there is one and it works.
pub(crate) async fn apply(thread: &Thread, site: &Arc<Site>, request: &Request, response: Response) -> Response {
    let is_silent = is_silent_failure(&response);
    let response = if is_silent {
        explained(site, &request.id, response)
    } else {
        response
    };
    let page = match is_silent {
        // It would hide the cause.
        true if site.settings.development => None,
        true => page_of_status(site, response.status),
        false => page(site, &response),
    };
    let Some(page) = page else {
        return response;
    };
    match thread
        .caches
        .files
        .find(&site.files, page.as_bytes(), thread.io.clock.coarse())
    {
        FoundPath::File(entry) => from_file(response, &entry),
        FoundPath::Script(script) => {
            let call = PhpCall::new(script).error(response.status);
            // On the heap: every waiting request has room for this future, and such a page is rare.
            match Box::pin(php::respond(thread, site, request, &call)).await {
                PhpOutcome::Response(made) if is_made(&made) => from_script(&response, made),
                // The page failed as well; the built-in page cannot.
                _ => response,
            }
        }
        _ => {
            tracing::error!(site = site.settings.name, page, "cannot make the error page");
            response
        }
    }
}

/// True if the script made a page, by itself or by a hand-off.
fn is_made(response: &Response) -> bool {
    let is_answer = matches!(
        response.trace.handler,
        Handler::Php | Handler::Handed | Handler::Offloaded
    );
    is_answer && !matches!(response.body, Body::Empty)
}

/// True for an empty 5xx, as PHP sends it with `display_errors` off.
fn is_silent_failure(response: &Response) -> bool {
    response.trace.handler == Handler::Php && response.status >= 500 && matches!(response.body, Body::Empty)
}

/// The built-in page for a script that has none. Fields that do not concern the body remain: cookies, CORS,
/// Retry-After.
fn explained(site: &Site, id: &RequestId, mut response: Response) -> Response {
    let stderr = response.trace.backend.as_ref().map(|php| php.stderr.as_str());
    let page = error_page::respond(response.status, response.trace.reason, Some(site), id, stderr);
    let fields = response.head.fields_mut();
    fields.retain(|name, _| !OF_THE_BODY.iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes())));
    for (name, value) in page.head.fields().iter() {
        if !(name.eq_ignore_ascii_case(b"Retry-After") && fields.contains(name)) {
            fields.set(name, value);
        }
    }
    response.body = page.body;
    response
}

fn page<'s>(site: &'s Site, response: &Response) -> Option<&'s str> {
    if !matches!(response.trace.handler, Handler::Error | Handler::Denied) {
        return None;
    }
    if response.trace.reason == Some(Reason::Maintenance)
        && let Some(page) = site
            .settings
            .filters
            .maintenance
            .as_ref()
            .and_then(|settings| settings.page.as_deref())
    {
        return Some(page);
    }
    page_of_status(site, response.status)
}

fn page_of_status(site: &Site, status: u16) -> Option<&str> {
    let pages = &site.settings.error_pages;
    let page = pages.iter().find(|(of, _)| *of == status);
    page.map(|(_, page)| page.as_str())
}

fn from_file(mut response: Response, entry: &FileEntry) -> Response {
    response.head.fields_mut().set("Content-Type", &*entry.content_type);
    response.body = FileSlice::whole(entry.file.clone()).into();
    response
}

fn from_script(ours: &Response, mut made: Response) -> Response {
    made.status = ours.status;
    if let (Some(failed), Some(php)) = (&ours.trace.backend, &mut made.trace.backend)
        && failed.message.is_some()
    {
        // The log is about the script that failed, not about the error page.
        php.message.clone_from(&failed.message);
        php.stderr.clone_from(&failed.stderr);
    }
    made.trace.handler = ours.trace.handler;
    made.trace.reason = ours.trace.reason;
    let lines = ours.head.fields();
    for name in OF_THE_STATUS {
        if let Some(value) = lines.get(name) {
            made.head.fields_mut().set(name, value);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture::Root;
    use crate::site::Maintenance;
    use haulier_http::BackendTrace;

    const ID: RequestId = RequestId::Own { thread: 1, number: 0 };

    fn site() -> Site {
        Root::new()
            .with(|settings| {
                settings.error_pages = vec![(404, "/404.html".into()), (503, "/busy.html".into())];
                settings.filters.maintenance = Some(Maintenance {
                    file: "/nowhere".into(),
                    page: Some("/closed.html".into()),
                    allow: Vec::new(),
                    retry_after: std::time::Duration::from_secs(60),
                });
            })
            .site()
    }

    #[test]
    fn status_and_reason_say_which_page_is_shown() {
        let rows = [
            (404, None, Some("/404.html")),
            (503, Some(Reason::PoolFull), Some("/busy.html")),
            (503, Some(Reason::Maintenance), Some("/closed.html")),
            (500, Some(Reason::FileError), None),
        ];
        for (status, reason, expected) in rows {
            let response = error_page::respond(status, reason, None, &ID, None);
            assert_eq!(page(&site(), &response), expected, "{status} {reason:?}");
        }
    }

    #[test]
    fn a_script_that_fails_without_a_word_is_explained_in_development() {
        let site = Root::new().with(|settings| settings.development = true).site();
        let mut response = Response::new(500, Handler::Php);
        response.trace.reason = Some(Reason::PhpError);
        response.trace.backend = Some(Box::new(BackendTrace {
            stderr: "PHP Fatal error:  Uncaught Error: <b>\n#0 {main}".into(),
            ..BackendTrace::default()
        }));
        assert!(is_silent_failure(&response));
        let page = explained(&site, &ID, response);
        let Body::Bytes(text) = &page.body else {
            panic!("a page")
        };
        let text = String::from_utf8_lossy(text);
        assert!(text.contains("Uncaught Error: &lt;b&gt;\n#0 {main}"), "{text}");
        assert_eq!((page.status, page.trace.handler), (500, Handler::Php));
        assert!(!is_silent_failure(
            &Response::new(500, Handler::Php).body("sorry".to_owned())
        ));
        assert!(!is_silent_failure(&Response::new(404, Handler::Php)));
    }

    #[test]
    fn a_page_in_place_of_an_empty_error_keeps_what_the_script_said_otherwise() {
        let fields = [
            ("Content-Type", "application/json"),
            ("Access-Control-Allow-Origin", "https://app.example"),
            ("Retry-After", "3600"),
            ("Cache-Control", "max-age=60"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
        ];
        let failed = fields
            .into_iter()
            .fold(Response::new(503, Handler::Php), |response, (name, value)| {
                response.with(name, value)
            });
        let page = explained(&site(), &ID, failed);
        let fields = page.head.fields();
        let expected = [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Access-Control-Allow-Origin", "https://app.example"),
            ("Retry-After", "3600"),
            ("Cache-Control", "no-store"),
            ("X-Request-Id", "00000000000000000000000000000001"),
        ];
        for (name, value) in expected {
            assert_eq!(fields.get_all(name).collect::<Vec<_>>(), [value.as_bytes()], "{name}");
        }
        assert_eq!(fields.get_all("Set-Cookie").count(), 2);
    }

    #[test]
    fn what_php_answers_is_left_alone() {
        assert_eq!(page(&site(), &Response::new(404, Handler::Php)), None);
    }

    #[test]
    fn the_fields_of_the_status_stay_with_it() {
        let ours = error_page::respond(503, Some(Reason::PoolFull), None, &ID, None);
        let made = Response::new(200, Handler::Php)
            .with("Content-Type", "text/plain")
            .with("Retry-After", "999");
        let made = from_script(&ours, made);
        assert_eq!((made.status, made.trace.reason), (503, Some(Reason::PoolFull)));
        let fields = made.head.fields();
        assert_eq!(fields.get("Content-Type"), Some(&b"text/plain"[..]));
        assert_eq!(fields.get("Retry-After"), Some(&b"5"[..]));
        assert_eq!(
            fields.get("X-Request-Id"),
            Some(&b"00000000000000000000000000000001"[..])
        );
    }
}
