//! Values in memcached, spread over several servers by consistent hashing.
//!
//! The protocol is the library's, one connection for one call at a time; how many connections there are, which server is
//! asked and how long is ours. A connection on which a call did not end well is dropped: the answer that still comes on
//! it would be taken for that of the next call.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_memcached::{AsciiProtocol, Client, Error, Status};
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::cache::{Cache, CacheError, Cached, Tier};
use super::guard::Guard;
use super::ketama::Continuum;
use super::key::CacheKey;
use super::remote;
use crate::store::BoxFuture;

/// Connections to one server: memcached answers in microseconds, so few of them carry a great deal.
const CONNECTIONS: usize = 8;

/// One memcached, or several as one.
#[derive(Debug)]
pub struct MemcachedCache {
    servers: Vec<Server>,
    continuum: Continuum,
}

struct Server {
    /// `tcp://10.0.0.5:11211` for the library.
    address: String,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
    guard: Guard,
}

impl MemcachedCache {
    /// Of these servers, each `host:port`; connections are made when they are needed.
    ///
    /// # Panics
    /// Without any server.
    #[must_use]
    pub fn new(servers: &[String]) -> Self {
        assert!(!servers.is_empty(), "a cache needs a server");
        let server = |name: &String| Server {
            address: format!("tcp://{name}"),
            idle: Mutex::default(),
            places: Semaphore::new(CONNECTIONS),
            guard: Guard::new(format!("memcached://{name}"), remote::BUDGET),
        };
        Self {
            continuum: Continuum::new(servers.iter().map(String::as_str)),
            servers: servers.iter().map(server).collect(),
        }
    }

    /// A key belongs to one server. If that is down its keys are misses: another one would keep values that come back
    /// as old ones when the circle is whole again.
    fn server(&self, key: CacheKey) -> &Server {
        let [a, b, c, d, ..] = *key.as_bytes();
        &self.servers[self.continuum.find(u32::from_le_bytes([a, b, c, d]))]
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

/// A command on one connection.
enum MemcachedCommand<'c> {
    Get,
    Set(&'c [u8]),
    Delete,
}

impl Server {
    async fn call(&self, key: CacheKey, call: MemcachedCommand<'_>) -> Result<Option<Bytes>, CacheError> {
        self.guard.call(self.try_twice(&name(key), &call)).await
    }

    /// An idle connection may have ended since: that is no failure of the server, but only a new connection tells.
    async fn try_twice(&self, key: &str, call: &MemcachedCommand<'_>) -> Result<Option<Bytes>, CacheError> {
        let _place = self.places.acquire().await.expect("it is never closed");
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(client) = idle
            && let Ok(value) = self.call_on(client, key, call).await
        {
            return Ok(value);
        }
        let client = Client::new(&self.address).await.map_err(of_library)?;
        self.call_on(client, key, call).await
    }

    async fn call_on(&self, mut client: Client, key: &str, call: &MemcachedCommand<'_>) -> Result<Option<Bytes>, CacheError> {
        let outcome = match call {
            MemcachedCommand::Get => client.get(key).await.map(|value| value.and_then(|value| value.data)),
            MemcachedCommand::Set(value) => {
                let seconds = i64::try_from(remote::EXPIRY.as_secs()).unwrap_or(i64::MAX);
                client.set(key, *value, Some(seconds), None).await.map(|()| None)
            }
            MemcachedCommand::Delete => match client.delete(key).await {
                Err(Error::Protocol(Status::NotFound)) => Ok(None),
                outcome => outcome.map(|()| None),
            },
        };
        let value = outcome.map_err(of_library)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        Ok(value.map(Bytes::from))
    }
}

/// Printable and far below memcached's 250 bytes.
fn name(key: CacheKey) -> String {
    format!("haulier:{}", key.to_hex())
}

fn of_library(error: Error) -> CacheError {
    match error {
        Error::Io(error) | Error::Connect(error) => CacheError::Io(error),
        other => CacheError::Server(other.to_string()),
    }
}

impl Cache for MemcachedCache {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
        Box::pin(async move {
            match self.server(key).call(key, MemcachedCommand::Get).await? {
                Some(sealed) => Ok(Some(Cached::Bytes(remote::open(key, &sealed)?))),
                None => Ok(None),
            }
        })
    }

    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move {
            if value.len() > remote::MOST {
                return self.delete(key).await;
            }
            let sealed = remote::seal(key, &value);
            self.server(key).call(key, MemcachedCommand::Set(&sealed)).await.map(drop)
        })
    }

    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move { self.server(key).call(key, MemcachedCommand::Delete).await.map(drop) })
    }

    fn tier(&self) -> Tier {
        Tier::Memcached
    }

    fn place(&self) -> String {
        let names = self
            .servers
            .iter()
            .map(|server| server.address.trim_start_matches("tcp://"));
        format!("memcached://{}", names.collect::<Vec<_>>().join(","))
    }
}
