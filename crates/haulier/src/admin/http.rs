//! HTTP for the admin address and that of probes: GET only, one answer a connection.
//!
//! A page of another site must not read this by giving our address a name of its own (DNS rebinding). So the host must be
//! a loopback name or the address that the client reached.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use haulier_proto::field::Fields;
use haulier_proto::head::{HeadLimits, Method, RequestHead};
use haulier_proto::{date, encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::connections::{Stage, StageCell};
use super::history::Range;
use super::page;
use super::reporter::Reporter;

const LIMITS: HeadLimits = HeadLimits {
    request_line: 4096,
    header: 16 * 1024,
    fields: 100,
};
/// Longest time for the request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for sending the answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which further bytes of the client are read and dropped, so that no reset overtakes the answer (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(1);

/// An answer to be sent.
#[derive(Debug, PartialEq, Eq)]
struct AdminResponse {
    status: u16,
    content_type: &'static str,
    body: String,
    /// Of pages: what a browser may run and load.
    policy: Option<&'static str>,
}

impl AdminResponse {
    fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type,
            body: body.into(),
            policy: None,
        }
    }

    fn text(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body)
    }

    /// The dashboard.
    fn page(body: String) -> Self {
        Self {
            policy: Some(page::policy()),
            ..Self::new(200, "text/html; charset=utf-8", body)
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256 + self.body.len());
        let seconds = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        encode::status_line(&mut bytes, self.status);
        encode::field(&mut bytes, "Date", date::format(seconds));
        encode::field(&mut bytes, "Content-Type", self.content_type);
        encode::number_field(&mut bytes, "Content-Length", self.body.len() as u64);
        encode::field(&mut bytes, "Cache-Control", "no-store");
        encode::field(&mut bytes, "X-Content-Type-Options", "nosniff");
        if let Some(policy) = self.policy {
            encode::field(&mut bytes, "Content-Security-Policy", policy);
            encode::field(&mut bytes, "Referrer-Policy", "no-referrer");
        }
        if self.status == 405 {
            encode::field(&mut bytes, "Allow", "GET");
        }
        bytes.extend_from_slice(b"Connection: close\r\n\r\n");
        bytes.extend_from_slice(self.body.as_bytes());
        bytes
    }
}

/// The pages of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Everything,
    /// Liveness and readiness: nothing that can be misused.
    Probes,
}

/// Answers one request. `local` is our address that the client reached.
pub(super) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    local: Option<IpAddr>,
    scope: Scope,
    reporter: &Reporter,
    stage: &StageCell,
) -> io::Result<()> {
    let answer = match timeout(HEAD_TIMEOUT, read_head(&mut stream)).await?? {
        Some(head) => respond(&head, local, scope, reporter),
        None => AdminResponse::text(400, "this is not an HTTP request\n"),
    };
    stage.set(Stage::Taking);
    timeout(SEND_TIMEOUT, stream.write_all(&answer.to_bytes())).await??;
    stream.shutdown().await?;
    stage.set(Stage::Silent);
    let mut rest = tokio::io::sink();
    let _ = timeout(LINGER, tokio::io::copy(&mut stream.take(64 * 1024), &mut rest)).await;
    Ok(())
}

/// The request head; `None` if the bytes are not one.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<RequestHead>> {
    let mut bytes = Vec::with_capacity(2048);
    let mut storage = Fields::new();
    loop {
        match RequestHead::parse(&mut bytes, &LIMITS, &mut storage) {
            Ok(None) => {}
            Ok(head) => return Ok(head),
            Err(_) => return Ok(None),
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn respond(head: &RequestHead, local: Option<IpAddr>, scope: Scope, reporter: &Reporter) -> AdminResponse {
    if scope == Scope::Everything && !is_known_host(head.host(), local) {
        return AdminResponse::text(
            403,
            "this address answers only requests for localhost and for its own IP address\n",
        );
    }
    if head.method() != Method::Get {
        return AdminResponse::text(405, "only GET is allowed here\n");
    }
    match head.path() {
        b"/livez" => probed(reporter.why_not_alive()),
        b"/readyz" => probed(reporter.why_not_ready()),
        _ if scope == Scope::Probes => AdminResponse::text(404, "there is /livez and /readyz\n"),
        b"/" => AdminResponse::page(page::render(&reporter.view(range_of(head.query())))),
        b"/metrics" => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            AdminResponse::new(200, content_type, reporter.metrics())
        }
        b"/healthz" => match reporter.sick_pools().as_slice() {
            [] => AdminResponse::text(200, "ok\n"),
            pools => AdminResponse::text(503, format!("no live worker: {}\n", pools.join(", "))),
        },
        b"/api/state.json" => match serde_json::to_string(&reporter.state()) {
            Ok(body) => AdminResponse::new(200, "application/json", body),
            Err(error) => AdminResponse::text(500, format!("{error}\n")),
        },
        path => match path.strip_prefix(b"/fpm/").and_then(|pool| reporter.fpm_status(pool)) {
            Some(status) if head.query() == Some(b"json") => {
                AdminResponse::new(200, "application/json", status.to_json())
            }
            Some(status) => AdminResponse::text(200, status.to_text()),
            None => AdminResponse::text(
                404,
                "there is /, /metrics, /healthz, /livez, /readyz, /api/state.json and /fpm/POOL\n",
            ),
        },
    }
}

/// 200, or 503 with the reason.
fn probed(fault: Option<String>) -> AdminResponse {
    match fault {
        None => AdminResponse::text(200, "ok\n"),
        Some(why) => AdminResponse::text(503, format!("{why}\n")),
    }
}

/// The range of the charts: a day for `?range=day`, otherwise a quarter of an hour.
fn range_of(query: Option<&[u8]>) -> Range {
    match query {
        Some(b"range=day") => Range::Day,
        _ => Range::QuarterHour,
    }
}

/// True for a host of ours, and for a request without a host: browsers always send it.
fn is_known_host(host: Option<&[u8]>, local: Option<IpAddr>) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    if host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case("localhost.") {
        return true;
    }
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    literal.is_ok_and(|address| address.to_canonical().is_loopback() || Some(address.to_canonical()) == local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_the_address_itself_are_known_hosts() {
        let local = Some("192.0.2.7".parse().expect("a literal"));
        for known in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", "192.0.2.7"] {
            assert!(is_known_host(Some(known.as_bytes()), local), "{known}");
        }
        for unknown in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.8",
            "127.0.0.1.evil.example",
            "",
            "\u{7f}",
        ] {
            assert!(!is_known_host(Some(unknown.as_bytes()), local), "{unknown}");
        }
        assert!(!is_known_host(Some(b"192.0.2.7"), None));
        assert!(!is_known_host(Some(b"\xff"), local));
        assert!(is_known_host(None, local), "a health checker without a host");
    }

    #[test]
    fn an_answer_has_a_length_and_a_refused_method_says_what_is_allowed() {
        let text = String::from_utf8(AdminResponse::text(405, "no\n").to_bytes()).expect("text");
        assert!(
            text.starts_with("HTTP/1.1 405 ") && text.ends_with("\r\n\r\nno\n"),
            "{text}"
        );
        assert!(
            text.contains("Content-Length: 3\r\n") && text.contains("Allow: GET\r\n"),
            "{text}"
        );
        assert!(
            !String::from_utf8(AdminResponse::text(200, "").to_bytes())
                .expect("text")
                .contains("Allow")
        );
    }
}
