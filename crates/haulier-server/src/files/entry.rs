//! An open file with the parts of its responses that are the same for every request.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use haulier_http::{OpenFile, PreparedHead};
use haulier_proto::accept::Coding;
use haulier_proto::conditional::Validators;
use haulier_proto::date;
use haulier_proto::field::Fields;

use super::coded::Codings;
use super::mime;
use super::open::{Regular, Version};
use super::site_files::SiteFiles;
use super::tag::{self, Tag};
use crate::compress::{self, dictionary::previous};

/// Content of files up to this many bytes is kept in memory: copying it costs no more than sendfile(2).
const SMALL: u64 = 16 * 1024;

/// A regular file, ready to send.
#[derive(Debug)]
pub(crate) struct FileEntry {
    pub(crate) file: Arc<OpenFile>,
    /// The field lines of a 200, without those of the protocol.
    pub(crate) head: Arc<PreparedHead>,
    /// The field lines of a 304.
    pub(crate) not_modified: Arc<PreparedHead>,
    /// Strong, with quotes.
    pub(crate) etag: Option<Vec<u8>>,
    /// The entity tag depends on the content, which has not been hashed yet.
    awaits_tag: bool,
    /// The state of the file when it was opened.
    pub(super) version: Version,
    /// Seconds since 1970; at most the moment the file was opened.
    pub(crate) last_modified: u64,
    pub(crate) content_type: Cow<'static, str>,
    /// Set for a variant.
    pub(super) coding: Option<Coding>,
    /// Variants of the same content; `None` if it is never coded.
    pub(super) codings: Option<Codings>,
}

impl FileEntry {
    /// Prepares a file. `path` is the requested path, `name` that of the file: they differ for an index.
    pub(super) fn new(site: &SiteFiles, path: &[u8], name: &[u8], regular: Regular) -> Self {
        let version = regular.version;
        let file = Arc::new(open_file(regular));
        let tag = Tag::of(site.settings.etag, &version, &file);
        let awaits_tag = tag == Tag::Awaited;
        let etag = tag.known();
        let last_modified = last_modified(&version, SystemTime::now());
        let content_type = mime::of(name, site.settings.charset.as_deref());
        let mut fields = Fields::new();
        fields.append("Content-Type", &*content_type);
        fields.append("Last-Modified", date::format(last_modified));
        if let Some(etag) = &etag {
            fields.append("ETag", etag);
        }
        fields.append("Accept-Ranges", "bytes");
        if let Some(cache_control) = cache_control(site, path, name) {
            fields.append("Cache-Control", cache_control);
        }
        for (name, value) in &site.headers {
            fields.set(name, value);
        }
        let codings = compress::has_codings(&site.coding, &fields, version.size).then(|| {
            let is_dictionary = previous::announce(&site.coding, path, name, version.size, &mut fields);
            Codings::new(name, version, is_dictionary)
        });
        if codings.is_some() {
            compress::add_vary(&mut fields);
        }
        let not_modified = without_metadata(&fields);
        let head = PreparedHead::new(fields);
        Self {
            file,
            head: Arc::new(if codings.is_some() { head.negotiable() } else { head }),
            not_modified: Arc::new(PreparedHead::new(not_modified)),
            coding: None,
            codings,
            etag,
            awaits_tag,
            version,
            last_modified,
            content_type,
        }
    }

    /// A variant of the same content: `file` holds it, `tag` identifies it. Without a tag a range of it could not be
    /// requested safely.
    pub(super) fn coded(&self, coding: Coding, tag: Option<Vec<u8>>, file: Arc<OpenFile>) -> Self {
        let mut fields = self.head.fields().clone();
        match &tag {
            Some(tag) => fields.set("ETag", tag),
            None => {
                fields.remove("ETag");
                fields.remove("Accept-Ranges");
            }
        }
        let not_modified = without_metadata(&fields);
        fields.set("Content-Encoding", coding.as_str());
        Self {
            file,
            head: Arc::new(PreparedHead::new(fields)),
            not_modified: Arc::new(PreparedHead::new(not_modified)),
            etag: tag,
            awaits_tag: false,
            version: self.version,
            last_modified: self.last_modified,
            content_type: self.content_type.clone(),
            coding: Some(coding),
            codings: None,
        }
    }

    /// Validators for conditional requests.
    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.etag.as_deref(),
            last_modified: Some(self.last_modified),
        }
    }

    /// True if the tag that was missing is available now.
    pub(super) fn misses_tag(&self) -> bool {
        self.awaits_tag && tag::is_ready(&self.version, &self.file)
    }

    /// Identifies this state of the file on this machine.
    pub(crate) fn state(&self) -> String {
        format!("{:x}-{}", self.version.inode, tag::of_stat(&self.version))
    }

    /// Bytes of content kept in memory. It counts possible variants from the start, so that it never changes.
    pub(super) fn in_memory(&self) -> usize {
        let variants = self.codings.is_some().then(|| self.file.length().min(SMALL) as usize);
        self.file.content().map_or(0, Bytes::len) + variants.unwrap_or(0)
    }
}

/// RFC 9110 §8.8.2.1: a date in the future is replaced by the present.
pub(super) fn last_modified(version: &Version, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u64::try_from(version.modified.0).unwrap_or(0).min(now)
}

/// Time since the last modification; `None` if that lies in the future.
pub(super) fn age(version: &Version, now: SystemTime) -> Option<Duration> {
    let (seconds, nanoseconds) = version.modified;
    let Ok(seconds) = u64::try_from(seconds) else {
        return Some(Duration::MAX);
    };
    let modified = Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds);
    now.duration_since(UNIX_EPOCH).unwrap_or_default().checked_sub(modified)
}

/// Cache-Control by the first rule that matches the requested path or the file. In development, `no-cache` is the
/// default.
fn cache_control<'a>(site: &'a SiteFiles, path: &[u8], name: &[u8]) -> Option<&'a str> {
    let settings = &site.settings;
    let rule = settings
        .cache
        .iter()
        .find(|(glob, _)| glob.matches(path) || glob.matches(name));
    rule.map(|(_, value)| value.as_str())
        .or(site.is_in_development().then_some("no-cache"))
}

/// The field lines of a 304 (RFC 9110 §15.4.5): those a cache needs, without those that describe content.
pub(crate) fn without_metadata(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    fields
        .retain(|name, _| !name.eq_ignore_ascii_case(b"Content-Type") && !name.eq_ignore_ascii_case(b"Accept-Ranges"));
    fields
}

pub(super) fn open_file(regular: Regular) -> OpenFile {
    with_small_content(regular.file, regular.version.size)
}

/// An open file of this length, with its content if it is small.
pub(super) fn with_small_content(file: File, length: u64) -> OpenFile {
    let content = read_small(&file, length);
    let file = OpenFile::new(file, length);
    match content {
        Some(content) => file.with_content(content),
        None => file,
    }
}

/// The whole content of a small file; `None` if it is larger, has shrunk, or cannot be read.
fn read_small(file: &File, length: u64) -> Option<Bytes> {
    if length > SMALL {
        return None;
    }
    let mut content = vec![0; length as usize];
    file.read_exact_at(&mut content, 0).ok()?;
    Some(content.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_from_the_future_was_modified_now() {
        let version = Version::sample((4_000_000_000, 0));
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(last_modified(&version, now), 1_800_000_000);
        assert_eq!(age(&version, now), None);
        let old = Version::sample((-5, 0));
        assert_eq!(last_modified(&old, now), 0);
        assert_eq!(age(&old, now), Some(Duration::MAX));
    }
}
