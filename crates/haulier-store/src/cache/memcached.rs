//! A cache in memcached, over several servers by consistent hashing.
//!
//! The library speaks the protocol, with one call at a time on a connection. This module pools connections, chooses the
//! server and applies the timeout. A connection is dropped after a failed call, since a late answer would be taken for
//! that of the next call.

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

/// Most connections to one server; few suffice, since memcached answers in microseconds.
const CONNECTIONS: usize = 8;

/// One or several memcached servers.
#[derive(Debug)]
pub struct MemcachedCache {
    servers: Vec<Server>,
    continuum: Continuum,
}

struct Server {
    /// Address for the library: `tcp://10.0.0.5:11211`.
    address: String,
    idle: Mutex<Vec<Client>>,
    places: Semaphore,
    guard: Guard,
}

impl MemcachedCache {
    /// A cache over these servers, each `host:port`. Connections are opened on demand.
    ///
    /// # Panics
    /// `servers` is empty.
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

    /// The server of a key. If it is down, its keys are misses: with another server, stale values would return once the
    /// first one is back.
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

    /// Makes the call on an idle connection, then on a new one: a closed idle connection is no failure of the server.
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

    async fn call_on(
        &self,
        mut client: Client,
        key: &str,
        call: &MemcachedCommand<'_>,
    ) -> Result<Option<Bytes>, CacheError> {
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

/// The name of a value, printable and below memcached's limit of 250 bytes.
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
            self.server(key)
                .call(key, MemcachedCommand::Set(&sealed))
                .await
                .map(drop)
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
