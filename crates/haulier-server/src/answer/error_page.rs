//! The page a client sees when there is nothing else to show, and what a cause means for the client.
//!
//! In production it is short and says nothing of the inside: status and request id. While a site is being worked on it
//! says the reason in words, what helps, and what PHP had to say.

use std::io;

use haulier_http::{Handler, RequestId, Response};
use haulier_proto::status::reason_phrase;
use rustix::io::Errno;

use super::page;
use crate::filter::maintenance;
use crate::site::Site;

/// The reason for a body that is longer than its site takes.
const TOO_LARGE: &str = "body_too_large";
/// The reason for a request without TLS on a port that wants TLS.
pub(crate) const PLAIN_HTTP: &str = "plain_http";
/// Seconds after which a client may try again when every worker is busy: a queue that is full empties in seconds.
const RETRY_AFTER: &str = "5";

/// Makes the page for a status. `reason` is from the fixed list, `detail` are lines of PHP's messages; both are shown
/// by sites in development only.
pub(crate) fn respond(
    status: u16,
    reason: Option<&'static str>,
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

/// What a file that cannot be opened means for the client: status, and the reason of a 5xx.
pub(crate) fn of_file(error: &io::Error) -> (u16, Option<&'static str>) {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => (404, None),
        Some(Errno::ACCESS | Errno::PERM) => (403, None),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => (503, Some("out_of_descriptors")),
        _ => (500, Some("file_error")),
    }
}

fn short_page(status: u16, reason: Option<&str>, site: Option<&Site>, id: &RequestId) -> String {
    let mut page = begin(status);
    if let (Some(TOO_LARGE), Some(site)) = (reason, site) {
        let most = size(site.settings.limits.body);
        let sentence = format!("What was sent is larger than this site takes: at most {most}.");
        page::element(&mut page, "p", &sentence);
        return finish(page, id);
    }
    let sentence = match reason {
        Some(maintenance::REASON) => Some("We are working on this site. Please come back in a while."),
        Some(PLAIN_HTTP) => Some("This port speaks HTTPS: the address begins with https://, not http://."),
        _ => for_visitors(status),
    };
    if let Some(sentence) = sentence {
        page::element(&mut page, "p", sentence);
    }
    finish(page, id)
}

fn full_page(status: u16, reason: Option<&str>, id: &RequestId, detail: Option<&str>) -> String {
    let mut page = begin(status);
    match reason {
        Some(reason) => {
            let (what, help) = in_words(reason);
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

/// As people say it, rounded down to a tenth: what is allowed is never overstated.
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
        401 => "This page wants a name and a password.",
        403 => "You may not see this page.",
        404 => "There is nothing at this address.",
        408 => "The request took too long to arrive.",
        413 => "What was sent is larger than this site takes.",
        429 => "That was more at once than this site takes. Please wait a moment.",
        500 | 502 => "Something went wrong on our side.",
        503 => "There is more to do than can be done right now. Please try again in a moment.",
        504 => "The page took too long to make.",
        _ => return None,
    })
}

fn for_developers(status: u16) -> &'static str {
    match status {
        401 => "A route has `basic_auth`, and no name and password of its file came with the request.",
        403 => {
            "The file is there, but this process may not read it: look at its owner and mode. Or a route has `allow`, and \
             the client's address is not in it."
        }
        404 => {
            "No file or script has this name, or it is one that never leaves: a dotfile, a backup, a script that may not \
             run, a path `deny` or a route names. Without `front` nothing else is asked."
        }
        405 => "A file can be read, not written to.",
        413 => "The body is larger than the site's limit: PHP's post_max_size, or `body` in `[limits]`.",
        _ => "The request was refused as it stands.",
    }
}

/// What happened, and what helps.
fn in_words(reason: &str) -> (&'static str, &'static str) {
    match reason {
        "pool_full" => (
            "Every PHP worker was busy, and none became free in time.",
            "Look for slow pages in the log, or give the pool more `workers`.",
        ),
        TOO_LARGE => (
            "The body is longer than this site takes.",
            "Below is its length, the limit, and the setting that says so. For uploads PHP has upload_max_filesize as well.",
        ),
        "php_crashed" => (
            "The PHP worker ended before its answer was complete. A new one has taken its place.",
            "Its last message is below, if it had one; an extension is the usual suspect, a kill for memory the next.",
        ),
        "php_timeout" => (
            "PHP had not begun to answer when the pool's `timeout` was over, so the worker was ended.",
            "Make the page faster, or raise `timeout` of the pool.",
        ),
        "connect_refused" => (
            "PHP could not be reached.",
            "Is the process behind `servers` running, and is its socket the one that is written there?",
        ),
        "bad_response" => (
            "What PHP sent is not an HTTP response: its header lines are malformed or too large.",
            "Look for output of the script that gets between its header lines.",
        ),
        "no_site" => ("No site has this host name.", "Look at `hosts` of the sites."),
        "bad_path" => (
            "The path can be read in two ways, so it is not read at all.",
            "A zero or control byte, `%2F`, a `%` without two digits, or `..` above the root is in it.",
        ),
        "front_controller_missing" => (
            "The script that answers for everything is not there, or may not run.",
            "Look at `front` and `root` of the site.",
        ),
        "php_error" => (
            "The script ended with an error and said nothing to the client.",
            "What it wrote to PHP's error log is below.",
        ),
        "rate_limited" => (
            "This address asked more often than the site allows.",
            "Look at `requests_per_ip` in `[limits]` and at `rate` of the routes.",
        ),
        "maintenance" => (
            "The site is closed: the file that says so is there.",
            "Remove the file `maintenance.file` names, or add this address to `maintenance.allow`.",
        ),
        "redirect_loop" => (
            "Scripts of this site handed the request from one to the next without end.",
            "Look for `Location:` with a path, sent without a status.",
        ),
        "sendfile_denied" => (
            "A script named a file that may not be sent. Below is each path that was tried.",
            "`roots` and `map` in `[site.NAME.sendfile]` say where such files may lie.",
        ),
        "image_queue_full" => (
            "Every image worker was busy, and enough requests wait for one already.",
            "Give the site more `workers` or a longer `queue` in `[site.NAME.images]`, or a larger cache.",
        ),
        "image_worker_failed" => (
            "The process that makes images did not do its work.",
            "The log says why; it is not the image's fault.",
        ),
        "store_damaged" => (
            "The stored image is not what its id says.",
            "Uploading the right file again heals it; `haulier image verify` finds others.",
        ),
        "store_failed" => (
            "The store of the originals did not answer as it should.",
            "The log has its words; `haulier check --live` asks it.",
        ),
        "store_full" => (
            "The store of the originals has no room left.",
            "Make room there, or move `store` to a larger place.",
        ),
        "out_of_descriptors" => (
            "This process has no file descriptors left.",
            "Raise its limit (LimitNOFILE, ulimit -n) or lower `connections`.",
        ),
        "file_error" => (
            "The file is there and cannot be read.",
            "The system's log knows more about the disk.",
        ),
        _ => (
            "The request could not be answered.",
            "The log has a line with this request's id.",
        ),
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
    fn production_says_status_and_request_id_only() {
        let site = fixture::Root::new().site();
        let response = respond(
            502,
            Some("php_crashed"),
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
        assert_eq!(response.trace.reason, Some("php_crashed"));
        assert_eq!(response.head.fields().get("Cache-Control"), Some(&b"no-store"[..]));
    }

    #[test]
    fn development_says_reason_help_and_messages_as_text() {
        let site = fixture::Root::new().with(|settings| settings.development = true).site();
        let detail = "PHP Warning: <b>x</b>\nsecond line";
        let page = text(&respond(502, Some("php_crashed"), Some(&site), ID, Some(detail)));
        assert!(page.contains("&lt;b&gt;x&lt;/b&gt;\nsecond line"), "{page}");
        assert!(
            page.contains("The PHP worker ended") && page.contains("php_crashed"),
            "{page}"
        );
    }

    #[test]
    fn who_sent_too_much_is_told_how_much_it_may_be() {
        let site = fixture::Root::new()
            .with(|settings| settings.limits.body = 8 << 20)
            .site();
        let page = text(&respond(413, Some(TOO_LARGE), Some(&site), ID, Some("the inside")));
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
    fn a_busy_server_says_when_to_come_again() {
        let response = respond(503, Some("pool_full"), None, ID, None);
        assert_eq!(response.head.fields().get("Retry-After"), Some(RETRY_AFTER.as_bytes()));
        let response = respond(404, None, None, ID, None);
        assert!(!response.head.fields().contains("Retry-After") && !response.head.fields().contains("Cache-Control"));
    }

    #[test]
    fn what_cannot_be_opened_is_the_clients_matter_only_if_it_may_not_be_read() {
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
