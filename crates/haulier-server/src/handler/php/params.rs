//! The CGI variables of a request (RFC 3875 §4.1, with those of php-fpm and nginx).
//!
//! SCRIPT_FILENAME always names a file that was opened, and PATH_INFO is split here, so PHP never guesses it. Only
//! field lines become `HTTP_*`. A name with an underscore is dropped, since it would pass for another, and so is Proxy
//! (httpoxy, CVE-2016-5385).

use std::borrow::Cow;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

use haulier_http::{Request, RequestId};
use haulier_proto::fastcgi::params::{PairTooLong, ParamsWriter};
use haulier_proto::field::Known;
use haulier_proto::head::split_port;

use super::PhpCall;
use crate::compress::tag;
use crate::site::{Site, SitePhp};

/// Writes all parameters of one request.
pub(super) fn write(
    out: &mut ParamsWriter<'_>,
    site: &Site,
    php: &SitePhp,
    request: &Request,
    call: &PhpCall,
    body_length: u64,
) -> Result<(), PairTooLong> {
    out.push_encoded(&php.params);
    write_script(out, site, php, call)?;
    write_request_line(out, request, call)?;
    write_addresses(out, request)?;
    write_login(out, call)?;
    write_id(out, request)?;
    let mut number = Number::default();
    if body_length > 0 || (request.body_length != Some(0) && !call.is_bodiless()) {
        out.push(b"CONTENT_LENGTH", number.of(body_length))?;
    } else {
        out.push(b"CONTENT_LENGTH", b"")?;
    }
    out.push(
        b"CONTENT_TYPE",
        request.head.fields().known(Known::ContentType).unwrap_or_default(),
    )?;
    write_fields(out, request)
}

fn write_script(out: &mut ParamsWriter<'_>, site: &Site, php: &SitePhp, call: &PhpCall) -> Result<(), PairTooLong> {
    let script = &call.script;
    let document_root = php.settings.remote_root.as_deref().unwrap_or(&site.files.root);
    match php
        .settings
        .remote_root
        .as_deref()
        .zip(script.filename.strip_prefix(&site.files.root).ok())
    {
        Some((remote, relative)) => out.push(b"SCRIPT_FILENAME", remote.join(relative).as_os_str().as_bytes())?,
        None => out.push(b"SCRIPT_FILENAME", script.filename.as_os_str().as_bytes())?,
    }
    out.push(b"SCRIPT_NAME", &script.name)?;
    if !script.path_info.is_empty() {
        out.push(b"PATH_INFO", &script.path_info)?;
        let mut translated = document_root.as_os_str().as_bytes().to_vec();
        translated.extend_from_slice(&script.path_info);
        out.push(b"PATH_TRANSLATED", &translated)?;
    }
    let mut document_uri = script.name.clone();
    document_uri.extend_from_slice(&script.path_info);
    out.push(b"DOCUMENT_URI", &document_uri)
}

fn write_request_line(out: &mut ParamsWriter<'_>, request: &Request, call: &PhpCall) -> Result<(), PairTooLong> {
    let head = &request.head;
    if let Some(target) = &call.target {
        out.push(b"REQUEST_METHOD", b"GET")?;
        out.push(b"REQUEST_URI", target)?;
        out.push(b"QUERY_STRING", &call.query)?;
    } else {
        let method = if call.error.is_some() {
            b"GET"
        } else {
            head.method_name()
        };
        out.push(b"REQUEST_METHOD", method)?;
        out.push(b"QUERY_STRING", &call.query)?;
        // Path and query, even if the client sent an absolute URI (RFC 9112 §3.2.2).
        let mut uri = head.path().to_vec();
        if let Some(query) = head.query() {
            uri.push(b'?');
            uri.extend_from_slice(query);
        }
        out.push(b"REQUEST_URI", &uri)?;
    }
    out.push(b"SERVER_PROTOCOL", head.version().as_str().as_bytes())?;
    let scheme: &[u8] = if request.peer.tls { b"https" } else { b"http" };
    out.push(b"REQUEST_SCHEME", scheme)?;
    if request.peer.tls {
        out.push(b"HTTPS", b"on")?;
    }
    Ok(())
}

/// RFC 3875 §4.1.1, §4.1.11. Apache sets REDIRECT_STATUS for an ErrorDocument.
fn write_login(out: &mut ParamsWriter<'_>, call: &PhpCall) -> Result<(), PairTooLong> {
    if let Some(user) = &call.user {
        out.push(b"AUTH_TYPE", b"Basic")?;
        out.push(b"REMOTE_USER", user.as_bytes())?;
    }
    if let Some(status) = call.error {
        out.push(b"REDIRECT_STATUS", Number::default().of(status.into()))?;
    }
    Ok(())
}

/// Under nginx's usual name, and under the one that frameworks read. The latter never comes from the client.
fn write_id(out: &mut ParamsWriter<'_>, request: &Request) -> Result<(), PairTooLong> {
    let mut room = [0; RequestId::DIGITS];
    let id = request.id.text(&mut room).as_bytes();
    out.push(b"REQUEST_ID", id)?;
    out.push(b"HTTP_X_REQUEST_ID", id)
}

fn write_addresses(out: &mut ParamsWriter<'_>, request: &Request) -> Result<(), PairTooLong> {
    let mut number = Number::default();
    out.push(b"REMOTE_ADDR", number.text(request.peer.remote.ip()))?;
    out.push(b"REMOTE_PORT", number.of(request.peer.remote.port().into()))?;
    out.push(b"SERVER_ADDR", number.text(request.peer.local.ip()))?;
    let (host, _) = split_port(request.head.authority().unwrap_or_default());
    if host.is_empty() {
        out.push(b"SERVER_NAME", number.text(request.peer.local.ip()))?;
    } else {
        out.push(b"SERVER_NAME", host)?;
    }
    // RFC 3875 §4.1.15: the port that received the request. HTTP_HOST has the client's port.
    out.push(b"SERVER_PORT", number.of(request.peer.local.port().into()))
}

/// Field lines as `HTTP_*`. Lines of the same name are joined (RFC 9110 §5.3), Cookie with `; `.
fn write_fields(out: &mut ParamsWriter<'_>, request: &Request) -> Result<(), PairTooLong> {
    let fields = request.head.fields();
    let mut name_buffer = [0_u8; 256];
    let mut joined = Vec::new();
    // The authority of an absolute URI replaces the Host field (RFC 9112 §3.2.2).
    if let Some(authority) = request.head.authority() {
        out.push(b"HTTP_HOST", authority)?;
    }
    for (number, (name, value)) in fields.iter().enumerate() {
        let Some(variable) = variable_name(name, &mut name_buffer) else {
            continue;
        };
        if request.peer.proxy.is_none() && is_forwarding(name) {
            continue;
        }
        let same_name = |other: &[u8]| other.eq_ignore_ascii_case(name);
        if fields.iter().take(number).any(|(earlier, _)| same_name(earlier)) {
            continue;
        }
        let mut rest = fields
            .iter()
            .skip(number + 1)
            .filter(|(later, _)| same_name(later))
            .peekable();
        if rest.peek().is_none() {
            out.push(variable, &as_php_wrote(variable, value))?;
            continue;
        }
        let separator: &[u8] = if variable == b"HTTP_COOKIE" { b"; " } else { b", " };
        joined.clear();
        joined.extend_from_slice(value);
        for (_, more) in rest {
            joined.extend_from_slice(separator);
            joined.extend_from_slice(more);
        }
        out.push(variable, &as_php_wrote(variable, &joined))?;
    }
    Ok(())
}

/// Entity tags without the suffix that coding added.
fn as_php_wrote<'v>(variable: &[u8], value: &'v [u8]) -> Cow<'v, [u8]> {
    match variable {
        b"HTTP_IF_NONE_MATCH" | b"HTTP_IF_MATCH" => tag::restored(value),
        _ => Cow::Borrowed(value),
    }
}

/// Fields that do not become variables: they have variables of their own, belong to the connection, or are reserved for
/// servers, so no client may set them.
const DROPPED: [&str; 11] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "expect",
    "proxy",
    "x-sendfile-type",
    "x-accel-mapping",
    "x-accel-redirect",
    "x-request-id",
];

/// True for fields that only a proxy may set. Applications would believe them from any client.
fn is_forwarding(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F'))
        && (name.eq_ignore_ascii_case(b"forwarded")
            || name.eq_ignore_ascii_case(b"x-real-ip")
            || name
                .get(..PREFIX.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)))
}

/// `Accept-Language` → `HTTP_ACCEPT_LANGUAGE`; `None` for a field to drop.
fn variable_name<'b>(name: &[u8], buffer: &'b mut [u8; 256]) -> Option<&'b [u8]> {
    const PREFIX: &[u8] = b"HTTP_";
    let is_dropped = name.contains(&b'_')
        || name.len() > buffer.len() - PREFIX.len()
        || DROPPED
            .iter()
            .any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes()));
    // PHP turns `.` and others into `_`: `X-Real.IP` would pass for `X-Real-IP`. nginx drops such names, too.
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if is_dropped || !name.iter().all(is_plain) {
        return None;
    }
    let length = PREFIX.len() + name.len();
    buffer[..PREFIX.len()].copy_from_slice(PREFIX);
    for (to, &from) in buffer[PREFIX.len()..length].iter_mut().zip(name) {
        *to = if from == b'-' { b'_' } else { from.to_ascii_uppercase() };
    }
    Some(&buffer[..length])
}

/// A buffer for numbers and addresses as text.
#[derive(Default)]
struct Number {
    text: Vec<u8>,
}

impl Number {
    fn of(&mut self, number: u64) -> &[u8] {
        self.text.clear();
        haulier_proto::encode::number(&mut self.text, number);
        &self.text
    }

    fn text(&mut self, value: impl std::fmt::Display) -> &[u8] {
        self.text.clear();
        let _ = write!(self.text, "{value}");
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_become_variables() {
        let mut buffer = [0; 256];
        assert_eq!(
            variable_name(b"Accept-Language", &mut buffer),
            Some(&b"HTTP_ACCEPT_LANGUAGE"[..])
        );
        assert_eq!(variable_name(&[b'a'; 251], &mut buffer).map(<[u8]>::len), Some(256));
    }

    #[test]
    fn what_only_proxies_may_say_is_known_in_any_case() {
        for name in [
            "Forwarded",
            "X-Forwarded-For",
            "x-forwarded-proto",
            "X-FORWARDED-SSL",
            "X-Real-IP",
        ] {
            assert!(is_forwarding(name.as_bytes()), "{name}");
        }
        for name in ["X-Forwarded", "X-Requested-With", "From", "", "Forwarded-For"] {
            assert!(!is_forwarding(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_could_pass_for_something_else_is_dropped() {
        let mut buffer = [0; 256];
        for name in [
            "Proxy",
            "PROXY",
            "X_Auth",
            "X-Sendfile-Type",
            "x-accel-mapping",
            "Content-Length",
            "content-type",
            "Transfer-Encoding",
            "X-Request-ID",
            "X-Real.IP",
            "X-Forwarded.For",
            "X+A",
        ] {
            assert_eq!(variable_name(name.as_bytes(), &mut buffer), None, "{name}");
        }
        assert_eq!(variable_name(&[b'a'; 252], &mut buffer), None);
    }
}
