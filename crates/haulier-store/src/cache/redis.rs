//! A cache in Redis or a compatible server, such as Valkey.
//!
//! All calls share one connection, on which the library pipelines them. After a failure the connection is dropped, and
//! the next call opens a new one.

use std::sync::Arc;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};
use tokio::sync::Mutex;

use super::cache::{Cache, CacheError, Cached, Tier};
use super::guard::Guard;
use super::key::CacheKey;
use super::remote;
use crate::store::BoxFuture;

/// One Redis server.
#[derive(Debug)]
pub struct RedisCache {
    client: Client,
    connection: Mutex<Option<Open>>,
    place: String,
    guard: Guard,
}

/// The current connection. Its identity keeps a call that failed on an older connection from dropping it.
#[derive(Debug, Clone)]
struct Open {
    connection: MultiplexedConnection,
    identity: Arc<()>,
}

impl RedisCache {
    /// A cache on the server at this address, `redis://[user:password@]host[:port][/database]`. The connection is
    /// opened on demand.
    ///
    /// # Errors
    /// The address is malformed.
    pub fn new(url: &str) -> Result<Self, CacheError> {
        let client = Client::open(url).map_err(of_library)?;
        let place = without_password(url);
        Ok(Self {
            client,
            connection: Mutex::new(None),
            guard: Guard::new(place.clone(), remote::BUDGET),
            place,
        })
    }

    async fn open(&self) -> Result<Open, CacheError> {
        let mut kept = self.connection.lock().await;
        if let Some(open) = &*kept {
            return Ok(open.clone());
        }
        // The guard applies the timeout; the library's own would only add further kinds of the same failure.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .map_err(of_library)?;
        let open = Open {
            connection,
            identity: Arc::new(()),
        };
        *kept = Some(open.clone());
        Ok(open)
    }

    async fn call<T: FromRedisValue>(&self, command: Cmd) -> Result<T, CacheError> {
        let mut used = None;
        let call = async {
            let open = used.insert(self.open().await?);
            command.query_async(&mut open.connection).await.map_err(of_library)
        };
        let outcome = self.guard.call(call).await;
        if let (Err(_), Some(used)) = (&outcome, used) {
            let mut kept = self.connection.lock().await;
            if kept
                .as_ref()
                .is_some_and(|open| Arc::ptr_eq(&open.identity, &used.identity))
            {
                *kept = None;
            }
        }
        outcome
    }
}

fn command(name: &str, key: CacheKey) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(format!("haulier:{}", key.to_hex()));
    command
}

#[allow(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn of_library(error: RedisError) -> CacheError {
    // Reported at the first call: other nodes have most of the keys.
    if error.is_cluster_error() {
        return CacheError::Server(format!(
            "it is a node of a cluster, and clusters are not supported ({error})"
        ));
    }
    CacheError::Server(error.to_string())
}

/// The address without its password, for logs.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

impl Cache for RedisCache {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
        Box::pin(async move {
            match self.call::<Option<Vec<u8>>>(command("GET", key)).await? {
                Some(sealed) => Ok(Some(Cached::Bytes(remote::open(key, &sealed.into())?))),
                None => Ok(None),
            }
        })
    }

    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move {
            if value.len() > remote::MOST {
                return self.delete(key).await;
            }
            let mut set = command("SET", key);
            set.arg(&remote::seal(key, &value)[..])
                .arg("EX")
                .arg(remote::EXPIRY.as_secs());
            self.call::<()>(set).await
        })
    }

    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move { self.call::<u64>(command("DEL", key)).await.map(drop) })
    }

    fn tier(&self) -> Tier {
        Tier::Redis
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}
