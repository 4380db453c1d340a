//! What the lanes of one file share.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use haulier_proto::field::Fields;

use super::board::{Board, MOVE};
use super::error::DownloadError;
use super::event::{Event, Observer};
use super::gauge::{Flow, Look};
use super::pace::Pace;
use super::resume::Part;
use super::validators::Validators;
use super::verify::Follower;
use crate::client::{Client, Located};
use crate::request::Request;

/// One file on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) client: Rc<Client>,
    pub(super) pace: Option<Rc<Pace>>,
    pub(super) observer: Rc<dyn Observer>,
    /// Where the bytes were found, after redirects.
    pub(super) located: Located,
    pub(super) fields: Fields,
    pub(super) part: RefCell<Part>,
    pub(super) board: RefCell<Board>,
    pub(super) follower: RefCell<Option<Follower>>,
    /// Bytes that came in this attempt.
    pub(super) received: Cell<u64>,
    /// What each lane brought of them.
    pub(super) flows: RefCell<Vec<Flow>>,
    pub(super) began: Instant,
}

impl Job {
    /// A request for the file, with the fields every request of ours carries.
    pub(super) fn request(&self) -> Request {
        Request {
            fields: self.fields.clone(),
            ..Request::get(self.located.url.clone())
        }
    }

    /// The state the bytes so far are of, and its length.
    pub(super) fn state(&self) -> (Validators, Option<u64>) {
        let part = self.part.borrow();
        (part.validators().clone(), part.total())
    }

    /// Bytes to move at once.
    pub(super) fn piece(&self) -> usize {
        self.pace.as_ref().map_or(MOVE, |pace| pace.piece())
    }

    /// Bytes of a lane have arrived in the file.
    pub(super) fn moved(&self, lane: usize, at: u64, bytes: u64) -> Result<(), DownloadError> {
        let mut part = self.part.borrow_mut();
        part.wrote(at, at + bytes)?;
        if let Some(follower) = &*self.follower.borrow() {
            follower.reached(part.done().prefix());
        }
        self.received.set(self.received.get() + bytes);
        let mut flows = self.flows.borrow_mut();
        if flows.len() <= lane {
            flows.resize(lane + 1, Flow::default());
        }
        flows[lane].bytes += bytes;
        flows[lane].at = self.began.elapsed().as_secs_f64();
        Ok(())
    }

    /// What has come up to now.
    pub(super) fn look(&self) -> Look {
        Look {
            at: self.began.elapsed().as_secs_f64(),
            lanes: self.flows.borrow().clone(),
        }
    }

    pub(super) async fn pay(&self, bytes: usize) {
        if let Some(pace) = &self.pace {
            pace.pay(bytes).await;
        }
    }

    /// Tells how far it is.
    pub(super) fn report(&self, rate: f64, connections: usize) {
        let part = self.part.borrow();
        self.observer.event(&Event::Progress {
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
