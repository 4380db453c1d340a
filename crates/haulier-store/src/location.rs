//! The value of the setting `store`: a directory, or a bucket of an object store.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The location of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory of this machine, relative as in the configuration.
    Directory(PathBuf),
    /// A bucket or container of a service.
    Bucket {
        service: Service,
        bucket: String,
        /// Prefix of every key, without leading and trailing slashes; may be empty.
        prefix: String,
    },
}

/// The services of object stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// S3 and compatible services.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// Access to a bucket. Missing options come from the environment, as the services' own tools read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectOptions {
    /// Address of the service, `https://…`; `None` is the service's public one.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Access key id, or the account name.
    pub key: Option<String>,
    /// Secret access key, or the access key of the account.
    pub secret: Option<String>,
    /// Any other option by its name in the crate `object_store`, such as `google_service_account`.
    pub others: Vec<(String, String)>,
}

/// A malformed location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    /// An unknown scheme.
    #[error("`{0}://` is no known kind of store")]
    Scheme(String),
    /// The name of the bucket is missing or invalid.
    #[error("`{0}` is not the name of a bucket")]
    Bucket(String),
    /// The prefix has invalid parts.
    #[error("`{0}` is not a prefix")]
    Prefix(String),
    /// `file://` with a host or without a path.
    #[error("`file://` is followed by an absolute path: `file:///srv/images`")]
    File,
}

impl Service {
    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }
}

impl FromStr for Location {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Directory(PathBuf::from(text)));
        };
        let service = match scheme {
            "file" if rest.starts_with('/') => return Ok(Self::Directory(PathBuf::from(rest))),
            "file" => return Err(BadLocation::File),
            "s3" => Service::S3,
            "gs" => Service::Google,
            "az" => Service::Azure,
            other => return Err(BadLocation::Scheme(other.to_owned())),
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(fits) {
            return Err(BadLocation::Bucket(bucket.to_owned()));
        }
        let prefix = prefix.trim_matches('/');
        let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(fits);
        if !prefix.is_empty() && !prefix.split('/').all(is_name) {
            return Err(BadLocation::Prefix(prefix.to_owned()));
        }
        Ok(Self::Bucket {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl Location {
    /// The location with a relative directory resolved against `base`.
    #[must_use]
    pub fn within(self, base: &Path) -> Self {
        match self {
            Self::Directory(path) => Self::Directory(base.join(path)),
            bucket @ Self::Bucket { .. } => bucket,
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Bucket {
                service,
                bucket,
                prefix,
            } if prefix.is_empty() => write!(f, "{}://{bucket}", service.scheme()),
            Self::Bucket {
                service,
                bucket,
                prefix,
            } => write!(f, "{}://{bucket}/{prefix}", service.scheme()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_buckets_are_told_apart() {
        let directory = |text: &str| Ok(Location::Directory(text.into()));
        assert_eq!("/srv/images".parse(), directory("/srv/images"));
        assert_eq!("images".parse(), directory("images"));
        assert_eq!("file:///srv/images".parse(), directory("/srv/images"));
        for text in ["s3://acme-images/originals", "gs://bucket", "az://box/a/b"] {
            let location: Location = text.parse().expect(text);
            assert!(
                matches!(location, Location::Bucket { .. }) && location.to_string() == text,
                "{text}"
            );
        }
        let slashes: Location = "s3://b//x/".parse().expect("a bucket");
        assert_eq!(slashes.to_string(), "s3://b/x");
    }

    #[test]
    fn what_names_no_place_is_refused() {
        let rows: [(&str, BadLocation); 6] = [
            ("ftp://host/x", BadLocation::Scheme("ftp".into())),
            ("s3://", BadLocation::Bucket(String::new())),
            ("s3://a b/x", BadLocation::Bucket("a b".into())),
            ("s3://b/../x", BadLocation::Prefix("../x".into())),
            ("s3://b/x?y", BadLocation::Prefix("x?y".into())),
            ("file://srv/images", BadLocation::File),
        ];
        for (text, error) in rows {
            assert_eq!(text.parse::<Location>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_relative_directory_starts_where_it_is_written() {
        let location: Location = "images".parse().expect("a directory");
        assert_eq!(
            location.within(Path::new("/etc/haulier")),
            Location::Directory("/etc/haulier/images".into())
        );
        let bucket: Location = "s3://b/x".parse().expect("a bucket");
        assert_eq!(bucket.clone().within(Path::new("/etc")), bucket);
    }
}
