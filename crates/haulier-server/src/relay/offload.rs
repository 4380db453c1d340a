//! Offload: the site's rule recognises bodies that scripts pass on themselves (`readfile`, `fpassthru`).
//!
//! Such a body is read at the back end's speed. If it is complete soon enough, it is sent with its length, and with
//! ranges if the script allows them, like any file. Otherwise it is sent while the rest is still coming.

use std::time::Duration;

use haulier_http::{FileSlice, Handler, Response};
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};

use super::handoff::FileResponse;
use crate::body::Spool;
use crate::site::OffloadSettings;

/// Longest wait for the last byte. Most files pass through PHP within milliseconds.
const TIMEOUT: Duration = Duration::from_millis(250);
/// The same if only a complete body can answer the request: a range of it.
const TIMEOUT_FOR_RANGE: Duration = Duration::from_secs(10);

/// True if the rule applies to this response; its length is checked once it is known.
pub(super) fn applies(rule: &OffloadSettings, head: &RequestHead, status: u16, fields: &Fields) -> bool {
    status == 200
        && head.method() != Method::Head
        && (is_listed_type(rule, fields) || has_listed_extension(rule, head, fields))
}

fn is_listed_type(rule: &OffloadSettings, fields: &Fields) -> bool {
    let value = fields.get("Content-Type").unwrap_or_default();
    let kind = value
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii()
        .to_ascii_lowercase();
    rule.lists(&kind)
}

fn has_listed_extension(rule: &OffloadSettings, head: &RequestHead, fields: &Fields) -> bool {
    let is_listed = |name: &[u8]| extension(name).is_some_and(|extension| rule.extensions.contains(&extension));
    is_listed(head.path())
        || fields
            .get("Content-Disposition")
            .and_then(file_name)
            .is_some_and(is_listed)
}

/// The extension of a name in lower case, without its dot.
fn extension(name: &[u8]) -> Option<String> {
    let last = name.rsplit(|&byte| byte == b'/').next()?;
    let dot = last.iter().rposition(|&byte| byte == b'.')?;
    Some(String::from_utf8_lossy(&last[dot + 1..]).to_ascii_lowercase())
}

/// The name in `attachment; filename="a.zip"`, or in `filename*=UTF-8''a.zip` (RFC 6266 §4.1).
fn file_name(disposition: &[u8]) -> Option<&[u8]> {
    let parameters = disposition.split(|&byte| byte == b';').skip(1);
    parameters
        .filter_map(|parameter| {
            let parameter = parameter.trim_ascii();
            let equals = parameter.iter().position(|&byte| byte == b'=')?;
            let name = parameter[..equals].trim_ascii();
            let is_name = name.eq_ignore_ascii_case(b"filename") || name.eq_ignore_ascii_case(b"filename*");
            let value = parameter[equals + 1..].trim_ascii();
            is_name.then(|| {
                value
                    .strip_prefix(b"\"")
                    .map_or(value, |value| value.strip_suffix(b"\"").unwrap_or(value))
            })
        })
        .next()
}

/// Longest wait for a complete body.
pub(super) fn timeout(head: &RequestHead, fields: &Fields) -> Duration {
    let wants_range = head.fields().known(Known::Range).is_some() && allows_ranges(head, fields);
    if wants_range { TIMEOUT_FOR_RANGE } else { TIMEOUT }
}

/// True if ranges may be answered. The next request runs the script again, so it must declare its body repeatable: by a
/// validator, or by Accept-Ranges, which scripts that serve ranges send with every 200.
fn allows_ranges(head: &RequestHead, fields: &Fields) -> bool {
    let said = fields.get("Accept-Ranges");
    let has_validator = fields.contains("ETag") || fields.contains("Last-Modified");
    head.method() == Method::Get && said.map_or(has_validator, |said| said.trim_ascii().eq_ignore_ascii_case(b"bytes"))
}

/// True if only a file can answer the request: for a range, or a condition on validators.
pub(super) fn needs_file(head: &RequestHead, fields: &Fields) -> bool {
    let asked = [
        Known::Range,
        Known::IfRange,
        Known::IfMatch,
        Known::IfNoneMatch,
        Known::IfModifiedSince,
        Known::IfUnmodifiedSince,
    ];
    asked.iter().any(|&known| head.fields().known(known).is_some()) && allows_ranges(head, fields)
}

/// The response with a complete body in several places. The next request may ask for a range.
pub(super) fn respond_in_pieces(head: &RequestHead, mut fields: Fields, spool: Spool) -> Response {
    if allows_ranges(head, &fields) {
        fields.remove("Content-Range");
        fields.set("Accept-Ranges", "bytes");
    }
    let mut response = Response::new(200, Handler::Offloaded).body(spool);
    *response.head.fields_mut() = fields;
    response
}

/// The response with a body whose rest is still to come.
pub(super) fn respond_early(fields: Fields, spool: Spool) -> Response {
    let mut response = Response::new(200, Handler::Offloaded).body(spool);
    *response.head.fields_mut() = fields;
    response
}

/// The response with a complete body. Ranges need a whole file.
pub(super) fn respond(head: &RequestHead, fields: Fields, body: FileSlice) -> Response {
    if body.range == (0..body.file.length()) && allows_ranges(head, &fields) {
        return FileResponse::with_validators(body.file, fields).respond(head, 200);
    }
    let mut response = Response::new(200, Handler::Offloaded).body(body);
    *response.head.fields_mut() = fields;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture::head;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name, value);
        }
        fields
    }

    fn rule(types: &[&str], extensions: &[&str]) -> OffloadSettings {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        OffloadSettings {
            types: owned(types),
            extensions: owned(extensions),
            min_size: 0,
        }
    }

    #[test]
    fn a_rule_knows_types_by_name_and_by_family() {
        let request = head("GET", "/get.php", "");
        let kind = |value| fields(&[("Content-Type", value)]);
        let rule = rule(&["video/*", "application/pdf"], &[]);
        for value in [
            "video/mp4",
            "VIDEO/MP4",
            "application/pdf; charset=x",
            " application/pdf",
        ] {
            assert!(applies(&rule, &request, 200, &kind(value)), "{value}");
        }
        for value in ["text/html", "application/pdfx", "image/video/", ""] {
            assert!(!applies(&rule, &request, 200, &kind(value)), "{value}");
        }
    }

    #[test]
    fn a_rule_knows_extensions_of_the_path_and_of_the_disposition() {
        let rule = rule(&[], &["zip"]);
        let plain = Fields::new();
        assert!(applies(&rule, &head("GET", "/get.php/a.ZIP", ""), 200, &plain));
        assert!(!applies(&rule, &head("GET", "/zip", ""), 200, &plain));
        let request = head("GET", "/get.php", "");
        for value in [
            "attachment; filename=\"a.zip\"",
            "attachment;FileName=a.zip",
            "attachment; filename*=UTF-8''a.zip",
        ] {
            assert!(
                applies(&rule, &request, 200, &fields(&[("Content-Disposition", value)])),
                "{value}"
            );
        }
        for value in ["attachment", "attachment; filename=\"a.zip.php\"", "a.zip"] {
            assert!(
                !applies(&rule, &request, 200, &fields(&[("Content-Disposition", value)])),
                "{value}"
            );
        }
    }

    #[test]
    fn only_a_200_with_a_body_is_offloaded() {
        let rule = rule(&["*"], &[]);
        let any = fields(&[("Content-Type", "a/b")]);
        assert!(applies(&rule, &head("POST", "/", ""), 200, &any));
        assert!(!applies(&rule, &head("GET", "/", ""), 206, &any));
        assert!(!applies(&rule, &head("GET", "/", ""), 404, &any));
        assert!(!applies(&rule, &head("HEAD", "/", ""), 200, &any));
    }

    #[test]
    fn ranges_need_the_word_of_the_script() {
        let get = head("GET", "/", "");
        assert!(!allows_ranges(&get, &fields(&[])));
        assert!(allows_ranges(&get, &fields(&[("Accept-Ranges", "bytes")])));
        assert!(allows_ranges(&get, &fields(&[("ETag", "\"a\"")])));
        assert!(allows_ranges(
            &get,
            &fields(&[("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")])
        ));
        assert!(!allows_ranges(
            &get,
            &fields(&[("ETag", "\"a\""), ("Accept-Ranges", "none")])
        ));
        assert!(!allows_ranges(&head("POST", "/", ""), &fields(&[("ETag", "\"a\"")])));
    }
}
