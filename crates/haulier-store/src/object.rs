//! An object store: S3, Google Cloud Storage, Azure and compatible services, by the crate `object_store`.
//!
//! An object is written by one request that fails if the key exists, so several machines may share a bucket.
//!
//! The library's timeout covers the whole body, and its read timeout also runs while our reader is slow: either would
//! cut an object on its way to a slow client. So the timeouts are here, and run only while we wait for the service.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, Error, GetOptions, GetResult, ObjectStore as Client, ObjectStoreExt, PutMode,
    RetryConfig,
};
use tokio::sync::mpsc;

use crate::location::{Location, ObjectOptions, Service};
use crate::store::{BoxFuture, Key, ObjectContent, ObjectPart, Put, Store, StoreError, within};

/// Timeout to connect.
const CONNECT: Duration = Duration::from_millis(500);
/// Timeout of an answer, retries included, and of each further piece of an object.
const ANSWER: Duration = Duration::from_secs(10);
/// Timeout of a list, which may have many pages of other objects in the bucket.
const LIST: Duration = Duration::from_secs(60);
/// Retries after the first attempt.
const RETRIES: usize = 2;
/// Time within which a download that was cut is resumed at the same position, even for a slow client. Other requests
/// end earlier by their timeout.
const RESUME_WITHIN: Duration = Duration::from_secs(60 * 60);
/// Options that set the library's own timeout of a request with its body. If given, it replaces ours.
const TIMEOUTS: [&str; 4] = ["timeout", "aws_timeout", "azure_timeout", "google_timeout"];
/// Buffered pieces of an object for a slow reader.
const AHEAD: usize = 4;

/// A bucket.
#[derive(Clone)]
pub struct ObjectStore {
    client: Arc<dyn Client>,
    place: String,
    prefix: String,
    /// Timeout of an answer, and of the next piece of an object.
    timeout: Duration,
}

impl ObjectStore {
    /// Prepares access to a bucket; no request is sent yet.
    ///
    /// # Errors
    /// An option is unknown or contradicts another one.
    ///
    /// # Panics
    /// `location` is a directory.
    pub fn new(location: &Location, options: &ObjectOptions) -> Result<Self, StoreError> {
        let Location::Bucket {
            service,
            bucket,
            prefix,
        } = location
        else {
            panic!("a directory is no bucket");
        };
        let client: Arc<dyn Client> = match service {
            Service::S3 => Arc::new(s3(bucket, options).map_err(remote)?),
            Service::Google => Arc::new(google(bucket, options).map_err(remote)?),
            Service::Azure => Arc::new(azure(bucket, options).map_err(remote)?),
        };
        Ok(Self {
            client,
            place: location.to_string(),
            prefix: prefix.clone(),
            timeout: timeout(options),
        })
    }

    fn path(&self, key: &Key) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(key.path()),
            prefix => Path::from(format!("{prefix}/{}", key.path())),
        }
    }

    async fn list_pages(&self, after: Option<&Key>, most: usize) -> Result<Vec<Key>, StoreError> {
        let prefix = (!self.prefix.is_empty()).then(|| Path::from(self.prefix.as_str()));
        let mut stream = match after {
            Some(after) => self.client.list_with_offset(prefix.as_ref(), &self.path(after)),
            None => self.client.list(prefix.as_ref()),
        };
        let mut keys = Vec::new();
        while keys.len() < most {
            let next = within(self.timeout, stream.try_next()).await?;
            let Some(meta) = next.map_err(remote)? else {
                break;
            };
            // The bucket may have other objects.
            let name = meta.location.filename().unwrap_or_default();
            keys.extend(name.parse::<Key>().ok().filter(|key| self.path(key) == meta.location));
        }
        Ok(keys)
    }
}

fn s3(bucket: &str, options: &ObjectOptions) -> Result<impl Client, Error> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_client_options(client_options(options))
        .with_retry(retries());
    let own = [
        (AmazonS3ConfigKey::Endpoint, &options.endpoint),
        (AmazonS3ConfigKey::Region, &options.region),
        (AmazonS3ConfigKey::AccessKeyId, &options.key),
        (AmazonS3ConfigKey::SecretAccessKey, &options.secret),
    ];
    for (key, value) in own {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    for (name, value) in &options.others {
        builder = builder.with_config(AmazonS3ConfigKey::from_str(name)?, value);
    }
    builder.build()
}

fn google(bucket: &str, options: &ObjectOptions) -> Result<impl Client, Error> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client_options(options))
        .with_retry(retries());
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint);
    }
    for (name, value) in &options.others {
        builder = builder.with_config(GoogleConfigKey::from_str(name)?, value);
    }
    builder.build()
}

fn azure(container: &str, options: &ObjectOptions) -> Result<impl Client, Error> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_client_options(client_options(options))
        .with_retry(retries());
    let own = [
        (AzureConfigKey::Endpoint, &options.endpoint),
        (AzureConfigKey::AccountName, &options.key),
        (AzureConfigKey::AccessKey, &options.secret),
    ];
    for (key, value) in own {
        if let Some(value) = value {
            builder = builder.with_config(key, value);
        }
    }
    for (name, value) in &options.others {
        builder = builder.with_config(AzureConfigKey::from_str(name)?, value);
    }
    builder.build()
}

fn client_options(options: &ObjectOptions) -> ClientOptions {
    let plain = options
        .endpoint
        .as_ref()
        .is_some_and(|endpoint| endpoint.starts_with("http://"));
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout_disabled()
        .with_allow_http(plain)
}

fn timeout(options: &ObjectOptions) -> Duration {
    let mut names = options.others.iter().map(|(name, _)| name.as_str());
    if names.any(|name| TIMEOUTS.contains(&name)) {
        return Duration::MAX;
    }
    ANSWER
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: RETRIES,
        retry_timeout: RESUME_WITHIN,
    }
}

fn remote(error: Error) -> StoreError {
    StoreError::Remote(Box::new(error))
}

/// A missing object is an answer, not an error.
fn absent_as_none<T>(result: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(remote(error)),
    }
}

/// The content of an object while it is received. A slow reader does not count against the timeout.
fn content(found: GetResult, timeout: Duration) -> ObjectContent {
    let length = found.range.end - found.range.start;
    let (pieces, received) = mpsc::channel(AHEAD);
    let mut stream = found.into_stream();
    tokio::spawn(async move {
        let mut sent = 0;
        loop {
            let next = within(timeout, stream.try_next()).await;
            let piece = match next.and_then(|next| next.map_err(remote)) {
                Ok(Some(piece)) => {
                    sent += piece.len() as u64;
                    Ok(piece)
                }
                Ok(None) if sent == length => return,
                Ok(None) => Err(StoreError::Short { length, received: sent }),
                Err(error) => Err(error),
            };
            // Ends with the reader, or after an error.
            let is_end = piece.is_err();
            if pieces.send(piece).await.is_err() || is_end {
                return;
            }
        }
    });
    ObjectContent::Stream {
        length,
        pieces: received,
    }
}

impl Store for ObjectStore {
    fn put<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<Put, StoreError>> {
        Box::pin(async move {
            let path = self.path(key);
            let put = self.client.put_opts(&path, content.into(), PutMode::Create.into());
            match within(self.timeout, put).await? {
                Ok(_) => Ok(Put::Created),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Exists),
                Err(error) => Err(remote(error)),
            }
        })
    }

    fn replace<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let path = self.path(key);
            let put = within(self.timeout, self.client.put(&path, content.into())).await?;
            put.map(drop).map_err(remote)
        })
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<ObjectContent>, StoreError>> {
        Box::pin(async move {
            let path = self.path(key);
            let found = within(self.timeout, self.client.get(&path)).await?;
            Ok(absent_as_none(found)?.map(|found| content(found, self.timeout)))
        })
    }

    fn get_part<'a>(
        &'a self,
        key: &'a Key,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Option<ObjectPart>, StoreError>> {
        Box::pin(async move {
            let options = GetOptions {
                range: Some(range.into()),
                ..GetOptions::default()
            };
            let path = self.path(key);
            let found = within(self.timeout, self.client.get_opts(&path, options)).await?;
            Ok(absent_as_none(found)?.map(|found| ObjectPart::Stream {
                total: found.meta.size,
                content: content(found, self.timeout),
            }))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<u64>, StoreError>> {
        Box::pin(async move {
            let path = self.path(key);
            let found = within(self.timeout, self.client.head(&path)).await?;
            Ok(absent_as_none(found)?.map(|meta| meta.size))
        })
    }

    /// The services do not report whether the object existed, so its head is requested first.
    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            if self.head(key).await?.is_none() {
                return Ok(false);
            }
            let path = self.path(key);
            let deleted = within(self.timeout, self.client.delete(&path)).await?;
            Ok(absent_as_none(deleted)?.is_some())
        })
    }

    fn list<'a>(&'a self, after: Option<&'a Key>, most: usize) -> BoxFuture<'a, Result<Vec<Key>, StoreError>> {
        Box::pin(async move { within(LIST, self.list_pages(after, most)).await? })
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Debug for ObjectStore {
    /// Without the client, which has secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use object_store::ClientConfigKey;

    use super::*;

    /// For a service of this machine, which may be busy.
    const SHORT: Duration = Duration::from_secs(2);

    fn key() -> Key {
        "abcdef".parse().expect("a key")
    }

    /// A bucket of a service that does `answer` with each connection, one after the other; it is told what was asked.
    fn bucket(answer: impl Fn(&str, TcpStream) + Send + 'static) -> ObjectStore {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut asked = [0; 8192];
                let read = stream.read(&mut asked).unwrap_or(0);
                let asked = String::from_utf8_lossy(&asked[..read]).to_ascii_lowercase();
                answer(&asked, stream);
            }
        });
        let location: Location = "s3://bucket".parse().expect("a bucket");
        let options = ObjectOptions {
            endpoint: Some(format!("http://{address}")),
            region: Some("us-east-1".into()),
            key: Some("name".into()),
            secret: Some("secret".into()),
            others: Vec::new(),
        };
        let mut store = ObjectStore::new(&location, &options).expect("options that fit");
        store.timeout = SHORT;
        store
    }

    /// The head of an answer with an object, or with a part of one.
    fn head(status: &str, length: usize, more: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: \"x\"\r\n\
             Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n{more}\r\n"
        )
    }

    /// The service says nothing for longer than it may.
    fn is_late<T>(outcome: &Result<T, StoreError>) -> bool {
        let Err(StoreError::Remote(cause)) = outcome else {
            return false;
        };
        cause.to_string().contains("longer than 2s")
    }

    #[tokio::test]
    async fn a_slow_reader_gets_all_of_an_object() {
        // More than the buffers on the way hold.
        const LENGTH: usize = 32 << 20;
        let store = bucket(|_, mut stream| {
            let body = vec![7_u8; LENGTH];
            let _ = stream
                .write_all(head("200 OK", LENGTH, "").as_bytes())
                .and_then(|()| stream.write_all(&body));
        });
        let found = store.get(&key()).await.expect("an answer").expect("it is there");
        let ObjectContent::Stream { length, mut pieces } = found else {
            panic!("it comes over the network");
        };
        let mut read = 0;
        while let Some(piece) = pieces.recv().await {
            if read == 0 {
                tokio::time::sleep(2 * SHORT).await;
            }
            read += piece.expect("no failure").len() as u64;
        }
        assert_eq!((read, length), (LENGTH as u64, LENGTH as u64));
    }

    #[tokio::test]
    async fn an_object_that_stalls_is_not_waited_for() {
        let store = bucket(|_, mut stream| {
            let _ = stream
                .write_all(head("200 OK", 1000, "").as_bytes())
                .and_then(|()| stream.write_all(&[7; 500]));
            std::mem::forget(stream);
        });
        let found = store.get(&key()).await.expect("an answer").expect("it is there");
        let outcome = found.into_bytes().await;
        assert!(is_late(&outcome), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_service_that_says_nothing_is_not_waited_for() {
        let store = bucket(|_, stream| std::mem::forget(stream));
        let key = key();
        let (put, get, part, head, delete, list) = tokio::join!(
            store.put(&key, Bytes::from_static(b"x")),
            store.get(&key),
            store.get_part(&key, 0..1),
            store.head(&key),
            store.delete(&key),
            store.list(None, 1)
        );
        assert!(is_late(&put), "{put:?}");
        assert!(is_late(&get), "{get:?}");
        assert!(is_late(&part), "{part:?}");
        assert!(is_late(&head), "{head:?}");
        assert!(is_late(&delete), "{delete:?}");
        assert!(is_late(&list), "{list:?}");
    }

    #[tokio::test]
    async fn an_object_that_breaks_off_is_taken_up_where_it_did() {
        let store = bucket(|asked, mut stream| {
            let (head, byte) = if asked.contains("range: bytes=500-999") {
                let range = "Content-Range: bytes 500-999/1000\r\n";
                (head("206 Partial Content", 500, range), 8)
            } else {
                (head("200 OK", 1000, ""), 7)
            };
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(&[byte; 500]));
        });
        let found = store.get(&key()).await.expect("an answer").expect("it is there");
        let bytes = found.into_bytes().await.expect("both halves");
        assert_eq!((bytes.len(), bytes[499], bytes[500]), (1000, 7, 8));
    }

    #[test]
    fn the_library_has_no_clock_of_its_own_unless_it_is_asked_for() {
        let mut options = ObjectOptions::default();
        let clocks = [ClientConfigKey::Timeout, ClientConfigKey::ReadTimeout];
        let set = clocks.map(|clock| client_options(&options).get_config_value(&clock));
        assert_eq!((set, timeout(&options)), ([None, None], ANSWER));
        options.region = Some("us-east-1".into());
        options.others.push(("aws_timeout".into(), "60 seconds".into()));
        assert_eq!(timeout(&options), Duration::MAX);
        // It is a name that the library knows.
        let location: Location = "s3://bucket".parse().expect("a bucket");
        ObjectStore::new(&location, &options).expect("options that fit");
    }

    #[test]
    fn every_service_is_reached_with_its_own_names() {
        let options = |others: &[(&str, &str)]| ObjectOptions {
            endpoint: Some("http://127.0.0.1:9".into()),
            region: Some("eu-central-1".into()),
            key: Some("name".into()),
            secret: Some("c2VjcmV0".into()),
            others: others
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        for (url, name, value) in [
            ("s3://bucket/x", "aws_virtual_hosted_style_request", "true"),
            ("gs://bucket", "google_skip_signature", "true"),
            ("az://box", "azure_storage_use_emulator", "false"),
        ] {
            let location: Location = url.parse().expect("a bucket");
            let store = ObjectStore::new(&location, &options(&[(name, value)])).expect(url);
            assert_eq!(store.place(), url);
            assert!(
                ObjectStore::new(&location, &options(&[("no_such_option", "1")])).is_err(),
                "{url}"
            );
            assert!(!format!("{store:?}").contains("c2VjcmV0"), "no secret is shown");
        }
    }
}
