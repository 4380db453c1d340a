//! A whole file: found, fetched, verified, named.
//!
//! [`Download::run`] tells the story. An attempt begins with one response; workers fetch the rest. Every attempt
//! continues the `.part` file of the last one, so that no byte is fetched twice.

pub mod error;
pub mod event;
pub mod growth;
pub mod name;
pub mod pace;
pub mod plan;
pub mod ranges;
pub mod resume;
pub mod spans;
pub mod stream;
pub mod throughput;
pub mod validators;
pub mod verify;

mod coded;
mod job;
mod segment;
mod sums;
mod workers;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use haulier_proto::field::Fields;

use error::{DownloadError, Remedy};
use event::{DownloadEvent, Finished, Observer};
use job::DownloadJob;
use pace::Pace;
use plan::{DownloadPlan, Requested, decide, offers_ranges};
use ranges::Ranges;
use resume::{PartFile, PartLocation, is_same, stored_tag};
use validators::Validators;
use verify::{Algorithm, Checksum, Follower, in_list, stated};

use crate::client::{Client, Located};
use crate::decode;
use crate::error::ClientError;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::retry::{self, RetryPolicy};
use crate::url::Url;

/// Times a file may begin anew before it counts as one that never stays the same.
const MOST_RESTARTS: u32 = 3;

/// The destination of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// This file; it is replaced when the new one is complete.
    Named(PathBuf),
    /// A name that the server chooses, in this directory; no file is replaced.
    Directory(PathBuf),
    /// Standard output, in order, by one connection.
    Stdout,
}

/// Options of a download.
#[derive(Debug, Clone)]
pub struct Options {
    pub destination: Destination,
    /// Connections for one file, at least 1.
    pub connections: usize,
    /// Continue the part that an earlier run left.
    pub resume: bool,
    pub retry: RetryPolicy,
    /// The checksums that the file must have.
    pub expected: Vec<Checksum>,
    /// The text of a checksum file, in which the file must be listed.
    pub list: Option<String>,
    /// Fail if there is no checksum to verify with.
    pub require_digest: bool,
    /// Request a content coding and decode it. Such a body cannot be continued.
    pub compressed: bool,
    /// Replace a file of that name if it differs from the server's.
    pub update: bool,
    /// Wait until the data are on the disk before the file gets its name.
    pub sync: bool,
    /// Further field lines.
    pub fields: Fields,
}

impl Options {
    fn accept_encoding(&self) -> &'static str {
        if self.compressed { decode::ACCEPTED } else { "identity" }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            destination: Destination::Directory(PathBuf::from(".")),
            connections: 4,
            resume: true,
            retry: RetryPolicy::default(),
            expected: Vec::new(),
            list: None,
            require_digest: false,
            compressed: false,
            update: false,
            sync: false,
            fields: Fields::new(),
        }
    }
}

/// One file to fetch. It runs inside a tokio `LocalSet`.
#[derive(Debug)]
pub struct Download {
    pub client: Rc<Client>,
    pub url: Url,
    pub options: Options,
    pub pace: Option<Rc<Pace>>,
    pub observer: Rc<dyn Observer>,
}

/// The state that passes from one attempt to the next.
#[derive(Debug, Default)]
struct Progress {
    part: Option<PartFile>,
    /// The server's ranges proved wrong: one connection, no ranges.
    no_ranges: bool,
    /// Bytes over the wire in all attempts.
    received: u64,
    /// Bytes in the file after the last attempt.
    kept: u64,
}

/// New bytes that count as progress and allow as many tries again.
const ENOUGH: u64 = 64 * 1024;

/// The bytes that count as progress in a file of this length: a sixteenth of a short one.
fn worthwhile(total: Option<u64>) -> u64 {
    total.map_or(ENOUGH, |total| (total / 16).min(ENOUGH)).max(1)
}

impl Download {
    /// Fetches the file, with retries if they may help.
    ///
    /// # Errors
    /// [`DownloadError`] of the last attempt. Bytes that can be continued stay next to the target as `.part`.
    pub async fn run(&self) -> Result<Finished, DownloadError> {
        if self.options.destination == Destination::Stdout {
            return stream::run(self).await;
        }
        let mut progress = Progress::default();
        let (mut tries, mut restarts, mut best) = (0, 0, 0);
        loop {
            let error = match self.attempt(&mut progress).await {
                Ok(finished) => return Ok(finished),
                Err(error) => error,
            };
            // Only bytes that no attempt had before count as progress, and only if there are enough: else a server that
            // always cuts at one place, or sends a hundred bytes a time, would be asked forever.
            if progress.kept >= best + worthwhile(progress.part.as_ref().and_then(PartFile::total)) {
                (best, tries) = (progress.kept, 0);
            }
            match error.remedy() {
                Remedy::StartAgain if restarts < MOST_RESTARTS => {
                    restarts += 1;
                    self.observer.event(&DownloadEvent::StartedAgain { reason: &error });
                    progress.no_ranges |= matches!(error, DownloadError::Ranges(_));
                    progress.part.take().into_iter().for_each(PartFile::discard);
                }
                Remedy::Wait(asked) => {
                    tries += 1;
                    self.wait(tries, asked, error).await?;
                }
                Remedy::StartAgain | Remedy::Nothing => return Err(error),
            }
        }
    }

    async fn wait(
        &self,
        tries: u32,
        asked: Option<std::time::Duration>,
        error: DownloadError,
    ) -> Result<(), DownloadError> {
        let Some(wait) = self.options.retry.wait(tries, asked) else {
            return Err(match tries {
                // There was no second try: the failure speaks for itself.
                0 | 1 => error,
                _ => DownloadError::GivenUp {
                    tries,
                    source: Box::new(error),
                },
            });
        };
        self.observer.event(&DownloadEvent::Retrying { error: &error, wait });
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// One response, and the requests that complete its file.
    async fn attempt(&self, progress: &mut Progress) -> Result<Finished, DownloadError> {
        if progress.part.is_none() {
            if let Some(finished) = self.already_verified()? {
                return Ok(finished);
            }
            progress.part = self.left_over()?;
        }
        if let Some(part) = progress.part.take_if(|part| self.may_conclude(part)) {
            return self.conclude(part, Vec::new(), progress).await;
        }
        let gap = self.resumable_gap(progress);
        let request = self.opening(gap, progress.part.as_ref());
        let (exchange, located) = self.client.fetch(request).await?;
        let (validators, total) = progress
            .part
            .as_ref()
            .filter(|_| gap.is_some())
            .map(|part| (part.validators().clone(), part.total()))
            .unwrap_or_default();
        let requested = Requested {
            range: gap,
            validators: &validators,
            total,
        };
        match decide(exchange.head(), &requested, retry::now())? {
            DownloadPlan::Whole => self.whole(exchange, located, gap.is_some(), progress).await,
            DownloadPlan::Part { start, end, total } => {
                segment::check_length(&exchange, end - start)?;
                self.rest(exchange, located, (start, end, total), progress).await
            }
            DownloadPlan::Unchanged => self.unchanged(),
            DownloadPlan::NothingMore { total } => {
                let mut part = progress
                    .part
                    .take()
                    .expect("a range is requested only to continue a part");
                part.set_total(Some(total))?;
                self.conclude(part, Vec::new(), progress).await
            }
        }
    }

    /// True if no request is needed: all bytes are there, of this address, and can be verified if they must be.
    fn may_conclude(&self, part: &PartFile) -> bool {
        let options = &self.options;
        let has_digest = !options.expected.is_empty() || options.list.is_some();
        part.is_complete() && part.is_of(&self.url) && (has_digest || !options.require_digest)
    }

    /// The file, if it is there and matches the given checksum: no request is needed.
    fn already_verified(&self) -> Result<Option<Finished>, DownloadError> {
        let target = self.likely_target();
        let expected = self.options.expected.clone();
        let Ok(file) = File::open(&target) else {
            return Ok(None);
        };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        if expected.is_empty() || self.options.update {
            return Ok(None);
        }
        let wrong = |source| DownloadError::File {
            path: target.clone(),
            source,
        };
        let verified = Follower::start(&file, expected).and_then(|follower| follower.finish(length));
        match verified.map_err(wrong)? {
            Ok(verified) => Ok(Some(Finished {
                path: Some(target),
                length,
                received: 0,
                was_complete: true,
                verified,
                etag: None,
            })),
            Err(_) => Ok(None),
        }
    }

    fn left_over(&self) -> Result<Option<PartFile>, DownloadError> {
        let place = match &self.options.destination {
            Destination::Named(target) => PartLocation::Target(target),
            Destination::Directory(directory) => PartLocation::Directory(directory),
            Destination::Stdout => return Ok(None),
        };
        let found = PartFile::find(place, &self.url)?;
        let damaged = found.as_ref().map_or(0, PartFile::damaged);
        if damaged > 0 && self.options.resume {
            self.observer.event(&DownloadEvent::Damaged { bytes: damaged });
        }
        if self.options.resume {
            return Ok(found);
        }
        found.into_iter().for_each(PartFile::discard);
        Ok(None)
    }

    /// The path that the file will most likely get.
    fn likely_target(&self) -> PathBuf {
        match &self.options.destination {
            Destination::Named(target) => target.clone(),
            Destination::Directory(directory) => directory.join(name::choose(None, &self.url.file_name())),
            Destination::Stdout => PathBuf::new(),
        }
    }

    /// The first missing range of a part that can be continued; its end is open if the length is unknown.
    fn resumable_gap(&self, progress: &Progress) -> Option<(u64, Option<u64>)> {
        let part = progress.part.as_ref()?;
        if progress.no_ranges || part.done().is_empty() || part.validators().if_range().is_none() {
            return None;
        }
        match part.total() {
            Some(total) => part.done().gaps(total).first().map(|&(start, end)| (start, Some(end))),
            None => Some((part.done().prefix(), None)),
        }
    }

    fn fields(&self) -> Fields {
        let mut fields = self.options.fields.clone();
        fields.append("Accept-Encoding", self.options.accept_encoding());
        fields.append("Want-Repr-Digest", "sha-256=10, sha-512=5");
        fields
    }

    /// The first request of an attempt.
    fn opening(&self, gap: Option<(u64, Option<u64>)>, part: Option<&PartFile>) -> Request {
        let request = Request {
            fields: self.fields(),
            ..Request::get(self.url.clone())
        };
        match (gap, part) {
            (Some((start, end)), Some(part)) => segment::bound(request, start, end, part.validators()),
            // A checksum decides whether a file is the right one.
            _ if self.options.expected.is_empty() && self.options.list.is_none() => {
                match stored_tag(&self.likely_target(), &self.url) {
                    Some(tag) => request.with("If-None-Match", tag),
                    None => request,
                }
            }
            _ => request,
        }
    }

    fn unchanged(&self) -> Result<Finished, DownloadError> {
        let path = self.likely_target();
        let length = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Ok(Finished {
            etag: stored_tag(&path, &self.url),
            path: Some(path),
            length,
            received: 0,
            was_complete: true,
            verified: Vec::new(),
        })
    }

    /// Makes the file of a response whose body is the whole of it.
    async fn whole(
        &self,
        exchange: Exchange,
        located: Located,
        was_bound: bool,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let head = exchange.head();
        let validators = Validators::of(head);
        let total = exchange.body_length();
        self.give_up_bytes(was_bound, &validators, total, progress)?;
        let target = self.target(head.fields().get("content-disposition"));
        if let Some(finished) = self.already_there(&target, &validators, total) {
            return Ok(finished);
        }
        let decoder = match self.options.compressed {
            true => decode::Decoder::new(head.fields().get("content-encoding"))?,
            false => None,
        };
        let total = total.filter(|_| decoder.is_none());
        let part = self.fresh_part(&target, validators, total, progress)?;
        if exchange.ends_with_close() {
            let warning = "the server did not send the length of the file, so a cut download cannot be detected";
            self.observer.event(&DownloadEvent::Warning(warning));
        }
        let stated = match &decoder {
            Some(_) => Vec::new(),
            None => stated(head.fields(), true),
        };
        let can_split = offers_ranges(head) && !progress.no_ranges && part.validators().if_range().is_some();
        let job = self.job(part, located, &stated)?;
        let fetched = match decoder {
            Some(decoder) => coded::fetch(&job, exchange, decoder).await,
            None => {
                let end = total.unwrap_or(u64::MAX);
                workers::run(&job, exchange, 0, end, self.most_connections(can_split)).await
            }
        };
        self.after(job, fetched, stated, progress).await
    }

    /// Reports that bytes of an earlier run are of no use, because the server sends the whole file.
    ///
    /// # Errors
    /// [`DownloadError::Ranges`] if the entity tag is the same and the length is not.
    fn give_up_bytes(
        &self,
        was_bound: bool,
        validators: &Validators,
        total: Option<u64>,
        progress: &mut Progress,
    ) -> Result<(), DownloadError> {
        let Some(part) = &progress.part else { return Ok(()) };
        if was_bound {
            let agrees = part.validators().agree_with(validators);
            if agrees && total.is_some() && part.total().is_some() && total != part.total() {
                return Err(DownloadError::Ranges("the length changed and the entity tag did not"));
            }
            let reason = match agrees {
                true => DownloadError::Ranges("the whole file came in place of a part"),
                false => DownloadError::Changed,
            };
            self.observer.event(&DownloadEvent::StartedAgain { reason: &reason });
        } else if part.is_unbound() {
            let warning = "all of it is fetched again: without ETag or Last-Modified, the partial file cannot be matched \
                           with the file on the server";
            self.observer.event(&DownloadEvent::Warning(warning));
        } else {
            return Ok(());
        }
        progress.kept = 0;
        Ok(())
    }

    /// An empty part file for `target`. A part of the same address with another query may be another file: it stays for
    /// a download of that.
    fn fresh_part(
        &self,
        target: &Path,
        validators: Validators,
        total: Option<u64>,
        progress: &mut Progress,
    ) -> Result<PartFile, DownloadError> {
        let left_over = progress.part.take();
        let mut part = match left_over.filter(|part| part.is_of(&self.url) || part.target() == target) {
            Some(part) => part,
            None => PartFile::create(target, self.may_number(), &self.url)?,
        };
        part.begin(&self.url, validators, total)?;
        Ok(part)
    }

    /// Makes the file of a response whose body is a part of it.
    async fn rest(
        &self,
        exchange: Exchange,
        located: Located,
        (start, end, total): (u64, u64, u64),
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let mut part = progress
            .part
            .take()
            .expect("a range is requested only to continue a part");
        part.set_total(Some(total))?;
        let stated = stated(exchange.head().fields(), false);
        let job = self.job(part, located, &stated)?;
        let fetched = workers::run(&job, exchange, start, end, self.most_connections(true)).await;
        self.after(job, fetched, stated, progress).await
    }

    /// The connections for one file. A rate limit is kept by one, and one is enough for a file that cannot be split.
    fn most_connections(&self, can_split: bool) -> usize {
        if can_split && self.pace.is_none() {
            self.options.connections
        } else {
            1
        }
    }

    fn job(&self, part: PartFile, located: Located, stated: &[Checksum]) -> Result<Rc<DownloadJob>, DownloadError> {
        self.observer.event(&DownloadEvent::Started {
            target: part.target().to_owned(),
            total: part.total(),
            kept: part.done().len(),
        });
        let expected = self.expected(part.target(), stated)?;
        let follower = if expected.is_empty() {
            None
        } else {
            let started = Follower::start(part.file(), expected);
            Some(started.map_err(|source| DownloadError::File {
                path: part.target().to_owned(),
                source,
            })?)
        };
        let free = match part.total() {
            Some(total) => part.done().gaps(total),
            None => vec![(0, u64::MAX)],
        };
        Ok(Rc::new(DownloadJob {
            client: Rc::clone(&self.client),
            pace: self.pace.clone(),
            observer: Rc::clone(&self.observer),
            located,
            fields: self.fields(),
            part: RefCell::new(part),
            ranges: RefCell::new(Ranges::new(free)),
            follower: RefCell::new(follower),
            received: Cell::new(0),
            flows: RefCell::default(),
            began: Instant::now(),
        }))
    }

    /// Ends an attempt: with a file, or with a part for the next one.
    async fn after(
        &self,
        job: Rc<DownloadJob>,
        fetched: Result<(), DownloadError>,
        stated: Vec<Checksum>,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        progress.received += job.received.get();
        let follower = job.follower.borrow_mut().take();
        let job = Rc::into_inner(job).expect("all workers have ended");
        let part = job.part.into_inner();
        progress.kept = part.done().len();
        // A file with a missing range gets no name, even if every worker has succeeded.
        let fetched = match fetched {
            Ok(()) if !part.is_complete() => Err(DownloadError::Client(ClientError::ShortBody {
                received: part.done().len(),
                expected: part.total().unwrap_or_default(),
            })),
            fetched => fetched,
        };
        if let Err(error) = fetched {
            progress.part = Some(part);
            return Err(error);
        }
        match follower {
            Some(follower) => self.verify(part, follower, progress).await,
            None => self.conclude(part, stated, progress).await,
        }
    }

    /// The checksums that the file must have, the most trusted first.
    fn expected(&self, target: &Path, stated: &[Checksum]) -> Result<Vec<Checksum>, DownloadError> {
        let mut expected = self.options.expected.clone();
        if let Some(list) = &self.options.list {
            let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let remote = self.url.file_name();
            let listed = in_list(list, &name, Algorithm::Sha256).or_else(|| in_list(list, &remote, Algorithm::Sha256));
            expected.push(listed.ok_or(DownloadError::NotListed { name })?);
        }
        expected.extend_from_slice(stated);
        expected.sort_by_key(|checksum| checksum.source);
        // The same checksum from two sources counts once.
        expected.dedup_by(|second, first| second.algorithm == first.algorithm && second.value == first.value);
        Ok(expected)
    }

    /// Verifies and names a file whose bytes are all there.
    async fn conclude(
        &self,
        part: PartFile,
        stated: Vec<Checksum>,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let expected = self.expected(part.target(), &stated)?;
        if expected.is_empty() {
            if self.options.require_digest {
                return Err(DownloadError::NoDigest);
            }
            return self.place(part, Vec::new(), progress.received);
        }
        let follower = Follower::start(part.file(), expected).map_err(|source| DownloadError::File {
            path: part.target().to_owned(),
            source,
        })?;
        self.verify(part, follower, progress).await
    }

    async fn verify(
        &self,
        part: PartFile,
        follower: Follower,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let length = part.total().unwrap_or_default();
        let hashed = tokio::task::spawn_blocking(move || follower.finish(length)).await;
        let path = part.target().to_owned();
        let hashed = hashed.map_err(std::io::Error::other).and_then(|hashed| hashed);
        match hashed.map_err(|source| DownloadError::File { path, source })? {
            Ok(verified) => self.place(part, verified, progress.received),
            Err((expected, found)) => {
                // These bytes are wrong, so no later run may continue them.
                part.discard();
                Err(DownloadError::Checksum {
                    algorithm: expected.algorithm.name(),
                    source_name: expected.source.name(),
                    expected: expected.hex(),
                    found,
                })
            }
        }
    }

    fn place(&self, part: PartFile, verified: Vec<Checksum>, received: u64) -> Result<Finished, DownloadError> {
        let length = part.total().unwrap_or_default();
        let etag = part.validators().etag.clone();
        let path = part.finish(&self.url, !self.may_number(), self.options.sync)?;
        Ok(Finished {
            path: Some(path),
            length,
            received,
            was_complete: false,
            verified,
            etag,
        })
    }

    /// True if a number is added to a name that is taken; else the file of that name is replaced.
    fn may_number(&self) -> bool {
        matches!(self.options.destination, Destination::Directory(_)) && !self.options.update
    }

    fn target(&self, disposition: Option<&[u8]>) -> PathBuf {
        match &self.options.destination {
            Destination::Directory(directory) => directory.join(name::choose(disposition, &self.url.file_name())),
            Destination::Named(_) | Destination::Stdout => self.likely_target(),
        }
    }

    /// The complete file of an earlier run, if this response would bring the same file.
    fn already_there(&self, target: &Path, validators: &Validators, total: Option<u64>) -> Option<Finished> {
        let total = total?;
        if !self.options.expected.is_empty() || self.options.list.is_some() {
            return None;
        }
        let most = if self.may_number() { usize::MAX } else { 1 };
        let numbers = (0..most).map(|number| name::numbered(target, number));
        let mut there = numbers.take_while(|path| path.exists());
        let path = there.find(|path| is_same(path, &self.url, validators, total))?;
        Some(Finished {
            path: Some(path),
            length: total,
            received: 0,
            was_complete: true,
            verified: Vec::new(),
            etag: validators.etag.clone(),
        })
    }
}
