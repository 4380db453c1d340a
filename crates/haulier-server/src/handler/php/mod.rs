//! Scripts make the response.
//!
//! The request body is complete before a worker is leased, and the response is read at PHP's own speed: neither a slow
//! upload nor a slow client ever holds a worker. `params` writes the CGI variables; [`crate::relay`] makes a response
//! of the answer.

mod affinity;
mod params;

use std::sync::Arc;

use haulier_http::{Backend, BackendError, BodyError, Caller, Handler, Presence, Reason, Request, Response};
use haulier_proto::fastcgi::params::ParamsWriter;
use haulier_proto::field::Fields;

use crate::answer::error_page;
use crate::body::request::{self, Collected};
use crate::body::spool::discard;
use crate::files::Script;
use crate::relay::{self, Relay};
use crate::site::{Site, SiteLimits, SitePhp};
use crate::thread::Thread;

/// A script to run for a request.
#[derive(Debug)]
pub(crate) struct PhpCall {
    script: Script,
    /// Path and query of a local redirect: the script runs as for a GET of them.
    target: Option<Vec<u8>>,
    /// The query: of the client, a local redirect, or a rewrite.
    query: Vec<u8>,
    /// The authenticated user, if a password was required.
    user: Option<String>,
    /// The error that the script makes a page for: it runs as for a GET without body.
    error: Option<u16>,
}

impl PhpCall {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            target: None,
            query: Vec::new(),
            user: None,
            error: None,
        }
    }

    pub(crate) fn redirected(self, target: Option<Vec<u8>>) -> Self {
        Self { target, ..self }
    }

    pub(crate) fn with_query(self, query: Option<&[u8]>) -> Self {
        let query = query.map(<[u8]>::to_vec).unwrap_or_default();
        Self { query, ..self }
    }

    pub(crate) fn user(self, user: Option<String>) -> Self {
        Self { user, ..self }
    }

    pub(crate) fn error(self, status: u16) -> Self {
        Self {
            error: Some(status),
            ..self
        }
    }

    /// True if the script does not get the request body.
    fn is_bodiless(&self) -> bool {
        self.target.is_some() || self.error.is_some()
    }
}

/// The result of a script.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is nearly every answer: a box would cost it an allocation"
)]
#[derive(Debug)]
pub(crate) enum PhpOutcome {
    Response(Response),
    /// A local redirect to this path and query (RFC 3875 §6.2.2).
    Local(Vec<u8>),
}

/// An error before a response of the script.
enum CallError {
    /// The request body is incomplete.
    Body(BodyError),
    ParamsTooLong,
    Backend(BackendError),
}

/// Runs the script and relays its answer.
pub(crate) async fn respond(thread: &Thread, site: &Arc<Site>, request: &Request, call: &PhpCall) -> PhpOutcome {
    let Some(php) = &site.php else {
        return PhpOutcome::Response(refused(site, request, 500, Reason::NoPhp, None));
    };
    let backend = &**php.pool_of(&call.script);
    attempt(thread, site, php, backend, request, call)
        .await
        .unwrap_or_else(|error| {
            PhpOutcome::Response(match error {
                CallError::Body(error) => body_failed(site, request, error),
                CallError::ParamsTooLong => refused(site, request, 431, Reason::ParamsTooLong, None),
                CallError::Backend(error) => backend_failed(site, backend, request, error),
            })
        })
}

async fn attempt<B>(
    thread: &Thread,
    site: &Arc<Site>,
    php: &SitePhp,
    backend: &B,
    request: &Request,
    call: &PhpCall,
) -> Result<PhpOutcome, CallError>
where
    B: Backend<Head = [u8]>,
{
    let body = if call.is_bodiless() {
        Collected::Empty
    } else {
        request::collect(
            request,
            site.settings.limits.body,
            thread.serving().settings.body_storage(),
        )
        .await
        .map_err(CallError::Body)?
    };
    let mut params = thread.io.buffers.take();
    let mut writer = ParamsWriter::new(&mut params);
    params::write(&mut writer, site, php, request, call, body.length()).map_err(|_| CallError::ParamsTooLong)?;
    writer.finish();
    let client = Client(request);
    let sent = haulier_http::BackendCall {
        head: &params[..],
        body: body.as_request_body(),
        idempotent: request.head.method().is_safe() || call.is_bodiless(),
        affinity: affinity::of(php, &request.head),
        caller: &client,
    };
    let mut answer = backend.send(&sent).await.map_err(CallError::Backend)?;
    thread.io.buffers.give(params);
    if let Some(target) = answer.head.local_redirect.take() {
        // The body is not used, but only its end frees the worker.
        return match discard(&mut answer.body).await {
            Ok(()) => Ok(PhpOutcome::Local(target)),
            Err(broken) => Err(CallError::Backend(relay::error_of(&mut answer.body, broken))),
        };
    }
    let relay = Relay {
        thread,
        site,
        request,
        script: &call.script.name,
        backend: backend.name(),
        handler: Handler::Php,
        program_error: Reason::PhpError,
        error: call.error,
    };
    let response = relay.respond(answer).await.map_err(CallError::Backend)?;
    Ok(PhpOutcome::Response(response))
}

/// The client of a request, as back ends see it.
#[derive(Debug)]
struct Client<'a>(&'a Request);

impl Caller for Client<'_> {
    fn presence(&self) -> Presence {
        self.0.exchange.presence()
    }

    fn send_interim(&self, status: u16, fields: &Fields) {
        self.0.exchange.send_interim(status, fields);
    }

    fn label(&self) -> String {
        relay::label(self.0)
    }
}

fn backend_failed(site: &Arc<Site>, backend: &impl Backend, request: &Request, error: BackendError) -> Response {
    let shown = site.settings.development.then(|| backend.explain(&error));
    let mut response = refused(site, request, error.status, error.reason, shown.as_deref());
    response.trace.detail = error.detail;
    response
}

/// The length of a body and the limit that it exceeds.
fn too_large(site: &Site, request: &Request) -> String {
    let SiteLimits { body, body_setting, .. } = &site.settings.limits;
    match request.body_length {
        Some(length) => format!("{length} bytes, at most {body} by {body_setting}"),
        None => format!("more than {body} bytes, the most by {body_setting}"),
    }
}

fn body_failed(site: &Arc<Site>, request: &Request, error: BodyError) -> Response {
    let (status, reason) = match error {
        BodyError::Gone => (400, Reason::ClientGone),
        BodyError::TooSlow => (408, Reason::BodyTimeout),
        BodyError::TooLarge => (413, Reason::BodyTooLarge),
        BodyError::Malformed => (400, Reason::BadBody),
        BodyError::NoRoom => (503, Reason::BodySpoolFull),
        BodyError::Spool => (507, Reason::SpoolFailed),
    };
    let figures = (error == BodyError::TooLarge).then(|| too_large(site, request));
    let mut response = refused(site, request, status, reason, figures.as_deref());
    response.trace.detail = figures.map(Into::into);
    response
}

fn refused(site: &Site, request: &Request, status: u16, reason: Reason, detail: Option<&str>) -> Response {
    error_page::respond(status, Some(reason), Some(site), &request.id, detail)
}
