//! An object store: S3, Google Cloud Storage, Azure, and what speaks like them. The protocols are the library's.
//!
//! An object is written in one request that fails if the key is taken, so several machines may share one bucket.

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
use crate::store::{Content, Key, Later, Part, Put, Store, StoreError};

/// Until a connection stands.
const CONNECT: Duration = Duration::from_millis(500);
/// One request, its body included.
const REQUEST: Duration = Duration::from_secs(10);
/// After the first try.
const RETRIES: usize = 2;
/// Pieces of an object on their way to a reader that is slower than the store.
const AHEAD: usize = 4;

/// A bucket.
#[derive(Clone)]
pub struct ObjectStore {
    client: Arc<dyn Client>,
    place: String,
    prefix: String,
}

impl ObjectStore {
    /// Makes ready to talk to a bucket; nothing is sent yet.
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
        })
    }

    fn path(&self, key: &Key) -> Path {
        match self.prefix.as_str() {
            "" => Path::from(key.path()),
            prefix => Path::from(format!("{prefix}/{}", key.path())),
        }
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
        .with_timeout(REQUEST)
        .with_allow_http(plain)
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: RETRIES,
        retry_timeout: REQUEST,
    }
}

fn remote(error: Error) -> StoreError {
    StoreError::Remote(Box::new(error))
}

/// What is not there is an answer.
fn absent_as_none<T>(result: Result<T, Error>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(remote(error)),
    }
}

/// What was found, as it comes.
fn content(found: GetResult) -> Content {
    let length = found.range.end - found.range.start;
    let (pieces, received) = mpsc::channel(AHEAD);
    let mut stream = found.into_stream();
    tokio::spawn(async move {
        let mut sent = 0;
        loop {
            let piece = match stream.try_next().await {
                Ok(Some(piece)) => {
                    sent += piece.len() as u64;
                    Ok(piece)
                }
                Ok(None) if sent == length => return,
                Ok(None) => Err(StoreError::Short { length, received: sent }),
                Err(error) => Err(remote(error)),
            };
            // Nobody reads any more, or nothing more comes.
            let is_end = piece.is_err();
            if pieces.send(piece).await.is_err() || is_end {
                return;
            }
        }
    });
    Content::Stream {
        length,
        pieces: received,
    }
}

impl Store for ObjectStore {
    fn put<'a>(&'a self, key: &'a Key, content: Bytes) -> Later<'a, Result<Put, StoreError>> {
        Box::pin(async move {
            match self
                .client
                .put_opts(&self.path(key), content.into(), PutMode::Create.into())
                .await
            {
                Ok(_) => Ok(Put::Created),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Exists),
                Err(error) => Err(remote(error)),
            }
        })
    }

    fn get<'a>(&'a self, key: &'a Key) -> Later<'a, Result<Option<Content>, StoreError>> {
        Box::pin(async move {
            let Some(found) = absent_as_none(self.client.get(&self.path(key)).await)? else {
                return Ok(None);
            };
            Ok(Some(content(found)))
        })
    }

    fn get_part<'a>(&'a self, key: &'a Key, range: Range<u64>) -> Later<'a, Result<Option<Part>, StoreError>> {
        Box::pin(async move {
            let options = GetOptions {
                range: Some(range.into()),
                ..GetOptions::default()
            };
            let found = absent_as_none(self.client.get_opts(&self.path(key), options).await)?;
            Ok(found.map(|found| Part::Stream {
                total: found.meta.size,
                content: content(found),
            }))
        })
    }

    fn head<'a>(&'a self, key: &'a Key) -> Later<'a, Result<Option<u64>, StoreError>> {
        Box::pin(async move {
            let found = absent_as_none(self.client.head(&self.path(key)).await)?;
            Ok(found.map(|meta| meta.size))
        })
    }

    /// A service does not say whether there was an object, so it is asked first.
    fn delete<'a>(&'a self, key: &'a Key) -> Later<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            if self.head(key).await?.is_none() {
                return Ok(false);
            }
            Ok(absent_as_none(self.client.delete(&self.path(key)).await)?.is_some())
        })
    }

    fn list<'a>(&'a self, after: Option<&'a Key>, most: usize) -> Later<'a, Result<Vec<Key>, StoreError>> {
        Box::pin(async move {
            let prefix = (!self.prefix.is_empty()).then(|| Path::from(self.prefix.as_str()));
            let mut stream = match after {
                Some(after) => self.client.list_with_offset(prefix.as_ref(), &self.path(after)),
                None => self.client.list(prefix.as_ref()),
            };
            let mut keys = Vec::new();
            while keys.len() < most {
                let Some(meta) = stream.try_next().await.map_err(remote)? else {
                    break;
                };
                // Other things may lie in the bucket.
                let name = meta.location.filename().unwrap_or_default();
                keys.extend(name.parse::<Key>().ok().filter(|key| self.path(key) == meta.location));
            }
            Ok(keys)
        })
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Debug for ObjectStore {
    /// Without the client: it knows secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
