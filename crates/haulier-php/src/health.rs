//! Whether the servers of others are well: php-fpm's own ping, or, for those that are left out, a connection. And how
//! much they do for others, where they tell.
//!
//! One thread a pool with several servers or with `health`, one task a server.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use haulier_proto::fastcgi::ParamsWriter;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::connection::Connection;
use crate::exchange::Exchange;
use crate::fpm_status::FpmStatus;
use crate::request::{Body, Request, Wanted};
use crate::settings::{External, Health};
use crate::state::Shared;

/// Without health checks: how often a server that is left out is asked for a connection.
const RETRY: Duration = Duration::from_millis(250);
/// Longest head of the answer to a ping, bytes.
const RESPONSE_HEAD: usize = 16 * 1024;
/// Longest body, bytes.
const MOST_TOLD: usize = 64 * 1024;

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    /// Nothing is ever sent: being dropped is the message.
    alive: Mutex<Option<oneshot::Sender<()>>>,
}

impl HealthChecks {
    /// Starts the thread, if there is a choice of servers or the pool asks for it.
    ///
    /// # Errors
    /// The system has no thread or no descriptors to give.
    pub(crate) fn start(shared: &Arc<Shared>, external: &External) -> io::Result<Self> {
        if external.servers.len() < 2 && external.health.is_none() {
            return Ok(Self {
                alive: Mutex::new(None),
            });
        }
        let (alive, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shared, health) = (Arc::clone(shared), external.health.clone());
        thread::Builder::new().name("php-health".into()).spawn(move || {
            let checks = LocalSet::new();
            for server in 0..shared.addresses.len() {
                checks.spawn_local(watch(Arc::clone(&shared), server, health.clone()));
            }
            checks.block_on(&runtime, async {
                let _ = ended.await; // an error: the other end was dropped, which is what we wait for
            });
        })?;
        Ok(Self {
            alive: Mutex::new(Some(alive)),
        })
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Looks after one server for ever.
async fn watch(shared: Arc<Shared>, server: usize, health: Option<Health>) {
    let mut has_warned = false;
    loop {
        match &health {
            Some(health) => {
                tokio::time::sleep(health.every).await;
                let pong = tokio::time::timeout(health.every, ask(&shared, server, &health.path)).await;
                let is_well = pong.is_ok_and(|pong| pong.is_some());
                shared.note_health(server, is_well, health);
                if let Some(path) = &health.status {
                    let told = tokio::time::timeout(health.every, ask(&shared, server, path)).await;
                    let status = told.ok().flatten().and_then(|text| FpmStatus::parse(&text));
                    if is_well && status.is_none() && !std::mem::replace(&mut has_warned, true) {
                        let (pool, server) = (shared.settings.name.as_str(), &shared.addresses[server]);
                        tracing::warn!(pool, %server, path, "php-fpm does not tell its status there: see its pm.status_path");
                    }
                    shared.note_status(server, status);
                }
            }
            None => {
                tokio::time::sleep(RETRY).await;
                let begun = Instant::now();
                if shared.is_down(server) && connect(&shared, server).await.is_ok() {
                    shared.note_connect(server, Some(begun.elapsed()));
                }
            }
        }
    }
}

async fn connect(shared: &Shared, server: usize) -> io::Result<Connection> {
    Connection::open(
        &shared.addresses[server],
        shared.generation(server),
        shared.connect_timeout,
    )
    .await
}

/// What the server answers to a request for this path, if it does with 200.
async fn ask(shared: &Shared, server: usize, path: &str) -> Option<Vec<u8>> {
    let begun = Instant::now();
    let connection = connect(shared, server).await.ok()?;
    shared.note_round_trip(server, begun.elapsed());
    let params = ping_params(path)?;
    let mut exchange = Exchange::new(RESPONSE_HEAD, true);
    let request = Request {
        params: &params,
        body: Body::Empty,
        idempotent: true,
        affinity: None,
        wanted: &|| Wanted::Yes,
        label: &|| format!("ping {path}"),
    };
    // An empty socket takes so little at once.
    if exchange.start(&connection, &request).is_err() || exchange.has_unsent() {
        return None;
    }
    let mut body = Vec::new();
    while !exchange.is_complete() {
        poll_fn(|cx| exchange.poll_step(cx, &connection, None)).await.ok()?;
        body.extend(exchange.take_body().into_iter().flatten());
        if body.len() > MOST_TOLD {
            return None;
        }
    }
    let is_well = exchange.take_heads().last().is_some_and(|head| head.status() == 200);
    is_well.then_some(body)
}

/// What php-fpm looks at: SCRIPT_NAME is compared with `ping.path` and `pm.status_path`. `None` for a path too long to send.
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
