//! A request that php-fpm itself answers, not a script: its ping, or its status page.

use std::future::poll_fn;

use haulier_http::{Piece, Presence};
use haulier_proto::fastcgi::ParamsWriter;

use crate::connection::Connection;
use crate::fastcgi_exchange::FastCgiExchange;
use crate::request::{Body, Request};

/// Longest head of the answer, bytes.
const RESPONSE_HEAD: usize = 16 * 1024;
/// Longest body, bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// The server's answer to a request for this path, if its status is 200.
pub(super) async fn ask(connection: &Connection, path: &str) -> Option<Vec<u8>> {
    let params = ping_params(path)?;
    let mut exchange = FastCgiExchange::new(RESPONSE_HEAD, true);
    let request = Request {
        params: &params,
        body: Body::Empty,
        idempotent: true,
        affinity: None,
        client: &|| Presence::Here,
        label: &|| format!("ping {path}"),
    };
    // So little fits into the empty socket at once.
    if exchange.start(connection, &request).is_err() || exchange.has_unsent() {
        return None;
    }
    let mut body = Vec::new();
    while !exchange.is_complete() {
        poll_fn(|cx| exchange.poll_step(cx, connection, None)).await.ok()?;
        if let Some(Piece::Bytes(bytes)) = exchange.take_body() {
            body.extend_from_slice(&bytes);
        }
        if body.len() > LONGEST_BODY {
            return None;
        }
    }
    let is_well = exchange.take_heads().last().is_some_and(|head| head.status() == 200);
    is_well.then_some(body)
}

/// The variables that php-fpm reads: it compares SCRIPT_NAME with `ping.path` and `pm.status_path`. `None` for a path
/// too long to send.
pub(crate) fn ping_params(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = ParamsWriter::new(&mut bytes);
    let pairs = [
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SCRIPT_NAME", path),
        ("SCRIPT_FILENAME", path),
        ("REQUEST_URI", path),
        ("QUERY_STRING", ""),
    ];
    for (name, value) in pairs {
        writer.push(name.as_bytes(), value.as_bytes()).ok()?;
    }
    writer.finish();
    Some(bytes)
}
