//! The contract test of every store and cache with a server, against the real server; and tests with servers that are
//! down, slow, or lie.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_store::cache::{Cache, CacheError, CacheKey, Cached, MemcachedCache, RedisCache, Tier};
use haulier_store::{
    BoxFuture, Key, Location, ObjectOptions, ObjectStore, Put, Store, StoreError, StoreRuntime, suite,
};
use tempfile::TempDir;

/// A server as a child process, which ends with the value.
struct Server {
    child: Child,
    port: u16,
    /// Its data directory.
    _directory: TempDir,
}

impl Server {
    fn start(directory: TempDir, port: u16, command: &mut Command) -> Self {
        let log = File::create(directory.path().join("log")).expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; `make test` installs it"));
        let mut server = Self {
            child,
            port,
            _directory: directory,
        };
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.child.try_wait().expect("our child");
            assert!(
                ended.is_none() && Instant::now() < end,
                "{command:?} does not listen ({ended:?})"
            );
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn memcached() -> Self {
        let port = free_port();
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
        Self::start(directory(), port, &mut command)
    }

    fn redis() -> Self {
        let (directory, port) = (directory(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        command.arg("--dir").arg(directory.path());
        Self::start(directory, port, &mut command)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A port on which no process listens, below the ephemeral ones, so it stays free while other tests run.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 120 * 100; // programs started one after the other begin apart
    let mut ports = (0..12_000).map(|_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        (20_000 + (first + number) % 12_000) as u16
    });
    ports
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a free port")
}

/// A cache that is asked again after a timeout: its 50 ms may be too short on a machine that stalls.
#[derive(Debug)]
struct Patient<C>(C);

impl<C> Patient<C> {
    async fn ask<'a, T>(attempt: impl Fn() -> BoxFuture<'a, Result<T, CacheError>>) -> Result<T, CacheError> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match attempt().await {
                Err(CacheError::TooSlow(_) | CacheError::Resting) if Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                outcome => return outcome,
            }
        }
    }
}

impl<C: Cache> Cache for Patient<C> {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
        Box::pin(Self::ask(move || self.0.get(key)))
    }

    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(Self::ask(move || self.0.put(key, value.clone())))
    }

    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(Self::ask(move || self.0.delete(key)))
    }

    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

fn runtime() -> StoreRuntime {
    StoreRuntime::start().expect("a thread")
}

/// A server that runs `answer` for one connection after the other.
fn fake(answer: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream);
        }
    });
    address
}

/// Runs a test of futures on the runtime.
fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = runtime();
    runtime.block_on(runtime.spawn(future)).expect("no panic")
}

const VALUE: Bytes = Bytes::from_static(b"value");

#[test]
fn memcached_keeps_what_every_cache_promises() {
    let server = Server::memcached();
    suite::cache(&runtime(), Arc::new(Patient(MemcachedCache::new(&[server.address()]))));
}

#[test]
fn several_memcached_are_one_cache() {
    let servers = [Server::memcached(), Server::memcached(), Server::memcached()];
    let addresses: Vec<String> = servers.iter().map(Server::address).collect();
    suite::cache(&runtime(), Arc::new(Patient(MemcachedCache::new(&addresses))));
}

#[test]
fn with_one_of_two_memcached_gone_the_other_half_of_the_keys_is_still_found() {
    let (stays, goes) = (Server::memcached(), Server::memcached());
    let cache = Arc::new(Patient(MemcachedCache::new(&[stays.address(), goes.address()])));
    let keys: Vec<CacheKey> = (0..200_u8).map(|number| CacheKey::of(&[&[number]])).collect();
    let (runtime, filled, asked) = (runtime(), Arc::clone(&cache), keys.clone());
    let fill = async move {
        for key in asked {
            filled.put(key, VALUE).await.expect("kept");
        }
    };
    runtime.block_on(runtime.spawn(fill)).expect("no panic");
    drop(goes);
    let ask = |cache: Arc<Patient<MemcachedCache>>, keys: Vec<CacheKey>| async move {
        let (mut found, mut left_alone) = (0, 0);
        for key in keys {
            match cache.0.get(key).await {
                Ok(found_one) => found += usize::from(found_one.is_some()),
                Err(CacheError::Resting) => left_alone += 1,
                Err(_) => {}
            }
        }
        (found, left_alone)
    };
    // The remaining server may be too slow once, but not repeatedly.
    let mut seen = (0, 0);
    for _ in 0..5 {
        seen = runtime
            .block_on(runtime.spawn(ask(Arc::clone(&cache), keys.clone())))
            .expect("no panic");
        if seen.0 >= 50 {
            break;
        }
        thread::sleep(Duration::from_secs(6));
    }
    let (found, left_alone) = seen;
    assert!((50..=150).contains(&found), "{found} of 200");
    assert!(left_alone > 20, "after five failures it is left alone: {left_alone}");
}

#[test]
fn memcached_is_used_again_after_a_restart() {
    let first = Server::memcached();
    let (port, address) = (first.port, first.address());
    let cache = Arc::new(Patient(MemcachedCache::new(&[address])));
    let key = CacheKey::of(&[b"key"]);
    let (runtime, used) = (runtime(), Arc::clone(&cache));
    runtime
        .block_on(runtime.spawn(async move { used.put(key, VALUE).await }))
        .expect("no panic")
        .expect("kept");
    drop(first);
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
    let _second = Server::start(directory(), port, &mut command);
    // The kept connection is closed; the caller does not notice.
    runtime
        .block_on(runtime.spawn(async move { cache.put(key, VALUE).await }))
        .expect("no panic")
        .expect("kept by the new one");
}

#[test]
fn redis_keeps_what_every_cache_promises() {
    let server = Server::redis();
    let cache = RedisCache::new(&format!("redis://{}", server.address())).expect("an address");
    suite::cache(&runtime(), Arc::new(Patient(cache)));
}

#[test]
fn redis_is_used_again_after_a_restart() {
    let first = Server::redis();
    let port = first.port;
    let redis = RedisCache::new(&format!("redis://{}/3", first.address())).expect("an address");
    let cache = Arc::new(Patient(redis));
    let key = CacheKey::of(&[b"key"]);
    let (runtime, used) = (runtime(), Arc::clone(&cache));
    runtime
        .block_on(runtime.spawn(async move { used.put(key, VALUE).await }))
        .expect("no panic")
        .expect("kept");
    drop(first);
    let gone = Arc::clone(&cache);
    let outcome = runtime.block_on(runtime.spawn(async move { gone.get(key).await.map(drop) }));
    assert!(outcome.expect("no panic").is_err());
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
    let _second = Server::start(directory(), port, &mut command);
    runtime
        .block_on(runtime.spawn(async move { cache.put(key, VALUE).await }))
        .expect("no panic")
        .expect("kept by the new one");
}

#[test]
fn a_server_that_says_nothing_costs_its_budget_and_then_nothing() {
    let silent = fake(std::mem::forget);
    let caches: [Arc<dyn Cache>; 2] = [
        Arc::new(MemcachedCache::new(&[silent.to_string()])),
        Arc::new(RedisCache::new(&format!("redis://{silent}")).expect("an address")),
    ];
    for cache in caches {
        let key = CacheKey::of(&[b"key"]);
        let outcomes = run(async move {
            let mut outcomes = Vec::new();
            for _ in 0..8 {
                outcomes.push(cache.get(key).await.map(drop));
            }
            outcomes
        });
        let slow = |outcome: &&Result<(), CacheError>| matches!(outcome, Err(CacheError::TooSlow(_)));
        assert_eq!(outcomes.iter().filter(slow).count(), 5, "{outcomes:?}");
        assert!(matches!(outcomes[7], Err(CacheError::Resting)), "{outcomes:?}");
    }
}

#[test]
fn a_server_that_lies_is_never_believed() {
    let lying = fake(|mut stream| {
        thread::spawn(move || {
            let mut asked = [0; 4096];
            while stream.read(&mut asked).is_ok_and(|read| read > 0) {
                // A value for any key: in both protocols, the picture of another site.
                let is_redis = asked.starts_with(b"*");
                let answer: &[u8] = if is_redis {
                    b"$7\r\npicture\r\n"
                } else {
                    b"VALUE x 0 7\r\npicture\r\nEND\r\n"
                };
                if stream.write_all(answer).is_err() {
                    return;
                }
            }
        });
    });
    let caches: [Arc<dyn Cache>; 2] = [
        Arc::new(MemcachedCache::new(&[lying.to_string()])),
        Arc::new(RedisCache::new(&format!("redis://{lying}")).expect("an address")),
    ];
    for cache in caches {
        let outcome = run(async move { cache.get(CacheKey::of(&[b"key"])).await });
        assert!(!matches!(outcome, Ok(Some(_))), "{outcome:?}");
    }
}

/// The program, from `make test` or from PATH.
fn tool(name: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::var_os("GOPATH").map(PathBuf::from);
    let go = go.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join("go")));
    let places = std::env::split_paths(&path)
        .chain(go.map(|go| go.join("bin")))
        .chain([own]);
    places.map(|place| place.join(name)).find(|program| program.is_file())
}

const ACCESS: &str = "access";
const SECRET: &str = "secret-of-the-test";

/// An S3 server with an empty bucket: versitygw, otherwise moto.
fn s3() -> Option<(Server, &'static str)> {
    let port = free_port();
    let directory = directory();
    if let Some(program) = tool("versitygw") {
        let data = directory.path().join("data");
        std::fs::create_dir_all(data.join("bucket")).expect("the directory is ours");
        let mut command = Command::new(program);
        command
            .env("ROOT_ACCESS_KEY", ACCESS)
            .env("ROOT_SECRET_KEY", SECRET)
            .arg("--port")
            .arg(format!("127.0.0.1:{port}"))
            .arg("posix")
            .arg(&data);
        return Some((Server::start(directory, port, &mut command), "versitygw"));
    }
    let program = tool("moto_server")?;
    let mut command = Command::new(program);
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
    let server = Server::start(directory, port, &mut command);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let create = "PUT /bucket HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(create.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Some((server, "moto"))
}

fn s3_options(endpoint: String) -> ObjectOptions {
    ObjectOptions {
        endpoint: Some(endpoint),
        region: Some("us-east-1".into()),
        key: Some(ACCESS.into()),
        secret: Some(SECRET.into()),
        others: Vec::new(),
    }
}

fn bucket(url: &str, endpoint: String) -> Arc<ObjectStore> {
    let location: Location = url.parse().expect("a bucket");
    Arc::new(ObjectStore::new(&location, &s3_options(endpoint)).expect("options that fit"))
}

#[test]
fn an_s3_server_keeps_what_every_store_promises() {
    let Some((server, name)) = s3() else {
        println!(
            "SKIPPED: no S3 server (versitygw or moto_server); `make test` installs one where Go or Python's venv is there"
        );
        return;
    };
    println!("the S3 server is {name}");
    let endpoint = format!("http://{}", server.address());
    let runtime = runtime();
    suite::store(&runtime, bucket("s3://bucket", endpoint.clone()));
    suite::store(&runtime, bucket("s3://bucket/some/prefix", endpoint.clone()));
    let (one, other) = (
        bucket("s3://bucket/a", endpoint.clone()),
        bucket("s3://bucket/b", endpoint),
    );
    let key: Key = "abcdef".parse().expect("a key");
    let apart = async move {
        assert_eq!(one.put(&key, VALUE).await.expect("stored"), Put::Created);
        assert_eq!(
            other.head(&key).await.expect("an answer"),
            None,
            "prefixes are kept apart"
        );
        assert!(one.delete(&key).await.expect("deleted"));
    };
    runtime.block_on(runtime.spawn(apart)).expect("no panic");
}

#[test]
fn an_object_store_that_is_not_there_fails_in_time() {
    let store = bucket("s3://bucket", format!("http://127.0.0.1:{}", free_port()));
    let begin = Instant::now();
    let outcome = run(async move {
        let key: Key = "abcdef".parse().expect("a key");
        store.get(&key).await.map(drop)
    });
    assert!(matches!(outcome, Err(StoreError::Remote(_))), "{outcome:?}");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn an_object_that_is_cut_short_is_an_error_and_no_short_object() {
    let cutting = fake(|mut stream| {
        let mut asked = [0; 8192];
        let _ = stream.read(&mut asked);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: \"x\"\r\nLast-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n\r\n";
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&[7; 500]));
    });
    let store = bucket("s3://bucket", format!("http://{cutting}"));
    let outcome = run(async move {
        let key: Key = "abcdef".parse().expect("a key");
        let content = store.get(&key).await?.expect("it says it has one");
        content.into_bytes().await
    });
    assert!(outcome.is_err(), "{outcome:?}");
}
