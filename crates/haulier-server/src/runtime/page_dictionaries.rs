//! Refreshes the dictionaries made of pages. haulier requests such a page itself, through the pipeline, as a new
//! visitor over HTTPS from this machine.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{Body, BodyError, Exchange, Peer, Piece, Presence, Request, Timeouts};
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{HeadLimits, RequestHead};

use crate::clock;
use crate::compress::media_type::is_html;
use crate::pipeline::{self, Handling};
use crate::site::Site;
use crate::thread::Thread;

/// Interval between searches for pages that are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest page that becomes a dictionary, bytes: clients and the server keep it.
const MOST: usize = 1 << 20;

/// Keeps the dictionaries of all sites fresh, for as long as the thread serves.
pub(super) async fn keep_fresh(thread: Rc<Thread>) {
    let mut looks = tokio::time::interval(CHECK_INTERVAL);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !thread.io.draining.get() {
        looks.tick().await;
        let sites: Vec<Arc<Site>> = thread.serving().router.sites().cloned().collect();
        for site in sites {
            for page_dictionary in site.coding.page_dictionaries.iter() {
                if page_dictionary.is_due(thread.io.clock.coarse()) {
                    let page = page(&thread, &site, &page_dictionary.page).await;
                    if let Err(why) = &page {
                        let (site, page) = (&site.settings.name, &page_dictionary.page);
                        tracing::warn!(site, page, why, "cannot make a dictionary of this page");
                    }
                    page_dictionary.take(page.ok(), thread.io.clock.coarse());
                }
            }
        }
    }
}

/// The body of an HTML page.
///
/// # Errors
/// A description for the log.
async fn page(thread: &Rc<Thread>, site: &Arc<Site>, target: &str) -> Result<Bytes, String> {
    let request = request(thread, site, target).ok_or("its path is malformed")?;
    let answered = match pipeline::serve_site(thread, Arc::clone(site), request) {
        Handling::Ready(answered) => answered,
        Handling::Later(answered) => answered.await,
    };
    let response = answered.response;
    if response.status != 200 {
        return Err(format!("it answers with status {}", response.status));
    }
    let fields = response.head.fields();
    if !fields.known(Known::ContentType).is_some_and(is_html) {
        return Err("it is not HTML".into());
    }
    collect(response.body).await.map_err(ToOwned::to_owned)
}

fn request(thread: &Thread, site: &Site, target: &str) -> Option<Request> {
    let host = site.settings.hosts.iter().find(|host| !host.contains('*'));
    let host = host.map_or("localhost", String::as_str);
    let mut bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: haulier\r\n\r\n").into_bytes();
    let limits = HeadLimits {
        request_line: 8192,
        header: 16384,
        fields: 16,
    };
    let head = RequestHead::parse(&mut bytes, &limits, &mut Fields::new()).ok()??;
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 443));
    Some(Request {
        head,
        peer: Peer {
            remote: here,
            local: here,
            // Browsers use dictionaries over HTTPS only, and the page should contain the links that they get.
            tls: !site.settings.development,
            misses_tls: false,
            proxy: None,
        },
        id: thread.next_id(),
        received: clock::now(),
        body_length: Some(0),
        asks_password: Cell::default(),
        exchange: Rc::new(NoClient),
    })
}

async fn collect(body: Body) -> Result<Bytes, &'static str> {
    let mut page = Vec::new();
    match body {
        Body::Empty | Body::Unsent(_) => {}
        Body::Bytes(bytes) => return if bytes.len() <= MOST { Ok(bytes) } else { Err(TOO_LONG) },
        Body::File(slice) => add(&mut page, Piece::File(slice))?,
        Body::Stream(mut stream) => {
            while let Some(piece) = poll_fn(|context| stream.poll_piece(context))
                .await
                .map_err(|broken| broken.reason.word())?
            {
                add(&mut page, piece)?;
            }
        }
    }
    Ok(page.into())
}

const TOO_LONG: &str = "it is longer than 1 MiB";

fn add(page: &mut Vec<u8>, piece: Piece) -> Result<(), &'static str> {
    if page.len() as u64 + piece.len() > MOST as u64 {
        return Err(TOO_LONG);
    }
    piece.read_to(page).map_err(|_| "cannot read its spool")
}

/// The exchange of a request without a connection.
#[derive(Debug)]
struct NoClient;

impl Exchange for NoClient {
    fn set_timeouts(&self, _: Option<&Arc<Timeouts>>) {}

    fn poll_body(&self, _: &mut Context<'_>, _: &mut Vec<u8>) -> Poll<Result<usize, BodyError>> {
        Poll::Ready(Ok(0))
    }

    fn send_interim(&self, _: u16, _: &Fields) {}

    fn presence(&self) -> Presence {
        Presence::Here
    }
}
