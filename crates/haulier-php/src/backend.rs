//! The pool as a [`Backend`]: calls become FastCGI requests, and PHP's responses become answers.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use haulier_http::{
    AnswerHead, Backend, BackendAnswer, BackendCall, BackendError, BodySource, BrokenBody, Cost, Piece, ReadInto,
    ReadPiece, Reason, interim_fields,
};
use haulier_proto::fastcgi::CgiHead;
use haulier_proto::fastcgi::response::CgiRedirect;

use crate::error::PoolError;
use crate::pool::Pool;
use crate::request::Request;
use crate::response::Response;
use crate::running::RunningRequest;

/// Most requests listed on the error page of a developer.
const MOST_LISTED: usize = 10;

impl Backend for Pool {
    /// Complete PARAMS records.
    type Head = [u8];
    /// On the heap: it passes through a dozen futures, each of which would reserve space for all of it.
    type Body = Box<Response>;

    fn name(&self) -> &Arc<str> {
        self.name()
    }

    async fn send(&self, call: &BackendCall<'_, [u8]>) -> Result<BackendAnswer<Box<Response>>, BackendError> {
        let caller = call.caller;
        let request = Request {
            params: call.head,
            body: call.body,
            idempotent: call.idempotent,
            affinity: call.affinity,
            client: &|| caller.presence(),
            label: &|| caller.label(),
        };
        let mut interim = |head: &CgiHead| caller.send_interim(head.status(), &interim_fields(head.fields()));
        let response = self.send(&request, &mut interim).await;
        let response = response.map_err(|error| self.failed(error))?;
        answer(response).map_err(|why| {
            let (pool, request) = (&**self.name(), caller.label());
            tracing::error!(pool, %why, request, "bad_response");
            BackendError {
                status: 502,
                reason: Reason::BadResponse,
                detail: None,
                stderr: String::new(),
                cause: why.into(),
            }
        })
    }

    fn explain(&self, error: &BackendError) -> String {
        match &error.detail {
            Some(figures) => format!("{figures}\n\n{}", self.list_running()),
            None => format!("{error}\n{}\n\n{}", self.describe(), error.stderr),
        }
    }
}

/// Makes an answer of PHP's response.
fn answer(mut response: Response) -> Result<BackendAnswer<Box<Response>>, haulier_http::BadLength> {
    let cgi = &response.head;
    let mut head = AnswerHead::read(cgi.status(), cgi.fields())?;
    head.dropped = cgi.dropped().map(<[u8]>::to_vec);
    if let CgiRedirect::Local(target) = cgi.redirect() {
        head.local_redirect = Some(target.to_vec());
    }
    response.length = head.length;
    let cost = Cost {
        queued: response.queued(),
        taken: response.taken(),
        pid: response.pid(),
    };
    Ok(BackendAnswer {
        head,
        body: Box::new(response),
        cost,
    })
}

impl BodySource for Response {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        self.poll_any_piece(context)
            .map(|next| next.map_err(|error| self.break_off(error)))
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: ReadInto<'_>,
    ) -> Poll<Result<Option<ReadPiece>, BrokenBody>> {
        self.poll_next(context, Some(into))
            .map(|next| next.map_err(|error| self.break_off(error)))
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn coming(&self) -> usize {
        self.exchange.content_left()
    }

    fn is_worth_a_pipe(&self) -> bool {
        self.has_long_pieces()
    }

    fn worker_time(&self) -> Duration {
        self.worker_time()
    }

    fn take_error(&mut self) -> Option<BackendError> {
        self.error.take().map(BackendError::from)
    }

    fn take_stderr(&mut self) -> Vec<u8> {
        self.take_stderr()
    }

    fn log_stderr(&mut self) {
        self.log_stderr();
    }
}

impl From<PoolError> for BackendError {
    fn from(error: PoolError) -> Self {
        Self {
            status: match error {
                PoolError::Exhausted { .. } | PoolError::Abandoned { .. } | PoolError::Stopped => 503,
                PoolError::Timeout { .. } => 504,
                PoolError::RequestBody(_) => 500,
                _ => 502,
            },
            reason: error.reason(),
            detail: None,
            stderr: error.stderr_tail().to_owned(),
            cause: Box::new(error),
        }
    }
}

impl Pool {
    fn failed(&self, error: PoolError) -> BackendError {
        let detail = match error {
            PoolError::Exhausted { waited } => Some(self.met_limit(waited).into()),
            _ => None,
        };
        BackendError { detail, ..error.into() }
    }

    /// Describes the limit that left a request without a worker.
    fn met_limit(&self, waited: Duration) -> String {
        let (settings, load) = (self.settings(), self.status().load);
        let name = &settings.name;
        let met = if waited < settings.queue_timeout {
            format!("`queue_length` of pool {name} lets {} wait", settings.queue_length)
        } else {
            let most = settings.queue_timeout.as_secs_f64();
            format!("waited {most:.1} s, as long as `queue` of pool {name} allows")
        };
        let idle = if load.busy < load.capacity {
            ", the others are being started"
        } else {
            ""
        };
        format!(
            "{met}; {} of {} workers busy (`workers`){idle}, {} requests waiting",
            load.busy, load.capacity, load.queued
        )
    }

    /// The running requests in lines, the longest-running first.
    fn list_running(&self) -> String {
        let running = self.running();
        let line = |request: &RunningRequest| format!("{} for {:.1} s\n", request.label, request.running.as_secs_f64());
        running.iter().take(MOST_LISTED).map(line).collect()
    }

    /// Status of the pool in one line.
    fn describe(&self) -> String {
        let status = self.status();
        format!(
            "pool {}: {} of {} workers busy, {} requests waiting, {} workers crashed since the start",
            self.settings().name,
            status.load.busy,
            status.load.capacity,
            status.load.queued,
            status.counts.crashes
        )
    }
}
