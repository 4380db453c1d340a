//! From a request to its response: the page that tells the story.
//!
//! [`serve`] finds the site, lets the request filters answer early, looks the path up, and gives a response at once or
//! a future. It knows no protocol.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use haulier_http::{Handler, Reason, Request, Response};
use haulier_proto::head::Method;
use haulier_proto::path;

use crate::answer::{error_page, redirect};
use crate::context::{Pass, RequestContext};
use crate::files::{self, FoundPath, Script};
use crate::filter::basic_auth::{self, PasswordCheck};
use crate::filter::{self, EarlyResponse, https};
use crate::forwarded;
use crate::handler::image::{self, Started};
use crate::handler::php::{self, PhpCall, PhpOutcome};
use crate::handler::{error_document, listing};
use crate::metrics::InFlight;
use crate::password;
use crate::pattern::target::split_query;
use crate::site::{Site, rewrite};
use crate::thread::Thread;

/// A request with its response.
#[derive(Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) request: Request,
    /// `None` if the host belongs to no site.
    pub(crate) site: Option<Arc<Site>>,
    /// Counts the request as active in its site until dropped.
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) response: Response,
}

/// A response, or a future of one.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path: a box would cost it an allocation"
)]
pub(crate) enum Handling {
    Ready(AnsweredRequest),
    Later(Pin<Box<dyn Future<Output = AnsweredRequest>>>),
}

/// The next step for a request.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one: boxing it would cost an allocation"
)]
enum Decision {
    Respond(Response),
    /// Run PHP, in the site or in one mounted in it.
    Run(Box<(Arc<Site>, PhpCall)>),
    /// Wait for the image service.
    Image(Box<image::ImageCall>),
    /// Check the password, then decide again.
    Check(PasswordCheck),
}

/// Carries a request to its response. Only a request that has to wait needs a future.
pub(crate) fn serve(thread: &Rc<Thread>, mut request: Request) -> Handling {
    let serving = thread.serving();
    forwarded::apply(&serving.settings.trusted_proxies, &mut request);
    if let Some(tls) = serving.settings.tls.as_ref().filter(|_| request.peer.misses_tls) {
        let response = https::missed(thread, tls, &request);
        return Handling::Ready(AnsweredRequest {
            request,
            site: None,
            in_flight: None,
            response,
        });
    }
    let Some(site) = serving.router.find(request.head.host()).map(Arc::clone) else {
        let response = error_page::respond(421, Some(Reason::NoSite), None, &request.id, None);
        return Handling::Ready(AnsweredRequest {
            request,
            site: None,
            in_flight: None,
            response,
        });
    };
    serve_site(thread, site, request)
}

/// Like [`serve`], for a known site.
pub(crate) fn serve_site(thread: &Rc<Thread>, site: Arc<Site>, request: Request) -> Handling {
    request.exchange.set_timeouts(site.settings.limits.timeouts.as_ref());
    let in_flight = Some(InFlight::request(&thread.serving().counters, site.series));
    match decide(thread, &site, &request, None, Pass::First) {
        Decision::Respond(response) if !error_document::is_wanted(&site, &response) => {
            Handling::Ready(finish(request, site, in_flight, response))
        }
        decision => Handling::Later(Box::pin(run(Rc::clone(thread), request, site, in_flight, decision))),
    }
}

/// Applies the request filters, looks the path up and chooses a handler. `local` is the path and query of a local
/// redirect.
fn decide(thread: &Thread, site: &Arc<Site>, request: &Request, local: Option<&[u8]>, pass: Pass) -> Decision {
    let (raw_path, query) = match local {
        Some(target) => split_query(target),
        None => (request.head.path(), request.head.query()),
    };
    // `OPTIONS *` is about the whole server; CONNECT has no path either.
    if raw_path.is_empty() {
        let status = if request.head.method() == Method::Options {
            204
        } else {
            405
        };
        return Decision::Respond(Response::new(status, Handler::Static).with("Allow", "GET, HEAD, POST, OPTIONS"));
    }
    let Ok(path) = path::normalize(raw_path) else {
        return Decision::Respond(refused(site, request, 400, Some(Reason::BadPath)));
    };
    let routes = site.routes.find(&path);
    let context = RequestContext {
        thread,
        site,
        request,
        pass,
        local,
        path: &path,
        query,
        routes: &routes,
    };
    if let Some(early) = filter::on_request(&context) {
        return early.into();
    }
    let Some(rewritten) = rewrite::find(site, &path, query) else {
        return choose_handler(&context);
    };
    let routes = site.routes.find(&rewritten.path);
    let context = RequestContext {
        path: &rewritten.path,
        query: rewritten.query.as_deref(),
        routes: &routes,
        ..context
    };
    match filter::on_path(&context) {
        Some(early) => early.into(),
        None => choose_handler(&context),
    }
}

/// Looks the path up and chooses a handler.
fn choose_handler(context: &RequestContext<'_>) -> Decision {
    let &RequestContext {
        site, request, path, ..
    } = context;
    if let Some(started) = image::start(context) {
        return started.into();
    }
    match context.find(path) {
        FoundPath::File(entry) => {
            if let Some(started) = image::start_file(context, &entry) {
                return started.into();
            }
            let now = context.thread.io.clock.coarse();
            Decision::Respond(files::respond(&context.owner().files, &request.head, &entry, now))
        }
        FoundPath::Script(script) => match filter::on_script(context, &script) {
            ControlFlow::Break(early) => early.into(),
            ControlFlow::Continue(asks_password) => run_script(context, script, asks_password),
        },
        FoundPath::SlashMissing => Decision::Respond(redirect::add_slash(path, context.query)),
        FoundPath::Directory if site.settings.files.listing => {
            Decision::Respond(listing::respond(context.owner(), context.inside(), &request.head))
        }
        FoundPath::Directory | FoundPath::Missing => front_controller(context),
        FoundPath::Denied => {
            let mut response = refused(site, request, 404, None);
            response.trace.handler = Handler::Denied;
            Decision::Respond(response)
        }
        FoundPath::Failed(error) => {
            tracing::error!(site = site.settings.name, %error, path = %String::from_utf8_lossy(path), "cannot open a file");
            let (status, reason) = error_page::of_file(&error);
            Decision::Respond(refused(site, request, status, reason))
        }
    }
}

/// Answers a path that is no file with the front controller or the fallback page, if the site has one.
fn front_controller(context: &RequestContext<'_>) -> Decision {
    match context.find_front().or_else(|| context.find_fallback()) {
        Some(FoundPath::Script(script)) => run_script(context, script, context.routes.users.is_some()),
        Some(FoundPath::File(entry)) => {
            let now = context.thread.io.clock.coarse();
            Decision::Respond(files::respond(
                &context.owner().files,
                &context.request.head,
                &entry,
                now,
            ))
        }
        Some(_) => Decision::Respond(refused(
            context.site,
            context.request,
            500,
            Some(Reason::FrontControllerMissing),
        )),
        None => Decision::Respond(refused(context.site, context.request, 404, None)),
    }
}

fn run_script(context: &RequestContext<'_>, script: Script, asks_password: bool) -> Decision {
    // The name that came with a password is verified only if a password was required.
    let user = asks_password
        .then(|| password::user(context.request.head.fields()))
        .flatten();
    let call = PhpCall::new(script)
        .redirected(context.local.map(<[u8]>::to_vec))
        .with_query(context.query)
        .user(user);
    Decision::Run(Box::new((Arc::clone(context.owner()), call)))
}

fn refused(site: &Arc<Site>, request: &Request, status: u16, reason: Option<Reason>) -> Response {
    error_page::respond(status, reason, Some(site), &request.id, None)
}

fn finish(request: Request, site: Arc<Site>, in_flight: Option<InFlight>, mut response: Response) -> AnsweredRequest {
    filter::on_response(&site, &request, &mut response);
    AnsweredRequest {
        request,
        site: Some(site),
        in_flight,
        response,
    }
}

/// Most passes of one request. RFC 3875 §6.2.2 lets a script redirect locally; more than this many in a row is a loop.
/// Password checks count as well.
const MOST_PASSES: usize = 10;

/// Answers a request that has to wait. If the server cuts it off before anything was sent, the client gets 503.
async fn run(
    thread: Rc<Thread>,
    request: Request,
    site: Arc<Site>,
    in_flight: Option<InFlight>,
    decision: Decision,
) -> AnsweredRequest {
    let response = unless_cut(&thread, pin!(respond(&thread, &request, &site, decision))).await;
    let response = response.unwrap_or_else(|| refused(&site, &request, 503, Some(Reason::ServerStopped)));
    finish(request, site, in_flight, response)
}

/// The output of `work`; `None` if the server cuts it off. The connection wakes the task then.
async fn unless_cut<T>(thread: &Thread, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| match thread.io.is_cut() {
        true => Poll::Ready(None),
        false => work.as_mut().poll(context).map(Some),
    })
    .await
}

async fn respond(thread: &Rc<Thread>, request: &Request, site: &Arc<Site>, mut decision: Decision) -> Response {
    let mut local = None;
    for _ in 0..=MOST_PASSES {
        match decision {
            Decision::Respond(response) => {
                return error_document::apply(thread, site, request, response).await;
            }
            Decision::Check(check) => {
                if check.run().await {
                    decision = decide(thread, site, request, local.as_deref(), Pass::Internal);
                } else {
                    decision = Decision::Respond(basic_auth::ask(site, request));
                }
            }
            Decision::Image(call) => {
                let response = image::respond(thread, site, request, *call).await;
                decision = Decision::Respond(response);
            }
            Decision::Run(run) => {
                let (owner, call) = *run;
                match php::respond(thread, &owner, request, &call).await {
                    PhpOutcome::Response(response) => decision = Decision::Respond(response),
                    PhpOutcome::Local(target) => {
                        decision = decide(thread, site, request, Some(&target), Pass::Internal);
                        local = Some(target);
                    }
                }
            }
        }
    }
    refused(site, request, 500, Some(Reason::RedirectLoop))
}

impl From<Started> for Decision {
    fn from(started: Started) -> Self {
        match started {
            Started::Response(response) => Self::Respond(response),
            Started::Waiting(call) => Self::Image(Box::new(call)),
        }
    }
}

impl From<EarlyResponse> for Decision {
    fn from(early: EarlyResponse) -> Self {
        match early {
            EarlyResponse::Response(response) => Self::Respond(response),
            EarlyResponse::Check(check) => Self::Check(check),
        }
    }
}
