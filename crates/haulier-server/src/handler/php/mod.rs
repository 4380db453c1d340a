//! PHP makes the response.
//!
//! The request body is complete before a worker is asked for, and the response is taken at PHP's own speed: neither a
//! slow sender nor a slow reader ever holds a worker.

mod affinity;
mod handoff;
mod offload;
mod params;
mod translate;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{Body, BodyError, BodyStream, BrokenBody, Handler, PhpTrace, Request, Response, Streamed, Via};
use haulier_php::{Body as PhpBody, Pool, PoolError, Response as PhpResponse, RunningRequest, TryBody};
use haulier_proto::copy;
use haulier_proto::fastcgi::params::ParamsWriter;
use haulier_proto::fastcgi::response::{CgiHead, Redirect};
use tokio::time::Instant;

use self::translate::Translated;
use crate::answer::error_page;
use crate::body::request::{self, Collected};
use crate::body::spool::{Completed, MOST_ABANDONED, Spool};
use crate::compress::drained::{Drained, Manner};
use crate::files::{Refused, Script};
use crate::filter;

use crate::site::{OffloadSettings, Site, SiteLimits, SitePhp};
use crate::thread::Thread;
use haulier_proto::field::Fields;
use haulier_proto::head::Method;
use haulier_proto::status;

/// One script to run for a request.
#[derive(Debug)]
pub(crate) struct Call {
    script: Script,
    /// Path and query of a local redirect: the script runs as for a GET of that.
    target: Option<Vec<u8>>,
    /// The query: the client's, of a local redirect, or of a rewrite.
    query: Vec<u8>,
    /// Who the client is, where a password was asked for.
    user: Option<String>,
    /// The error the script makes the page for: it runs as for a GET without body.
    error: Option<u16>,
}

impl Call {
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

    /// Whether the body of the request is not for this script.
    fn is_bodiless(&self) -> bool {
        self.target.is_some() || self.error.is_some()
    }
}

/// What running a script came to.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is nearly every answer: a box would cost it an allocation"
)]
#[derive(Debug)]
pub(crate) enum Outcome {
    Response(Response),
    /// Answer with this path and query instead (RFC 3875 §6.2.2).
    Local(Vec<u8>),
}

/// A response that pauses this long without being complete goes out in pieces.
const HOLD: Duration = Duration::from_millis(50);
/// And one that comes little by little after this long.
const HOLD_ALL: Duration = Duration::from_millis(200);
/// A response larger than this goes out while the rest is still coming.
const WHOLE: usize = 64 * 1024;

/// Runs the script and makes a response of what it says.
pub(crate) async fn respond(thread: &Thread, site: &Arc<Site>, request: &Request, call: &Call) -> Outcome {
    let Some(php) = &site.php else {
        return failed(site, request, 500, "no_php", None);
    };
    match attempt(thread, site, php, request, call).await {
        Ok(outcome) => outcome,
        Err(Failure::Body(error)) => body_failed(site, request, error),
        Err(Failure::ParamsTooLong) => failed(site, request, 431, "params_too_long", None),
        Err(Failure::Pool(error)) => pool_failed(site, php, request, &error),
        Err(Failure::Answer(why)) => {
            tracing::error!(site = site.settings.name, why, request = label(request), "bad_response");
            failed(site, request, 502, "bad_response", Some(why))
        }
        Err(Failure::Broken(broken)) => failed(site, request, 502, broken.reason, None),
    }
}

/// Why there is no response from PHP.
enum Failure {
    Body(BodyError),
    ParamsTooLong,
    Pool(PoolError),
    /// PHP answered, but not with a response that may be sent on.
    Answer(&'static str),
    /// PHP broke off after its head, before anything of it went out.
    Broken(BrokenBody),
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

async fn attempt(
    thread: &Thread,
    site: &Arc<Site>,
    php: &SitePhp,
    request: &Request,
    call: &Call,
) -> Result<Outcome, Failure> {
    let body = if call.is_bodiless() {
        Collected::Empty
    } else {
        request::collect(request, site.settings.limits.body, &thread.serving().settings)
            .await
            .map_err(Failure::Body)?
    };
    let mut params = thread.io.buffers.take();
    let mut writer = ParamsWriter::new(&mut params);
    params::write(&mut writer, site, php, request, call, body.length()).map_err(|_| Failure::ParamsTooLong)?;
    writer.finish();
    let sent = haulier_php::Request {
        params: &params,
        body: match &body {
            Collected::Empty => PhpBody::Empty,
            Collected::Memory(bytes) => PhpBody::Bytes(bytes),
            Collected::File { file, length, .. } => PhpBody::File { file, length: *length },
        },
        idempotent: request.head.method().is_safe() || call.is_bodiless(),
        affinity: affinity::of(php, &request.head),
        client: &|| request.exchange.presence(),
        label: &|| label(request),
    };
    let mut interim = |head: &CgiHead| {
        request
            .exchange
            .send_interim(head.status(), &translate::interim_fields(head));
    };
    let answer = php.pool.send(&sent, &mut interim).await?;
    thread.io.buffers.give(params);
    take_answer(thread, site, request, call, answer).await
}

fn label(request: &Request) -> String {
    format!(
        "{} {} (req {})",
        String::from_utf8_lossy(request.head.method_name()),
        String::from_utf8_lossy(request.head.path()),
        request.id
    )
}

/// Makes a response of PHP's head, and of its body as far as it came.
async fn take_answer(
    thread: &Thread,
    site: &Arc<Site>,
    request: &Request,
    call: &Call,
    mut answer: PhpResponse,
) -> Result<Outcome, Failure> {
    if let Redirect::Local(target) = answer.head.redirect() {
        let target = target.to_vec();
        while answer.body().await?.is_some() {}
        return Ok(Outcome::Local(target));
    }
    if let Some(line) = answer.head.dropped() {
        note_dropped(site, request, call, line);
    }
    let mut translated = translate::head(&answer.head).map_err(Failure::Answer)?;
    if let Some(error) = call.error {
        // Whatever the script says of its page: no condition and no range of the request is about that.
        translated.status = error;
    }
    let trace = PhpTrace {
        queued: answer.queued(),
        taken: Some(answer.taken()),
        pool: site.php.as_ref().map(|php| Arc::clone(php.pool.name())),
        pid: answer.pid(),
        ..PhpTrace::default()
    };
    if let Some(order) = handoff::order(&answer.head) {
        let mut response = match handoff::respond(thread, site, &request.head, &order, translated) {
            Ok(response) => response,
            Err(refused) => not_sent(site, request, call, handoff::field_of(&order), refused),
        };
        response.trace.php = Some(Box::new(trace));
        finish(&mut response, answer).await;
        note_own_error(&mut response);
        return Ok(Outcome::Response(response));
    }
    let is_buffer = handoff::is_buffer(&answer.head);
    let mut response = take_body(thread, site, request, call, answer, translated, trace).await?;
    if is_buffer {
        response.trace.handler = Handler::Offloaded;
        response.trace.handoff = Some(Via::Zend);
    }
    note_own_error(&mut response);
    Ok(Outcome::Response(response))
}

/// Most scripts whose dropped lines are told.
const MOST_TOLD: usize = 1000;

/// Says once a script that a line of its head was dropped.
fn note_dropped(site: &Site, request: &Request, call: &Call, line: &[u8]) {
    static TOLD: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());
    let script = [site.settings.name.as_bytes(), b" ", &call.script.name].concat();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < MOST_TOLD && told.insert(script) {
        drop(told);
        let (site, script) = (&site.settings.name, String::from_utf8_lossy(&call.script.name));
        let line = line[..line.len().min(200)].escape_ascii();
        let request = label(request);
        tracing::warn!(site, %script, %line, request, "a header line of PHP is none, and was dropped: it has no `Name: value`");
    }
}

/// A 5xx that nobody else gave a reason for is the script's own.
fn note_own_error(response: &mut Response) {
    if response.status >= 500 {
        response.trace.reason.get_or_insert("php_error");
    }
}

/// The response without the file that the script named. What a script may send is nobody's business outside.
fn not_sent(site: &Arc<Site>, request: &Request, call: &Call, field: &str, refused: Refused) -> Response {
    let script = String::from_utf8_lossy(&call.script.name);
    let (site_name, id) = (&site.settings.name, &request.id);
    match refused {
        Refused::Denied(tried) => {
            tracing::warn!(site = site_name, field, %script, request = %id, tried, "sendfile_denied");
            error_page::respond(404, Some("sendfile_denied"), Some(site), id, Some(&tried))
        }
        Refused::Failed(error) => {
            tracing::error!(site = site_name, field, %script, request = %id, %error, "cannot open a file that a script named");
            let (status, reason) = error_page::of_file(&error);
            error_page::respond(status, reason, Some(site), id, None)
        }
    }
}

/// Takes what a script that named a file still writes, and drops it; a script that goes on for longer does so behind
/// the response.
async fn finish(response: &mut Response, mut answer: PhpResponse) {
    let Some(php) = &response.trace.php else { return };
    let busy = Arc::clone(&php.busy);
    let is_complete = matches!(answer.try_body(), Ok(TryBody::Complete));
    if !is_complete && tokio::time::timeout(HOLD, discard(&mut answer)).await.is_err() {
        tokio::task::spawn_local(async move {
            discard(&mut answer).await;
            note_busy(&busy, &answer);
            answer.log_stderr();
        });
        return;
    }
    note_busy(&busy, &answer);
    note_stderr(response, &mut answer);
}

/// Takes the rest of a body, as far as for a client that left. If it breaks off, the pool has said so; the file that
/// was named is as good as before.
async fn discard(answer: &mut PhpResponse) {
    let mut left = MOST_ABANDONED;
    while let Ok(Some(piece)) = answer.body().await {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            return;
        }
    }
}

fn note_busy(busy: &AtomicU64, answer: &PhpResponse) {
    busy.store(answer.worker_time().as_micros() as u64, Ordering::Relaxed);
}

/// The response with the body that PHP sends.
async fn take_body(
    thread: &Thread,
    site: &Arc<Site>,
    request: &Request,
    call: &Call,
    mut answer: PhpResponse,
    translated: Translated,
    trace: PhpTrace,
) -> Result<Response, Failure> {
    let busy = Arc::clone(&trace.busy);
    let mut response = Response::new(translated.status, Handler::Php);
    response.trace.php = Some(Box::new(trace));
    let length = translated.length;
    if response.status == 205 {
        // RFC 9110 §15.3.6: it says that there is nothing to be seen.
        *response.head.fields_mut() = translated.fields;
        response.body = Bytes::new().into();
        finish(&mut response, answer).await;
        return Ok(response);
    }
    if translated.is_live {
        *response.head.fields_mut() = translated.fields;
        let body = drained(
            site,
            request,
            &mut response,
            answer,
            Vec::new(),
            length,
            Manner::Endless,
        )?;
        response.body = Spool::live(site, thread, body, busy).into();
        return Ok(response);
    }
    let rule = site.php.as_ref().and_then(|php| php.settings.offload.as_ref());
    let rule = rule.filter(|rule| offload::applies(rule, &request.head, translated.status, &translated.fields));
    match (gather(&mut answer, length).await?, rule) {
        (Gathered::Whole(body), Some(rule)) if body.len() as u64 >= rule.min_size => {
            let body = Drained::plain(answer, vec![body], length);
            return offload(thread, site, request, response, rule, body, translated.fields).await;
        }
        (Gathered::Part(pieces, _), Some(rule)) if length.is_none_or(|length| length >= rule.min_size) => {
            let body = Drained::plain(answer, pieces, length);
            return offload(thread, site, request, response, rule, body, translated.fields).await;
        }
        (Gathered::Whole(body), _) => {
            note_busy(&busy, &answer);
            note_stderr(&mut response, &mut answer);
            response.body = if status::is_bodiless(response.status) {
                Body::Empty
            } else if request.head.method() == Method::Head {
                Body::Unsent(length)
            } else {
                exact(site, request, body, length)?.into()
            };
        }
        (Gathered::Part(pieces, manner), _) => {
            note_streamed(&mut response, &call.script, &translated.fields);
            *response.head.fields_mut() = translated.fields;
            let body = drained(site, request, &mut response, answer, pieces, length, manner)?;
            response.body = Spool::drain(site, thread, body, busy).into();
            return Ok(response);
        }
    }
    *response.head.fields_mut() = translated.fields;
    Ok(response)
}

/// A body that still comes, on its way through the filters.
fn drained(
    site: &Arc<Site>,
    request: &Request,
    response: &mut Response,
    answer: PhpResponse,
    pieces: Vec<Bytes>,
    length: Option<u64>,
    manner: Manner,
) -> Result<Drained, Failure> {
    if request.head.method() == Method::Head {
        return Ok(Drained::plain(answer, pieces, length));
    }
    match filter::on_body(site, &request.head, response, length, manner) {
        None => Ok(Drained::plain(answer, pieces, length)),
        Some(plan) => {
            Drained::coded(site, answer, pieces, length, plan).map_err(|_| Failure::Answer("cannot be compressed"))
        }
    }
}

/// The response with a body that the site's rule takes off PHP.
async fn offload(
    thread: &Thread,
    site: &Arc<Site>,
    request: &Request,
    begun: Response,
    rule: &OffloadSettings,
    body: Drained,
    fields: Fields,
) -> Result<Response, Failure> {
    let head = &request.head;
    let busy = begun
        .trace
        .php
        .as_ref()
        .map(|php| Arc::clone(&php.busy))
        .unwrap_or_default();
    let spool = if offload::needs_file(head, &fields) {
        Spool::file(site, thread, body, busy)
    } else {
        Spool::drain(site, thread, body, busy)
    };
    let completed = spool
        .complete(offload::patience(head, &fields))
        .await
        .map_err(Failure::Broken)?;
    let (size, response) = match completed {
        Completed::File(file) => (file.length(), offload::respond(head, fields, file)),
        Completed::Pieces(spool) => (spool.waiting(), offload::respond_in_pieces(head, fields, spool)),
        Completed::NotYet(spool) => {
            let mut response = Response::new(200, Handler::Offloaded);
            *response.head.fields_mut() = fields;
            let size = spool.length().unwrap_or(spool.waiting());
            response.body = spool.into();
            (size, response)
        }
    };
    let mut trace = begun.trace;
    // A body without announced length may end before it is worth a word.
    if size >= rule.min_size {
        trace.handler = Handler::Offloaded;
        trace.handoff = Some(Via::Transparent);
    }
    Ok(Response { trace, ..response })
}

/// A body too long to be held is noted with its script: a rule may spare PHP the work.
fn note_streamed(response: &mut Response, script: &Script, fields: &Fields) {
    let streamed = Streamed::new(&script.name, fields.get("Content-Type"));
    if let Some(php) = &mut response.trace.php {
        php.streamed = Some(streamed);
    }
}

/// A body shorter than PHP announced is broken; what is longer was never part of it.
fn exact(site: &Site, request: &Request, mut body: Bytes, announced: Option<u64>) -> Result<Bytes, Failure> {
    let Some(announced) = announced else { return Ok(body) };
    let length = body.len() as u64;
    if length < announced {
        return Err(Failure::Answer("body shorter than its Content-Length"));
    }
    if length > announced {
        let request = label(request);
        tracing::warn!(
            site = site.settings.name,
            request,
            announced,
            length,
            "PHP sent more than its Content-Length: the rest is cut off"
        );
        body.truncate(usize::try_from(announced).unwrap_or(usize::MAX));
    }
    Ok(body)
}

/// The line PHP wrote to its error log that says most belongs into the access log.
fn note_stderr(response: &mut Response, answer: &mut PhpResponse) {
    let text = answer.take_stderr();
    if text.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(&text);
    if let (Some(php), Some(line)) = (&mut response.trace.php, foremost(&text)) {
        php.message = Some(line.to_owned());
        php.stderr = text.into_owned();
    }
}

/// The error that ended the script, else the first line: notes before it are only notes.
fn foremost(stderr: &str) -> Option<&str> {
    let is_fatal = |line: &&str| line.contains("PHP Fatal error: ") || line.contains("PHP Parse error: ");
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.clone().find(is_fatal).or_else(|| lines.next())
}

/// A body, as far as it came without keeping the client waiting.
enum Gathered {
    Whole(Bytes),
    Part(Vec<Bytes>, Manner),
}

/// Content of the longest record PHP sends, bytes: behind it another is to come.
const LONGEST_RECORD: usize = 65_528;

/// Collects a short answer whole, so that it gets a length; gives up at [`WHOLE`] bytes or a pause of [`HOLD`], and at
/// once where PHP announced more and is about to send it, or when [`HOLD_ALL`] is over.
async fn gather(answer: &mut PhpResponse, announced: Option<u64>) -> Result<Gathered, PoolError> {
    let is_long = announced.is_some_and(|announced| announced > WHOLE as u64);
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut total = 0;
    let mut until = None;
    let manner = loop {
        let piece = match answer.try_body()? {
            TryBody::Chunk(piece) => Some(piece),
            TryBody::Complete => None,
            TryBody::Pending => {
                let until = *until.get_or_insert_with(|| Instant::now() + HOLD_ALL);
                let wait = HOLD.min(until.saturating_duration_since(Instant::now()));
                match tokio::time::timeout(wait, answer.body()).await {
                    Ok(piece) => piece?,
                    Err(_) => break Manner::Paused,
                }
            }
        };
        let Some(piece) = piece else {
            return Ok(Gathered::Whole(joined(pieces, total)));
        };
        total += piece.len();
        pieces.push(piece);
        if total > WHOLE || (is_long && total + answer.content_left() >= LONGEST_RECORD) {
            break Manner::Fast;
        }
    };
    Ok(Gathered::Part(pieces, manner))
}

fn joined(mut pieces: Vec<Bytes>, total: usize) -> Bytes {
    if pieces.len() < 2 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = Vec::with_capacity(total);
    pieces.iter().for_each(|piece| copy::append(&mut whole, piece));
    whole.into()
}

fn pool_failed(site: &Arc<Site>, php: &SitePhp, request: &Request, error: &PoolError) -> Outcome {
    let status = match error {
        PoolError::Exhausted { .. } | PoolError::Abandoned { .. } | PoolError::Stopped => 503,
        PoolError::Timeout { .. } => 504,
        PoolError::RequestBody(_) => 500,
        _ => 502,
    };
    let figures = match error {
        PoolError::Exhausted { waited } => Some(exhausted(&php.pool, *waited)),
        _ => None,
    };
    let shown = site.settings.development.then(|| match &figures {
        Some(figures) => format!("{figures}\n\n{}", at_work(&php.pool)),
        None => format!("{error}\n{}\n\n{}", doing(&php.pool), error.stderr_tail()),
    });
    let mut outcome = failed(site, request, status, error.reason(), shown.as_deref());
    if let Outcome::Response(response) = &mut outcome {
        response.trace.detail = figures.map(Into::into);
    }
    outcome
}

/// Which limit of the pool a request without a worker has met.
fn exhausted(pool: &Pool, waited: Duration) -> String {
    let (settings, status) = (pool.settings(), pool.status());
    let name = &settings.name;
    let met = if waited < settings.queue_timeout {
        format!("`queue_length` of pool {name} lets {} wait", settings.queue_length)
    } else {
        let most = settings.queue_timeout.as_secs_f64();
        format!("waited {most:.1} s, as long as `queue` of pool {name} allows")
    };
    let idle = if status.load.busy < status.load.capacity {
        ", the others are being started"
    } else {
        ""
    };
    format!(
        "{met}; {} of {} workers busy (`workers`){idle}, {} requests waiting",
        status.load.busy, status.load.capacity, status.load.queued
    )
}

/// Requests that keep a pool's workers busy, the longest first.
fn at_work(pool: &Pool) -> String {
    const MOST: usize = 10;
    let running = pool.running();
    let line = |request: &RunningRequest| format!("{} for {:.1} s\n", request.label, request.running.as_secs_f64());
    running.iter().take(MOST).map(line).collect()
}

/// What a pool is doing, for whoever works on the site.
fn doing(pool: &Pool) -> String {
    let status = pool.status();
    format!(
        "pool {}: {} of {} workers busy, {} requests waiting, {} workers crashed since the start",
        pool.settings().name,
        status.load.busy,
        status.load.capacity,
        status.load.queued,
        status.counts.crashes
    )
}

/// How long a body was, and how long it may be.
fn too_large(site: &Site, request: &Request) -> String {
    let SiteLimits { body, body_setting, .. } = &site.settings.limits;
    match request.body_length {
        Some(length) => format!("{length} bytes, at most {body} by {body_setting}"),
        None => format!("more than {body} bytes, the most by {body_setting}"),
    }
}

fn body_failed(site: &Arc<Site>, request: &Request, error: BodyError) -> Outcome {
    let (status, reason) = match error {
        BodyError::Gone => (400, "client_gone"),
        BodyError::TooSlow => (408, "body_timeout"),
        BodyError::TooLarge => (413, "body_too_large"),
        BodyError::Malformed => (400, "bad_body"),
        BodyError::NoRoom => (503, "body_spool_full"),
        BodyError::Spool => (507, "spool_failed"),
    };
    let figures = (error == BodyError::TooLarge).then(|| too_large(site, request));
    let mut outcome = failed(site, request, status, reason, figures.as_deref());
    if let Outcome::Response(response) = &mut outcome {
        response.trace.detail = figures.map(Into::into);
    }
    outcome
}

fn failed(site: &Arc<Site>, request: &Request, status: u16, reason: &'static str, detail: Option<&str>) -> Outcome {
    Outcome::Response(error_page::respond(
        status,
        Some(reason),
        Some(site),
        &request.id,
        detail,
    ))
}
