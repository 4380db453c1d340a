//! A whole file: found, fetched, verified, named.
//!
//! [`Download::run`] tells the story; an attempt is one response and what the lanes make of it. Every attempt begins with
//! what the last one left in the `.part` file, so that trying again costs nothing that has come already.

pub mod board;
pub mod error;
pub mod event;
pub mod gauge;
pub mod growth;
pub mod name;
pub mod pace;
pub mod plan;
pub mod resume;
pub mod spans;
pub mod stream;
mod sums;
pub mod validators;
pub mod verify;

mod coded;
mod crew;
mod job;
mod segment;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use board::Board;
use error::{DownloadError, Remedy};
use event::{Event, Finished, Observer};
use job::Job;
use pace::Pace;
use plan::{Asked, Plan, decide, offers_ranges};
use resume::{Part, Place, is_same, stored_tag};
use validators::Validators;
use verify::{Algorithm, Checksum, Follower, in_list, stated};

use haulier_proto::field::Fields;

use crate::client::{Client, Located};
use crate::decode;
use crate::error::ClientError;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::retry::{self, RetryPolicy};
use crate::url::Url;

/// Times a file may begin anew before it counts as one that never stays the same.
const MOST_RESTARTS: u32 = 3;

/// Where the file goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// This very file; it is replaced when the new one is complete.
    Named(PathBuf),
    /// A name of the server's choice in this directory; no file is replaced.
    Directory(PathBuf),
    /// Standard output, in order, by one connection.
    Stdout,
}

/// How a file is fetched.
#[derive(Debug, Clone)]
pub struct Options {
    pub destination: Destination,
    /// Connections for one file, at least 1.
    pub connections: usize,
    /// Continue what an earlier run left.
    pub resume: bool,
    pub retry: RetryPolicy,
    /// What the file must hash to.
    pub expected: Vec<Checksum>,
    /// The text of a checksum file, in which the file must be listed.
    pub list: Option<String>,
    /// Fail if there is nothing to verify with.
    pub require_digest: bool,
    /// Ask for a content coding and take it off. Such a body cannot be continued.
    pub compressed: bool,
    /// Replace a file of that name if the server's is another.
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

/// What passes from one attempt to the next.
#[derive(Debug, Default)]
struct Progress {
    part: Option<Part>,
    /// The server's ranges proved false: one connection, no ranges.
    no_ranges: bool,
    /// Bytes over the wire in all attempts.
    received: u64,
    /// Bytes in the file after the last attempt.
    kept: u64,
}

/// New bytes that make another try worth it, whatever was tried before.
const ENOUGH: u64 = 64 * 1024;

/// The same of a file of this length: of a short one it is a sixteenth.
fn enough(total: Option<u64>) -> u64 {
    total.map_or(ENOUGH, |total| (total / 16).min(ENOUGH)).max(1)
}

impl Download {
    /// Fetches the file, trying again where that may help.
    ///
    /// # Errors
    /// [`DownloadError`] of the last attempt. What came stays beside the target as `.part`, if it is of any use.
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
            // Only bytes that no attempt had before count as progress, and only so many of them: else a server that
            // always cuts at one place, or gives a hundred bytes a time, would be asked for ever.
            if progress.kept >= best + enough(progress.part.as_ref().and_then(Part::total)) {
                (best, tries) = (progress.kept, 0);
            }
            match error.remedy() {
                Remedy::StartAgain if restarts < MOST_RESTARTS => {
                    restarts += 1;
                    self.observer.event(&Event::StartedAgain { reason: &error });
                    progress.no_ranges |= matches!(error, DownloadError::Ranges(_));
                    progress.part.take().into_iter().for_each(Part::discard);
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
                // It never was tried again: the failure speaks for itself.
                0 | 1 => error,
                _ => DownloadError::GivenUp {
                    tries,
                    source: Box::new(error),
                },
            });
        };
        self.observer.event(&Event::Retrying { error: &error, wait });
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// One response, and what it takes to make a file of it.
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
        let asked = Asked {
            range: gap,
            validators: &validators,
            total,
        };
        match decide(exchange.head(), &asked, retry::now())? {
            Plan::Whole => self.whole(exchange, located, gap.is_some(), progress).await,
            Plan::Part { start, end, total } => {
                segment::check_length(&exchange, end - start)?;
                self.rest(exchange, located, (start, end, total), progress).await
            }
            Plan::Unchanged => self.unchanged(),
            Plan::NothingMore { total } => {
                let mut part = progress.part.take().expect("a range is asked for behind what we have");
                part.set_total(Some(total))?;
                self.conclude(part, Vec::new(), progress).await
            }
        }
    }

    /// Whether nobody needs to be asked any more: all is there, of this very address, and can be verified if it must be.
    fn may_conclude(&self, part: &Part) -> bool {
        let options = &self.options;
        let has_digest = !options.expected.is_empty() || options.list.is_some();
        part.is_complete() && part.is_of(&self.url) && (has_digest || !options.require_digest)
    }

    /// A checksum was given and the file is there and right: nobody needs to be asked.
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

    fn left_over(&self) -> Result<Option<Part>, DownloadError> {
        let place = match &self.options.destination {
            Destination::Named(target) => Place::Target(target),
            Destination::Directory(directory) => Place::Directory(directory),
            Destination::Stdout => return Ok(None),
        };
        let found = Part::find(place, &self.url)?;
        let damaged = found.as_ref().map_or(0, Part::damaged);
        if damaged > 0 && self.options.resume {
            self.observer.event(&Event::Damaged { bytes: damaged });
        }
        if self.options.resume {
            return Ok(found);
        }
        found.into_iter().for_each(Part::discard);
        Ok(None)
    }

    /// The name the file will most likely get.
    fn likely_target(&self) -> PathBuf {
        match &self.options.destination {
            Destination::Named(target) => target.clone(),
            Destination::Directory(directory) => directory.join(name::choose(None, &self.url.file_name())),
            Destination::Stdout => PathBuf::new(),
        }
    }

    /// The first bytes that are missing of a file that can be continued; the end is open if its length is unknown.
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
    fn opening(&self, gap: Option<(u64, Option<u64>)>, part: Option<&Part>) -> Request {
        let request = Request {
            fields: self.fields(),
            ..Request::get(self.url.clone())
        };
        match (gap, part) {
            (Some((start, end)), Some(part)) => segment::bound(request, start, end, part.validators()),
            // A checksum decides by itself whether a file is the right one.
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

    /// The body is the whole file, from its first byte.
    async fn whole(
        &self,
        exchange: Exchange,
        located: Located,
        was_bound: bool,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let validators = Validators::of(exchange.head());
        let total = exchange.body_length();
        if was_bound {
            let known = progress.part.as_ref().and_then(Part::total);
            let agrees = progress
                .part
                .as_ref()
                .is_some_and(|part| part.validators().agree_with(&validators));
            if agrees && total.is_some() && known.is_some() && total != known {
                return Err(DownloadError::Ranges("another length under the same entity tag"));
            }
            let reason = match &progress.part {
                Some(part) if part.validators().agree_with(&validators) => {
                    DownloadError::Ranges("the whole came where a part was asked for")
                }
                _ => DownloadError::Changed,
            };
            self.observer.event(&Event::StartedAgain { reason: &reason });
            progress.kept = 0;
        } else if progress.part.as_ref().is_some_and(Part::is_unbound) {
            let warning = "all of it is fetched again: without an ETag or a Last-Modified nobody can tell whether what was \
                           there is a part of the same file";
            self.observer.event(&Event::Warning(warning));
            progress.kept = 0;
        }
        let target = self.target(exchange.head().fields().get("content-disposition"));
        if let Some(finished) = self.already_there(&target, &validators, total) {
            return Ok(finished);
        }
        // What was left of another query may be another file: it stays for whoever asks for that.
        let left_over = progress.part.take();
        let mut part = match left_over.filter(|part| part.is_of(&self.url) || part.target() == target) {
            Some(part) => part,
            None => Part::create(&target, self.may_number(), &self.url)?,
        };
        let decoder = match self.options.compressed {
            true => decode::Decoder::new(exchange.head().fields().get("content-encoding"))?,
            false => None,
        };
        let is_coded = decoder.is_some();
        part.begin(&self.url, validators, total.filter(|_| !is_coded))?;
        if exchange.ends_with_close() {
            let warning = "the server did not send the length of the file, so a cut download cannot be detected";
            self.observer.event(&Event::Warning(warning));
        }
        let stated = if is_coded {
            Vec::new()
        } else {
            stated(exchange.head().fields(), true)
        };
        let most = match offers_ranges(exchange.head()) && !progress.no_ranges && self.pace.is_none() {
            true if part.validators().if_range().is_some() => self.options.connections,
            _ => 1,
        };
        let job = self.job(part, located, &stated)?;
        let fetched = match decoder {
            Some(decoder) => coded::fetch(&job, exchange, decoder).await,
            None => crew::run(&job, exchange, 0, total.unwrap_or(u64::MAX), most).await,
        };
        self.after(job, fetched, stated, progress).await
    }

    /// The body is a part behind what we have.
    async fn rest(
        &self,
        exchange: Exchange,
        located: Located,
        (start, end, total): (u64, u64, u64),
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        let mut part = progress.part.take().expect("a range is asked for behind what we have");
        part.set_total(Some(total))?;
        let stated = stated(exchange.head().fields(), false);
        let most = if self.pace.is_none() {
            self.options.connections
        } else {
            1
        };
        let job = self.job(part, located, &stated)?;
        let fetched = crew::run(&job, exchange, start, end, most).await;
        self.after(job, fetched, stated, progress).await
    }

    fn job(&self, part: Part, located: Located, stated: &[Checksum]) -> Result<Rc<Job>, DownloadError> {
        self.observer.event(&Event::Started {
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
        Ok(Rc::new(Job {
            client: Rc::clone(&self.client),
            pace: self.pace.clone(),
            observer: Rc::clone(&self.observer),
            located,
            fields: self.fields(),
            part: RefCell::new(part),
            board: RefCell::new(Board::new(free)),
            follower: RefCell::new(follower),
            received: Cell::new(0),
            flows: RefCell::default(),
            began: Instant::now(),
        }))
    }

    /// The end of an attempt: a file, or something to go on with.
    async fn after(
        &self,
        job: Rc<Job>,
        fetched: Result<(), DownloadError>,
        stated: Vec<Checksum>,
        progress: &mut Progress,
    ) -> Result<Finished, DownloadError> {
        progress.received += job.received.get();
        let follower = job.follower.borrow_mut().take();
        let job = Rc::into_inner(job).expect("no lane outlives its crew");
        let part = job.part.into_inner();
        progress.kept = part.done().len();
        // Whoever fetched the bytes, and whatever he says: a file with a hole gets no name.
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

    /// What the file must hash to, the most trusted first.
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
        // Two statements of one hash are one.
        expected.dedup_by(|second, first| second.algorithm == first.algorithm && second.value == first.value);
        Ok(expected)
    }

    /// All bytes are there, and nobody has hashed them yet.
    async fn conclude(
        &self,
        part: Part,
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

    async fn verify(&self, part: Part, follower: Follower, progress: &mut Progress) -> Result<Finished, DownloadError> {
        let length = part.total().unwrap_or_default();
        let hashed = tokio::task::spawn_blocking(move || follower.finish(length)).await;
        let path = part.target().to_owned();
        let hashed = hashed.map_err(std::io::Error::other).and_then(|hashed| hashed);
        match hashed.map_err(|source| DownloadError::File { path, source })? {
            Ok(verified) => self.place(part, verified, progress.received),
            Err((expected, found)) => {
                // These bytes are wrong whatever comes behind them: nothing of them may be continued.
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

    fn place(&self, part: Part, verified: Vec<Checksum>, received: u64) -> Result<Finished, DownloadError> {
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

    /// Whether a taken name gets a number; else the file of that name is replaced.
    fn may_number(&self) -> bool {
        matches!(self.options.destination, Destination::Directory(_)) && !self.options.update
    }

    fn target(&self, disposition: Option<&[u8]>) -> PathBuf {
        match &self.options.destination {
            Destination::Directory(directory) => directory.join(name::choose(disposition, &self.url.file_name())),
            Destination::Named(_) | Destination::Stdout => self.likely_target(),
        }
    }

    /// The complete file of an earlier run, if this response would bring the same.
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
