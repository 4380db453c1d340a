//! From a request to its response: the page that tells the story.
//!
//! [`serve`] finds the site, lets the request filters answer early, asks what the path is, and either has a response
//! at once or hands back a future. It knows nothing of protocols: bytes are somebody else's.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use haulier_proto::head::Method;
use haulier_proto::path;

use crate::filter;
use crate::forwarded;
use crate::handler::php::{self, Call, Outcome};
use crate::handler::static_files::{self, Found, Script};
use crate::handler::{error_page, listing, redirect};
use crate::metrics::InFlight;
use crate::request::Request;
use crate::response::{Handler, Response};
use crate::route::Site;
use crate::thread::Thread;

/// A request with its response.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) request: Request,
    /// `None` if no site answers to the host.
    pub(crate) site: Option<Arc<Site>>,
    pub(crate) response: Response,
}

/// A response, or the promise of one.
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the fast path: a box would cost it an allocation"
)]
pub(crate) enum Answer {
    Ready(Answered),
    Later(Pin<Box<dyn Future<Output = Answered>>>),
}

/// Who answers.
enum Decision {
    Answer(Response),
    Run(Script),
}

/// Carries a request to its response. What needs no waiting is answered without a future.
pub(crate) fn serve(thread: &Rc<Thread>, mut request: Request) -> Answer {
    forwarded::apply(&thread.settings.trusted_proxies, &mut request);
    let Some(site) = thread.router.find(request.head.host()).map(Arc::clone) else {
        let response = error_page::respond(421, Some("no_site"), None, request.id, None);
        return Answer::Ready(Answered {
            request,
            site: None,
            response,
        });
    };
    request.in_flight = Some(InFlight::request(thread, site.number));
    match decide(thread, &site, &request, request.head.path()) {
        Decision::Answer(response) => Answer::Ready(finish(request, site, response)),
        Decision::Run(script) => Answer::Later(Box::pin(run(Rc::clone(thread), request, site, script))),
    }
}

/// Filters, then what the path is, then who answers for that.
fn decide(thread: &Thread, site: &Arc<Site>, request: &Request, raw_path: &[u8]) -> Decision {
    // `OPTIONS *` asks about the server as a whole; CONNECT has no path either.
    if raw_path.is_empty() {
        let status = if request.head.method() == Method::Options {
            204
        } else {
            405
        };
        return Decision::Answer(Response::new(status, Handler::Static).with("Allow", "GET, HEAD, POST, OPTIONS"));
    }
    let Ok(path) = path::normalize(raw_path) else {
        return Decision::Answer(refused(site, request, 400, Some("bad_path")));
    };
    if let Some(early) = filter::on_request(site, &request.head, &path) {
        return Decision::Answer(early);
    }
    match thread.files.find(site, &path, thread.clock.coarse()) {
        Found::File(entry) => Decision::Answer(static_files::respond(&request.head, &entry)),
        Found::Script(script) => Decision::Run(script),
        Found::SlashMissing => Decision::Answer(redirect::add_slash(&path, request.head.query())),
        Found::Directory if site.settings.listing => Decision::Answer(listing::respond(site, &path, &request.head)),
        Found::Directory | Found::Missing => front_controller(thread, site, request),
        Found::Denied => {
            let mut response = refused(site, request, 404, None);
            response.trace.handler = Handler::Denied;
            Decision::Answer(response)
        }
        Found::Failed(error) => {
            tracing::error!(site = site.settings.name, %error, path = %String::from_utf8_lossy(&path), "cannot open a file");
            let (status, reason) = error_page::of_file(&error);
            Decision::Answer(refused(site, request, status, reason))
        }
    }
}

/// What is no file belongs to the application, if it has one door for everything.
fn front_controller(thread: &Thread, site: &Arc<Site>, request: &Request) -> Decision {
    let front = site.settings.php.as_ref().and_then(|php| php.front.as_deref());
    match front.map(|front| thread.files.find(site, front.as_bytes(), thread.clock.coarse())) {
        Some(Found::Script(script)) => Decision::Run(script),
        Some(_) => Decision::Answer(refused(site, request, 500, Some("front_controller_missing"))),
        None => Decision::Answer(refused(site, request, 404, None)),
    }
}

fn refused(site: &Arc<Site>, request: &Request, status: u16, reason: Option<&'static str>) -> Response {
    error_page::respond(status, reason, Some(site), request.id, None)
}

fn finish(request: Request, site: Arc<Site>, mut response: Response) -> Answered {
    filter::on_response(&site, &request.head, &mut response);
    Answered {
        request,
        site: Some(site),
        response,
    }
}

/// RFC 3875 §6.2.2 lets a script name another path of this server; more than this many in a row is a loop.
const LOCAL_REDIRECTS: usize = 10;

/// Has PHP answer.
async fn run(thread: Rc<Thread>, request: Request, site: Arc<Site>, script: Script) -> Answered {
    let mut call = Call::new(script);
    for _ in 0..=LOCAL_REDIRECTS {
        let target = match php::respond(&thread, &site, &request, &call).await {
            Outcome::Response(response) => return finish(request, site, response),
            Outcome::Local(target) => target,
        };
        let raw_path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
        match decide(&thread, &site, &request, raw_path) {
            Decision::Answer(response) => return finish(request, site, response),
            Decision::Run(script) => call = Call::redirected(script, target),
        }
    }
    let response = refused(&site, &request, 500, Some("redirect_loop"));
    finish(request, site, response)
}
