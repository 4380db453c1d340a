//! A file in the coding its client prefers: a sidecar from the document root, else a compressed copy from the store.
//!
//! Until a copy exists, the file itself is coded while it is sent (`compress`). Each variant has its own strong entity
//! tag, which begins with that of the file: a client that revalidates with any of them gets a 304.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_http::{Handler, Response};
use haulier_proto::accept::{Accepted, Coding};
use haulier_proto::dictionary::Hash;
use haulier_proto::etag;
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};

use super::entry::{self, FileEntry};
use super::open::{self, Opened, Version};
use super::respond as answer;
use super::site_files::SiteFiles;
use super::tag::{self, Tag};
use crate::compress::store::CompressedCopy;
use crate::compress::{codec, dictionary};

/// Time the set of variants is trusted.
const FRESH: Duration = Duration::from_secs(1);
/// Requests for a file before a copy is made: many files are requested only once.
const WORTH_MAKING: u32 = 2;
/// Earlier versions for which differences are kept.
const MOST_DIFFERENCES: usize = 4;
/// Largest window browsers accept (RFC 9659).
const MOST_WINDOW: u64 = 8 << 20;

/// The variants of one file known to this thread.
#[derive(Debug)]
pub(super) struct Codings {
    /// Path of the file below the root.
    name: Box<[u8]>,
    version: Version,
    variants: [RefCell<CodedVariant>; 3],
    asked: Cell<u32>,
    differences: Option<Differences>,
}

/// Variants for clients that hold an earlier version of the file, or another one announced for its path.
#[derive(Debug, Default)]
struct Differences {
    /// By hash of the client's version, the most recently requested last.
    known: RefCell<Vec<(Hash, CodedVariant)>>,
    /// This version is stored as the dictionary of later ones.
    is_kept: Cell<bool>,
}

/// The variant in one coding, as far as known.
#[derive(Debug, Default)]
struct CodedVariant {
    entry: Option<Rc<FileEntry>>,
    /// State of the sidecar that `entry` was made of.
    sidecar: Option<Version>,
    /// Coding gains nothing, so the search is over.
    is_useless: bool,
    /// The next moment to look for it.
    check_at: Option<Instant>,
}

impl CodedVariant {
    fn is_tagged(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.etag.is_some())
    }
}

impl Codings {
    /// `is_dictionary`: clients are told to keep the file as the dictionary of its later versions.
    pub(super) fn new(name: &[u8], version: Version, is_dictionary: bool) -> Self {
        Self {
            name: name.into(),
            version,
            variants: Default::default(),
            asked: Cell::new(0),
            differences: is_dictionary.then(Differences::default),
        }
    }

    /// Stores the version that clients are told to keep. A client names `dcz` only once it holds a dictionary, so any
    /// client that accepts codings counts.
    fn keep(&self, site: &SiteFiles, entry: &FileEntry) {
        if let (Some(differences), Some(store)) = (&self.differences, &site.coding.copies)
            && !differences.is_kept.replace(true)
        {
            store.keep(&self.version.key(), &entry.file);
        }
    }

    /// The difference from the client's version, if stored. Orders it otherwise.
    fn difference(
        &self,
        site: &SiteFiles,
        head: &RequestHead,
        entry: &FileEntry,
        now: Instant,
    ) -> Option<Rc<FileEntry>> {
        let (differences, store) = (self.differences.as_ref()?, site.coding.copies.as_ref()?);
        let key = self.version.key();
        let hash = dictionary::held(head.fields())?;
        let mut known = differences.known.borrow_mut();
        let mut variant = match known.iter().position(|(of, _)| *of == hash) {
            Some(at) => known.remove(at).1,
            None => CodedVariant::default(),
        };
        if variant.check_at.is_none_or(|check_at| now >= check_at) && variant.entry.is_none() {
            variant.check_at = Some(now + FRESH);
            match store.find_difference(&key, &hash) {
                CompressedCopy::Ready(file, length) => {
                    let mark = format!("{:02x}{:02x}.{length:x}", hash[0], hash[1]);
                    variant.entry = Some(self.copy(entry, Coding::DictionaryZstd, &mark, file, length));
                }
                CompressedCopy::Absent => store.make_difference(&key, &hash, &entry.file),
                CompressedCopy::Useless => {}
            }
        }
        let found = variant.entry.clone();
        if known.len() >= MOST_DIFFERENCES {
            known.remove(0);
        }
        known.push((hash, variant));
        found
    }

    /// The variant in one of the client's preferred codings, if it exists. A missing one is ordered. Until it is made,
    /// the file is coded while it is sent, rather than sent in a less preferred coding.
    fn best(&self, site: &SiteFiles, accepted: &Accepted, entry: &FileEntry, now: Instant) -> Option<Rc<FileEntry>> {
        self.asked.set(self.asked.get().saturating_add(1));
        let allowed = &site.coding.settings.algorithms;
        let codings = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
        let weight = |coding: Coding| {
            let is_allowed = allowed.contains(&coding);
            if is_allowed { accepted.weight(coding) } else { 0 }
        };
        let most = codings.into_iter().map(weight).max().filter(|&most| most > 0)?;
        let liked_best = codings.into_iter().filter(|&coding| weight(coding) == most);
        for (number, coding) in liked_best.enumerate() {
            if let Some(found) = self.variant(site, coding, entry, now, number == 0) {
                return Some(found);
            }
        }
        None
    }

    fn variant(
        &self,
        site: &SiteFiles,
        coding: Coding,
        entry: &FileEntry,
        now: Instant,
        wanted: bool,
    ) -> Option<Rc<FileEntry>> {
        let mut known = self.variants[coding.index()].borrow_mut();
        if known.check_at.is_none_or(|check_at| now >= check_at) {
            known.check_at = Some(now + FRESH);
            self.look(site, coding, entry, &mut known);
        }
        let is_missing = wanted && known.entry.is_none() && !known.is_useless;
        if is_missing
            && self.asked.get() >= WORTH_MAKING
            && let Some(store) = &site.coding.copies
        {
            store.make(&self.version.key(), coding, &entry.file);
        }
        known.entry.clone()
    }

    /// Looks for a sidecar first: an administrator's choice takes precedence.
    fn look(&self, site: &SiteFiles, coding: Coding, entry: &FileEntry, known: &mut CodedVariant) {
        let name = [&self.name, extension(coding)].concat();
        let is_final = known.is_tagged() || entry.etag.is_none();
        if is_final && known.sidecar.is_some() && Version::now(site.document_root(), &name) == known.sidecar {
            return;
        }
        let from_store = known.entry.is_some() && known.sidecar.is_none();
        if let Some((sidecar, version)) = self.sidecar(site, coding, &name, entry) {
            known.entry = Some(Rc::new(sidecar));
            known.sidecar = Some(version);
            known.is_useless = false;
        } else if !from_store {
            known.sidecar = None;
            (known.entry, known.is_useless) = self.stored(site, coding, entry);
        }
    }

    fn sidecar(
        &self,
        site: &SiteFiles,
        coding: Coding,
        name: &[u8],
        entry: &FileEntry,
    ) -> Option<(FileEntry, Version)> {
        // Most files have none, and stat(2) is cheaper than open(2).
        Version::now(site.document_root(), name)?;
        let Ok(Opened::File(regular)) = open::open(site.document_root(), name) else {
            return None;
        };
        let version = regular.version;
        let mut first = [0; 18];
        let read = regular.file.read_at(&mut first, 0).ok()?;
        if let Err(why) = self.check_sidecar(coding, &version, &first[..read]) {
            let name = String::from_utf8_lossy(name);
            tracing::warn!(site = site.name(), %name, why, "sidecar_ignored");
            return None;
        }
        let file = Arc::new(entry::open_file(regular));
        // Servers with the same file have the same sidecar, so they share this tag.
        let own = Tag::of(site.settings.etag, &version, &file).known();
        let tag = own.and_then(|own| self.tag(entry, coding, &String::from_utf8_lossy(tag::opaque(&own))));
        Some((entry.coded(coding, tag, file), version))
    }

    /// Checks that a sidecar has the coding of its name and belongs to this version.
    fn check_sidecar(&self, coding: Coding, version: &Version, first: &[u8]) -> Result<(), &'static str> {
        if version.size == 0 {
            return Err("it is empty");
        }
        // Tools that copy the time drop its fraction.
        if version.modified.0 < self.version.modified.0 {
            return Err("it is older than its file");
        }
        match coding {
            Coding::Gzip if first.starts_with(&[0x1f, 0x8b, 8]) => Ok(()),
            Coding::Brotli if codec::is_brotli(first) => Ok(()),
            Coding::Zstd | Coding::DictionaryZstd => match codec::zstd_window(first) {
                Some(window) if window <= MOST_WINDOW => Ok(()),
                Some(_) => Err("its window is over 8 MiB: browsers refuse it (RFC 9659)"),
                None => Err("it is not a zstd frame"),
            },
            Coding::Gzip => Err("it is not a gzip file"),
            Coding::Brotli => Err("it is not a brotli stream with a standard window"),
        }
    }

    /// The compressed copy, and whether coding is useless.
    fn stored(&self, site: &SiteFiles, coding: Coding, entry: &FileEntry) -> (Option<Rc<FileEntry>>, bool) {
        let Some(store) = &site.coding.copies else {
            return (None, true);
        };
        match store.find(&self.version.key(), coding) {
            CompressedCopy::Absent => (None, false),
            CompressedCopy::Useless => (None, true),
            CompressedCopy::Ready(file, length) => {
                let mark = format!("{length:x}");
                (Some(self.copy(entry, coding, &mark, file, length)), false)
            }
        }
    }

    /// A compressed copy from the store.
    fn copy(&self, entry: &FileEntry, coding: Coding, mark: &str, file: File, length: u64) -> Rc<FileEntry> {
        let tag = self.tag(entry, coding, mark);
        let file = Arc::new(entry::with_small_content(file, length));
        Rc::new(entry.coded(coding, tag, file))
    }

    /// `"…-br.5a3"`: the tag of the file, the coding, and a mark that differs between variants in that coding. `None`
    /// if the file has no tag.
    fn tag(&self, entry: &FileEntry, coding: Coding, mark: &str) -> Option<Vec<u8>> {
        let own = tag::opaque(entry.etag.as_ref()?);
        let coded = format!("-{}.{mark}\"", coding.as_str());
        Some([b"\"", own, coded.as_bytes()].concat())
    }
}

fn extension(coding: Coding) -> &'static [u8] {
    match coding {
        Coding::Zstd | Coding::DictionaryZstd => b".zst",
        Coding::Brotli => b".br",
        Coding::Gzip => b".gz",
    }
}

/// Answers a request for this file with the client's preferred variant.
pub(crate) fn respond(site: &SiteFiles, head: &RequestHead, entry: &Rc<FileEntry>, now: Instant) -> Response {
    let Some(codings) = &entry.codings else {
        return answer::respond(head, entry);
    };
    if !matches!(head.method(), Method::Get | Method::Head) {
        return answer::respond(head, entry);
    }
    let fields = head.fields();
    if let Some(response) = unchanged_under_any_tag(fields, entry) {
        return response;
    }
    if fields.known(Known::AcceptEncoding).is_none() {
        return answer::respond(head, entry);
    }
    codings.keep(site, entry);
    let accepted = Accepted::of(fields);
    let difference = prefers_dictionary(&accepted).then(|| codings.difference(site, head, entry, now));
    let variant = difference
        .flatten()
        .or_else(|| codings.best(site, &accepted, entry, now));
    match variant {
        Some(variant) if wants_variant(fields, &variant) => {
            let mut response = answer::respond(head, &variant);
            response.trace.file_coding = variant.coding.filter(|_| matches!(response.status, 200 | 206));
            response
        }
        _ => answer::respond(head, entry),
    }
}

/// True if the client ranks `dcz` first; it names `dcz` only if it holds a dictionary.
fn prefers_dictionary(accepted: &Accepted) -> bool {
    let weight = accepted.weight(Coding::DictionaryZstd);
    weight > 0 && Coding::PLAIN.iter().all(|&coding| accepted.weight(coding) <= weight)
}

/// A range refers to the variant that the client holds a part of. Without such a tag it refers to the file itself:
/// parts fetched before and after a variant was made must fit together.
fn wants_variant(fields: &Fields, variant: &FileEntry) -> bool {
    let is_meant = || variant.etag.is_some() && fields.known(Known::IfRange) == variant.etag.as_deref();
    fields.known(Known::Range).is_none() || is_meant()
}

/// A 304 if the client has any variant: RFC 9110 §13.1.2 compares weakly. The response repeats the client's tag, so
/// that the client knows which stored response it confirms.
fn unchanged_under_any_tag(fields: &Fields, entry: &FileEntry) -> Option<Response> {
    fields.known(Known::IfNoneMatch)?;
    if fields.known(Known::IfMatch).is_some() || fields.known(Known::IfUnmodifiedSince).is_some() {
        return None;
    }
    let own = tag::opaque(entry.etag.as_ref()?);
    let tag = fields
        .get_all("If-None-Match")
        .flat_map(etag::list)
        .find(|tag| matches!(tag.opaque.strip_prefix(own), Some([] | [b'-', ..])))?;
    let weak: &[u8] = if tag.weak { b"W/\"" } else { b"\"" };
    let mut response = Response::new(304, Handler::Static);
    let mut fields = entry.not_modified.fields().clone();
    fields.set("ETag", [weak, tag.opaque, b"\""].concat());
    response.head = fields.into();
    Some(response)
}
