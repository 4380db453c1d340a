//! From the answer of a back end to a response.
//!
//! Every stage of a body begins here: hand-off, offload, holding back, coding, the spool. This module does not know the
//! kind of back end.

mod handoff;
mod offload;

use std::collections::BTreeSet;
use std::error::Error;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{
    AnswerHead, BackendAnswer, BackendError, BackendTrace, Body, BodySource, BrokenBody, FileSlice, Handler, Piece,
    Reason, Request, Response, Streamed, Via,
};
use haulier_proto::field::Fields;
use haulier_proto::head::Method;
use haulier_proto::status;

use crate::answer::error_page;
use crate::body::spool::discard;
use crate::body::transfer::Uncoded;
use crate::body::{Completed, Gathered, Pacing, Resumed, Spool, SpoolRoom, gather};
use crate::files::Refused;
use crate::filter;
use crate::site::{OffloadSettings, Site};
use crate::thread::Thread;

/// Longest time that a script may continue after its hand-off before the file is sent.
const FINISH: Duration = Duration::from_millis(50);

/// The context of an answer: its request and its back end.
#[derive(Debug)]
pub(crate) struct Relay<'a> {
    pub(crate) thread: &'a Thread,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) request: &'a Request,
    /// Path of the script in the document root, for logs and metrics.
    pub(crate) script: &'a [u8],
    /// The name of the back end.
    pub(crate) backend: &'a Arc<str>,
    /// The handler of the response in logs and metrics.
    pub(crate) handler: Handler,
    /// The reason of a 5xx that the back end's program sends.
    pub(crate) program_error: Reason,
    /// The status of the error that the answer is the page for. The answer's own status, conditions and ranges do not
    /// apply to such a page.
    pub(crate) error: Option<u16>,
}

impl Relay<'_> {
    /// Makes a response of an answer.
    ///
    /// # Errors
    /// The back end broke off, or its answer is malformed.
    pub(crate) async fn respond<S>(&self, answer: BackendAnswer<S>) -> Result<Response, BackendError>
    where
        S: BodySource + 'static,
    {
        let BackendAnswer { mut head, body, cost } = answer;
        if let Some(line) = &head.dropped {
            self.note_dropped(line);
        }
        head.status = self.error.unwrap_or(head.status);
        let trace = BackendTrace {
            queued: cost.queued,
            taken: Some(cost.taken),
            pool: Some(Arc::clone(self.backend)),
            pid: cost.pid,
            ..BackendTrace::default()
        };
        let mut response = match handoff::order(&head.orders) {
            Some(order) => self.hand_off(&order, head.status, head.fields, body, trace).await,
            None => self.take_body(head, body, trace).await?,
        };
        if response.status >= 500 {
            // A 5xx without another reason comes from the back end's program.
            response.trace.reason.get_or_insert(self.program_error);
        }
        Ok(response)
    }

    /// The response with the file that the answer names.
    async fn hand_off<S>(
        &self,
        order: &handoff::Handoff<'_>,
        status: u16,
        fields: Fields,
        mut body: S,
        trace: BackendTrace,
    ) -> Response
    where
        S: BodySource + 'static,
    {
        let Self {
            thread, site, request, ..
        } = self;
        let opened = if handoff::comes_opened(order) {
            first_file(&mut body).await
        } else {
            None
        };
        let mut response = match handoff::respond(thread, site, &request.head, order, opened, status, fields) {
            Ok(response) => response,
            Err(refused) => self.refuse_file(handoff::field_of(order), refused),
        };
        response.trace.backend = Some(Box::new(trace));
        finish(&mut response, body).await;
        response
    }

    /// Refuses a hand-off. The client does not learn which files a script may send.
    fn refuse_file(&self, field: &str, refused: Refused) -> Response {
        let Self { site, request, .. } = self;
        let script = String::from_utf8_lossy(self.script);
        let (site_name, id) = (&site.settings.name, &request.id);
        match refused {
            Refused::Denied(tried) => {
                tracing::warn!(site = site_name, field, %script, request = %id, tried, "sendfile_denied");
                error_page::respond(404, Some(Reason::SendfileDenied), Some(site), id, Some(&tried))
            }
            Refused::Failed(error) => {
                tracing::error!(site = site_name, field, %script, request = %id, %error, "cannot open a file that a script named");
                let (status, reason) = error_page::of_file(&error);
                error_page::respond(status, reason, Some(site), id, None)
            }
        }
    }

    /// The response with the body of the answer.
    async fn take_body<S>(&self, head: AnswerHead, mut body: S, trace: BackendTrace) -> Result<Response, BackendError>
    where
        S: BodySource + 'static,
    {
        let is_buffer = handoff::is_buffer(&head.orders);
        let mut draft = ResponseDraft::new(self.handler, head.status, head.fields, trace);
        let mut response = if head.status == 205 {
            // RFC 9110 §15.3.6: a 205 has no content.
            draft.response.body = Bytes::new().into();
            finish(&mut draft.response, body).await;
            draft.complete()
        } else if head.is_live {
            self.stream(draft, Resumed::new(Vec::new(), body), Pacing::Endless)
        } else {
            let gathered = gather(&mut body).await.map_err(|broken| error_of(&mut body, broken))?;
            match (self.offload_rule(&draft, &gathered, head.length), gathered) {
                (rule, Gathered::File(slice)) => self.send_file(draft, rule.is_some(), slice, body)?,
                (Some(rule), gathered) => {
                    self.offload(draft, rule, Resumed::new(gathered.into_pieces(), body))
                        .await?
                }
                (None, gathered) => self.send_on(draft, gathered, body)?,
            }
        };
        if is_buffer {
            response.trace.handler = Handler::Offloaded;
            response.trace.handoff = Some(Via::Zend);
        }
        Ok(response)
    }

    /// The site's offload rule, if it applies to this body.
    fn offload_rule(
        &self,
        draft: &ResponseDraft,
        gathered: &Gathered,
        announced: Option<u64>,
    ) -> Option<&OffloadSettings> {
        let rule = self.site.php.as_ref()?.settings.offload.as_ref()?;
        let is_long = match gathered {
            Gathered::Whole(body) => body.len() as u64 >= rule.min_size,
            Gathered::File(slice) => slice.len() >= rule.min_size,
            Gathered::Part(..) => announced.is_none_or(|announced| announced >= rule.min_size),
        };
        let applies = || offload::applies(rule, &self.request.head, draft.response.status, &draft.fields);
        (is_long && applies()).then_some(rule)
    }

    /// The response with a body that was gathered whole, or that still comes.
    fn send_on<S>(&self, mut draft: ResponseDraft, gathered: Gathered, mut body: S) -> Result<Response, BackendError>
    where
        S: BodySource + 'static,
    {
        match gathered {
            Gathered::Whole(mut whole) => {
                note_end(&mut draft.response, &mut body);
                draft.response.body = match self.without_content(draft.response.status, &body) {
                    Some(nothing) => nothing,
                    None => {
                        whole.truncate(self.exact(whole.len() as u64, body.length())? as usize);
                        whole.into()
                    }
                };
                Ok(draft.complete())
            }
            Gathered::File(slice) => self.send_file(draft, false, slice, body),
            Gathered::Part(pieces, pacing) => {
                // An offload rule may fit it; the metrics suggest one.
                let streamed = Streamed::new(self.script, draft.fields.get("Content-Type"));
                if let Some(backend) = &mut draft.response.trace.backend {
                    backend.streamed = Some(streamed);
                }
                Ok(self.stream(draft, Resumed::new(pieces, body), pacing))
            }
        }
    }

    /// The body of a response that has none: by its status, or because the client asked for the head alone.
    fn without_content(&self, status: u16, body: &impl BodySource) -> Option<Body> {
        if status::is_bodiless(status) {
            return Some(Body::Empty);
        }
        (self.request.head.method() == Method::Head).then(|| Body::Unsent(body.length()))
    }

    /// The response with a part of a file that the script has passed on, as with `readfile()`. Unless an offload rule
    /// takes it, it is compressed as if its bytes had come.
    fn send_file<S>(
        &self,
        mut draft: ResponseDraft,
        is_offloaded: bool,
        mut slice: FileSlice,
        mut body: S,
    ) -> Result<Response, BackendError>
    where
        S: BodySource + 'static,
    {
        if let Some(nothing) = self.without_content(draft.response.status, &body) {
            note_end(&mut draft.response, &mut body);
            draft.response.body = nothing;
            return Ok(draft.complete());
        }
        slice.range.end = slice.range.start + self.exact(slice.len(), body.length())?;
        let head = &self.request.head;
        let keeps_bytes = is_offloaded || offload::needs_file(head, &draft.fields);
        let busy = Arc::clone(&draft.busy);
        let mut response = draft.complete();
        let coder = (!keeps_bytes)
            .then(|| filter::on_body(self.site, self.request, &mut response, Some(slice.len()), Pacing::Fast))
            .flatten();
        if let Some(coder) = coder {
            let body = Resumed::new(vec![Piece::File(slice)], body);
            response.body = Spool::drain(self.spool_room(), body, coder, busy).into();
            return Ok(response);
        }
        note_end(&mut response, &mut body);
        response.trace.handler = Handler::Handed;
        response.trace.handoff = Some(Via::Readfile);
        if response.status != 200 {
            response.body = slice.into();
            return Ok(response);
        }
        let fields = std::mem::take(response.head.fields_mut());
        let trace = response.trace;
        Ok(Response {
            trace,
            ..offload::respond(head, fields, slice)
        })
    }

    /// The response with a body that still comes, through the filters and the spool.
    ///
    /// A source that copies the body, for a cache, wraps `body` here: it is not coded yet, and everything below reads
    /// any [`BodySource`].
    fn stream(&self, draft: ResponseDraft, body: impl BodySource + 'static, pacing: Pacing) -> Response {
        let busy = Arc::clone(&draft.busy);
        let mut response = draft.complete();
        let coder = match self.request.head.method() {
            Method::Head => None,
            _ => filter::on_body(self.site, self.request, &mut response, body.length(), pacing),
        };
        let room = self.spool_room();
        let spool = match (coder, pacing) {
            (Some(coder), Pacing::Endless) => Spool::live(room, body, coder, busy),
            (None, Pacing::Endless) => Spool::live(room, body, Uncoded, busy),
            (Some(coder), _) => Spool::drain(room, body, coder, busy),
            (None, _) => Spool::drain(room, body, Uncoded, busy),
        };
        response.body = spool.into();
        response
    }

    /// The response with a body that an offload rule takes from the back end.
    async fn offload(
        &self,
        draft: ResponseDraft,
        rule: &OffloadSettings,
        body: impl BodySource + 'static,
    ) -> Result<Response, BackendError> {
        let ResponseDraft { response, fields, busy } = draft;
        let head = &self.request.head;
        let spool = if offload::needs_file(head, &fields) {
            Spool::file(self.spool_room(), body, busy)
        } else {
            Spool::drain(self.spool_room(), body, Uncoded, busy)
        };
        let completed = spool.complete(offload::timeout(head, &fields)).await;
        let (size, offloaded) = match completed.map_err(broken_off)? {
            Completed::File(file) => (file.length(), offload::respond(head, fields, FileSlice::whole(file))),
            Completed::Pieces(spool) => (spool.waiting(), offload::respond_in_pieces(head, fields, spool)),
            Completed::NotYet(spool) => {
                let size = spool.length().unwrap_or(spool.waiting());
                (size, offload::respond_early(fields, spool))
            }
        };
        let mut trace = response.trace;
        // A body of unknown length may have ended below the rule's minimum.
        if size >= rule.min_size {
            trace.handler = Handler::Offloaded;
            trace.handoff = Some(Via::Transparent);
        }
        Ok(Response { trace, ..offloaded })
    }

    /// Checks the length of a body against the announced one: a shorter body is broken, a longer one is cut off there.
    fn exact(&self, length: u64, announced: Option<u64>) -> Result<u64, BackendError> {
        let Some(announced) = announced else { return Ok(length) };
        let site = &self.site.settings.name;
        if length < announced {
            let (why, request) = ("body shorter than its Content-Length", label(self.request));
            tracing::error!(site, why, request, "bad_response");
            return Err(failed(Reason::BadResponse, why));
        }
        if length > announced {
            let request = label(self.request);
            tracing::warn!(
                site,
                request,
                announced,
                length,
                "the body is longer than its Content-Length: the rest is cut off"
            );
        }
        Ok(announced)
    }

    fn spool_room(&self) -> SpoolRoom {
        SpoolRoom {
            budget: Arc::clone(&self.site.spool),
            directory: self.thread.serving().settings.spool_dir.clone(),
        }
    }

    /// Logs a dropped line of an answer's head, once for each script.
    fn note_dropped(&self, line: &[u8]) {
        static TOLD: Mutex<BTreeSet<Vec<u8>>> = Mutex::new(BTreeSet::new());
        let site = &self.site.settings.name;
        let script = [site.as_bytes(), b" ", self.script].concat();
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MOST_TOLD && told.insert(script) {
            drop(told);
            let script = String::from_utf8_lossy(self.script);
            let line = line[..line.len().min(200)].escape_ascii();
            let request = label(self.request);
            tracing::warn!(site, %script, %line, request, "a malformed header line was dropped: it is not `Name: value`");
        }
    }
}

/// Most scripts whose dropped lines are logged.
const MOST_TOLD: usize = 1000;

/// A short label of the request, for log lines.
pub(crate) fn label(request: &Request) -> String {
    format!(
        "{} {} (req {})",
        String::from_utf8_lossy(request.head.method_name()),
        String::from_utf8_lossy(request.head.path()),
        request.id
    )
}

/// A response in the making, while its body is examined. Its fields are apart until then.
struct ResponseDraft {
    response: Response,
    fields: Fields,
    /// Gets the worker's time, microseconds.
    busy: Arc<AtomicU64>,
}

impl ResponseDraft {
    fn new(handler: Handler, status: u16, fields: Fields, trace: BackendTrace) -> Self {
        let busy = Arc::clone(&trace.busy);
        let mut response = Response::new(status, handler);
        response.trace.backend = Some(Box::new(trace));
        Self { response, fields, busy }
    }

    fn complete(self) -> Response {
        let mut response = self.response;
        *response.head.fields_mut() = self.fields;
        response
    }
}

/// The file that comes in front of a body.
async fn first_file(body: &mut impl BodySource) -> Option<FileSlice> {
    match poll_fn(|context| body.poll_piece(context)).await {
        Ok(Some(Piece::File(slice))) => Some(slice),
        _ => None,
    }
}

/// Reads and discards the output after a hand-off. A script that continues for longer does so while the file is sent.
async fn finish<S: BodySource + 'static>(response: &mut Response, mut body: S) {
    let is_complete = matches!(body.try_piece(), Poll::Ready(Ok(None)));
    // If it breaks off, the back end has logged that; the file is sent all the same.
    if !is_complete && tokio::time::timeout(FINISH, discard(&mut body)).await.is_err() {
        let busy = response.trace.backend.as_ref().map(|backend| Arc::clone(&backend.busy));
        tokio::task::spawn_local(async move {
            _ = discard(&mut body).await;
            note_busy(&busy.unwrap_or_default(), &body);
            body.log_stderr();
        });
        return;
    }
    note_end(response, &mut body);
}

/// Notes the end of a body in the trace: the worker's time, and the most telling line of its stderr.
fn note_end(response: &mut Response, body: &mut impl BodySource) {
    let Some(backend) = &mut response.trace.backend else {
        return;
    };
    note_busy(&backend.busy, body);
    let text = body.take_stderr();
    if text.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(&text);
    if let Some(line) = most_telling(&text) {
        backend.message = Some(line.to_owned());
        backend.stderr = text.into_owned();
    }
}

fn note_busy(busy: &AtomicU64, body: &impl BodySource) {
    busy.store(body.worker_time().as_micros() as u64, Ordering::Relaxed);
}

/// The line of the error that ended the script, else the first line.
fn most_telling(stderr: &str) -> Option<&str> {
    let is_fatal = |line: &&str| line.contains("PHP Fatal error: ") || line.contains("PHP Parse error: ");
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.clone().find(is_fatal).or_else(|| lines.next())
}

/// The error of a body that broke off before anything of it was sent.
pub(crate) fn error_of(body: &mut impl BodySource, broken: BrokenBody) -> BackendError {
    body.take_error().unwrap_or_else(|| broken_off(broken))
}

fn broken_off(broken: BrokenBody) -> BackendError {
    failed(broken.reason, broken)
}

fn failed(reason: Reason, cause: impl Into<Box<dyn Error + Send + Sync>>) -> BackendError {
    BackendError {
        status: 502,
        reason,
        detail: None,
        stderr: String::new(),
        cause: cause.into(),
    }
}
