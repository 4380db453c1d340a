//! Pages for failed requests, and the status of a file that cannot be opened.
//!
//! In production a page is short and reveals nothing: status and request identifier. In development it explains the
//! reason, advises, and shows PHP's messages.

use std::io;

use haulier_http::{Handler, Reason, RequestId, Response};
use haulier_proto::status::reason_phrase;
use rustix::io::Errno;

use super::page;
use crate::site::Site;

/// Seconds until a client should retry if every worker is busy: a full queue empties in seconds.
const RETRY_AFTER: &str = "5";

/// The page for a status. Sites in development show the reason and `detail`.
pub(crate) fn respond(
    status: u16,
    reason: Option<Reason>,
    site: Option<&Site>,
    id: &RequestId,
    detail: Option<&str>,
) -> Response {
    let development = site.is_some_and(|site| site.settings.development);
    let page = if development {
        full_page(status, reason, id, detail)
    } else {
        short_page(status, reason, site, id)
    };
    let mut response = Response::new(status, Handler::Error)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("X-Request-Id", id.to_string())
        .body(page);
    response.trace.reason = reason;
    if status >= 500 {
        response = response.with("Cache-Control", "no-store");
    }
    if status == 503 {
        response = response.with("Retry-After", RETRY_AFTER);
    }
    response
}

/// Status for a file that cannot be opened, with a reason for a 5xx.
pub(crate) fn of_file(error: &io::Error) -> (u16, Option<Reason>) {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => (404, None),
        Some(Errno::ACCESS | Errno::PERM) => (403, None),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => (503, Some(Reason::OutOfDescriptors)),
        _ => (500, Some(Reason::FileError)),
    }
}

fn short_page(status: u16, reason: Option<Reason>, site: Option<&Site>, id: &RequestId) -> String {
    let mut page = begin(status);
    if let (Some(Reason::BodyTooLarge), Some(site)) = (reason, site) {
        let most = size(site.settings.limits.body);
        let sentence =
            format!("The upload is too large: this site accepts at most {most}. Please choose a smaller file.");
        page::element(&mut page, "p", &sentence);
        return finish(page, id);
    }
    let sentence = match reason {
        Some(Reason::Maintenance) => Some("This site is closed for maintenance. Please come back in a while."),
        Some(Reason::PlainHttp) => {
            Some("This port needs HTTPS. Please begin the address with https:// instead of http://.")
        }
        _ => for_visitors(status),
    };
    if let Some(sentence) = sentence {
        page::element(&mut page, "p", sentence);
    }
    finish(page, id)
}

fn full_page(status: u16, reason: Option<Reason>, id: &RequestId, detail: Option<&str>) -> String {
    let mut page = begin(status);
    match reason {
        Some(reason) => {
            let (what, help) = reason.explanation();
            page::element(&mut page, "p", what);
            page::element(&mut page, "p", help);
            page::element(&mut page, "small", &format!("Reason: {reason}"));
        }
        None => page::element(&mut page, "p", for_developers(status)),
    }
    if let Some(detail) = detail.filter(|detail| !detail.trim().is_empty()) {
        page::element(&mut page, "pre", detail.trim_end());
    }
    finish(page, id)
}

fn begin(status: u16) -> String {
    let title = format!("{status} {}", reason_phrase(status));
    let mut page = page::begin(title.trim_end());
    page::element(&mut page, "h1", title.trim_end());
    page
}

fn finish(mut page: String, id: &RequestId) -> String {
    page::element(&mut page, "p", &format!("Request {id}"));
    page::end(&mut page);
    page
}

/// A size for people, rounded down to a tenth so that a limit is never overstated.
fn size(bytes: u64) -> String {
    let of = |unit: u64| (bytes * 10 / unit) as f64 / 10.0;
    match bytes {
        0..=0x3ff => format!("{bytes} bytes"),
        0x400..=0xf_ffff => format!("{} KiB", of(1 << 10)),
        0x10_0000..=0x3fff_ffff => format!("{} MiB", of(1 << 20)),
        _ => format!("{} GiB", of(1 << 30)),
    }
}

fn for_visitors(status: u16) -> Option<&'static str> {
    Some(match status {
        401 => "This page needs a name and a password. Please reload it and enter them.",
        403 => "You do not have access to this page.",
        404 => "There is no page at this address. Please check the link.",
        408 => "Your browser took too long to send the request. Please try again.",
        413 => "The upload is too large for this site. Please choose a smaller file.",
        429 => "You have sent too many requests in a short time. Please wait a moment.",
        500 | 502 => "An error occurred on our side. Please try again later.",
        503 => "The site is overloaded. Please try again in a moment.",
        504 => "The page took too long to load. Please try again later.",
        _ => return None,
    })
}

fn for_developers(status: u16) -> &'static str {
    match status {
        401 => "A route has `basic_auth`, and the request came without a name and password of its file.",
        403 => {
            "The file exists, but this process may not read it: look at its owner and mode. Or a route has `allow`, and \
             the client's address is not in it."
        }
        404 => {
            "No file or script has this name, or it is never served: a dotfile, a backup, a script that may not run, a path \
             in `deny` or of a route. Without `front` no script answers for it."
        }
        405 => "Files accept GET and HEAD only.",
        413 => "The body is larger than the site's limit: PHP's post_max_size, or `body` in `[limits]`.",
        _ => "The request was refused.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use haulier_http::Body;

    const ID: &RequestId = &RequestId::Own {
        thread: 0x7f3a,
        number: 1,
    };

    fn text(response: &Response) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("a page is text"),
            body => panic!("a page is bytes, not {body:?}"),
        }
    }

    #[test]
    fn production_shows_only_status_and_request_id() {
        let site = fixture::Root::new().site();
        let response = respond(
            502,
            Some(Reason::PhpCrashed),
            Some(&site),
            ID,
            Some("PHP Fatal error in /srv/secret.php"),
        );
        let page = text(&response);
        assert!(
            page.contains("502 Bad Gateway")
                && page.contains(&format!("Request {ID}"))
                && page.contains("0000000000007f3a"),
            "{page}"
        );
        assert!(!page.contains("secret") && !page.contains("php_crashed"), "{page}");
        assert_eq!(response.trace.reason, Some(Reason::PhpCrashed));
        assert_eq!(response.head.fields().get("Cache-Control"), Some(&b"no-store"[..]));
    }

    #[test]
    fn development_shows_reason_advice_and_messages_as_text() {
        let site = fixture::Root::new().with(|settings| settings.development = true).site();
        let detail = "PHP Warning: <b>x</b>\nsecond line";
        let page = text(&respond(502, Some(Reason::PhpCrashed), Some(&site), ID, Some(detail)));
        assert!(page.contains("&lt;b&gt;x&lt;/b&gt;\nsecond line"), "{page}");
        assert!(
            page.contains("The PHP worker ended") && page.contains("php_crashed"),
            "{page}"
        );
    }

    #[test]
    fn a_visitor_with_too_large_an_upload_is_told_the_limit() {
        let site = fixture::Root::new()
            .with(|settings| settings.limits.body = 8 << 20)
            .site();
        let page = text(&respond(
            413,
            Some(Reason::BodyTooLarge),
            Some(&site),
            ID,
            Some("the inside"),
        ));
        assert!(page.contains("at most 8 MiB.") && !page.contains("inside"), "{page}");
        let rows = [
            (100, "100 bytes"),
            (1536, "1.5 KiB"),
            (0x10_0000 - 1, "1023.9 KiB"),
            (3 << 30, "3 GiB"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn a_busy_server_says_when_to_retry() {
        let response = respond(503, Some(Reason::PoolFull), None, ID, None);
        assert_eq!(response.head.fields().get("Retry-After"), Some(RETRY_AFTER.as_bytes()));
        let response = respond(404, None, None, ID, None);
        assert!(!response.head.fields().contains("Retry-After") && !response.head.fields().contains("Cache-Control"));
    }

    #[test]
    fn only_a_missing_or_unreadable_file_is_a_4xx() {
        let rows = [
            (Errno::ACCESS, 403),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::IO, 500),
        ];
        for (error, status) in rows {
            let (found, reason) = of_file(&error.into());
            assert_eq!(found, status, "{error}");
            assert_eq!(reason.is_some(), status >= 500, "every 5xx has a reason");
        }
    }
}
