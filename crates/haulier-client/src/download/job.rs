//! The state that the workers of one file share.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use haulier_proto::field::Fields;

use super::error::DownloadError;
use super::event::{DownloadEvent, Observer};
use super::pace::Pace;
use super::ranges::{MOVE, Ranges};
use super::resume::PartFile;
use super::throughput::{Flow, Sample};
use super::validators::Validators;
use super::verify::Follower;
use crate::client::{Client, Located};
use crate::request::Request;

/// The download of one file.
#[derive(Debug)]
pub(super) struct DownloadJob {
    pub(super) client: Rc<Client>,
    pub(super) pace: Option<Rc<Pace>>,
    pub(super) observer: Rc<dyn Observer>,
    /// The address of the file, after redirects.
    pub(super) located: Located,
    pub(super) fields: Fields,
    pub(super) part: RefCell<PartFile>,
    pub(super) ranges: RefCell<Ranges>,
    pub(super) follower: RefCell<Option<Follower>>,
    /// Bytes that came in this attempt.
    pub(super) received: Cell<u64>,
    /// The share of each worker in them.
    pub(super) flows: RefCell<Vec<Flow>>,
    pub(super) began: Instant,
}

impl DownloadJob {
    /// A request for the file, with the fields of all requests of the download.
    pub(super) fn request(&self) -> Request {
        Request {
            fields: self.fields.clone(),
            ..Request::get(self.located.url.clone())
        }
    }

    /// The state of the file that the part has, and its length.
    pub(super) fn state(&self) -> (Validators, Option<u64>) {
        let part = self.part.borrow();
        (part.validators().clone(), part.total())
    }

    /// Bytes to move at once.
    pub(super) fn piece(&self) -> usize {
        self.pace.as_ref().map_or(MOVE, |pace| pace.piece())
    }

    /// Notes that bytes of a worker have been written to the file.
    pub(super) fn moved(&self, worker: usize, at: u64, bytes: u64) -> Result<(), DownloadError> {
        let mut part = self.part.borrow_mut();
        part.wrote(at, at + bytes)?;
        if let Some(follower) = &*self.follower.borrow() {
            follower.reached(part.done().prefix());
        }
        self.received.set(self.received.get() + bytes);
        let mut flows = self.flows.borrow_mut();
        if flows.len() <= worker {
            flows.resize(worker + 1, Flow::default());
        }
        flows[worker].bytes += bytes;
        flows[worker].at = self.began.elapsed().as_secs_f64();
        Ok(())
    }

    /// The bytes received up to now.
    pub(super) fn sample(&self) -> Sample {
        Sample {
            at: self.began.elapsed().as_secs_f64(),
            connections: self.flows.borrow().clone(),
        }
    }

    pub(super) async fn pay(&self, bytes: usize) {
        if let Some(pace) = &self.pace {
            pace.pay(bytes).await;
        }
    }

    /// Sends a progress event.
    pub(super) fn report(&self, rate: f64, connections: usize) {
        let part = self.part.borrow();
        self.observer.event(&DownloadEvent::Progress {
            done: part.done().len(),
            total: part.total(),
            rate,
            connections,
        });
    }

    pub(super) fn file_error(&self, source: io::Error) -> DownloadError {
        DownloadError::File {
            path: self.part.borrow().target().to_owned(),
            source,
        }
    }
}
