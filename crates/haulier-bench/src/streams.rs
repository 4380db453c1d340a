//! The HTTP/2 side of a connection of the generator: its state machine, and a slot for each stream it may have.
//!
//! A slot is what a whole connection is in HTTP/1: one request on its way, with its times.

use std::collections::VecDeque;

use haulier_proto::field::Fields;
use haulier_proto::h2::client::{Ask, Client, ClientLimits};

use super::answer::Complete;
use super::job::{Expected, Outgoing};

/// How often a request is sent again that the server says it has not taken, over connections on which it has answered
/// nothing else either.
const MOST_TRIES: u8 = 3;

/// One request and its answer. Times are nanoseconds since the start of the thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slot {
    /// Place of the request in the job.
    pub(super) request: usize,
    /// When it was due.
    pub(super) due: u64,
    /// When it was sent.
    pub(super) sent: u64,
    /// When it last moved.
    pub(super) since: u64,
    /// When the head of the answer came; 0 before.
    pub(super) first_byte: u64,
    /// How long the connection took for it; 0 on a kept one.
    pub(super) connect_time: u64,
    pub(super) status: u16,
    /// Bytes of the body so far.
    pub(super) body: u64,
    pub(super) is_coded: bool,
    pub(super) differs: bool,
    is_busy: bool,
    /// Bytes of the request's body that are sent.
    uploaded: usize,
    is_uploading: bool,
    tries: u8,
}

/// All streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) client: Client,
    slots: Vec<Slot>,
    /// The stream of each slot; 0 for none.
    ids: Vec<u32>,
    free: Vec<usize>,
    /// Slots whose request is still to be sent.
    ready: VecDeque<usize>,
    /// Slots with a request's body on its way.
    uploading: usize,
    /// Whether the server has begun an answer on this connection: who refuses the others of a full connection gets on.
    pub(super) has_answered: bool,
    /// A frame whose end is still to come.
    pub(super) input: Vec<u8>,
    pub(super) storage: Fields,
}

impl Streams {
    pub(super) fn new(count: u32) -> Self {
        let count = count.max(1) as usize;
        Self {
            client: Client::new(ClientLimits::default()),
            slots: vec![Slot::default(); count],
            ids: vec![0; count],
            free: (0..count).rev().collect(),
            ready: VecDeque::with_capacity(count),
            uploading: 0,
            has_answered: false,
            input: Vec::new(),
            storage: Fields::new(),
        }
    }

    /// The connection is made anew: requests that are on it begin again.
    pub(super) fn rewind(&mut self, now: u64) {
        self.client = Client::new(ClientLimits::default());
        self.has_answered = false;
        self.input.clear();
        self.ready.clear();
        for place in 0..self.slots.len() {
            if self.slots[place].is_busy {
                self.get_ready(place, now);
            }
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Slots with a request.
    pub(super) fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether another request could be on its way at once.
    pub(super) fn takes_more(&self) -> bool {
        self.busy() < self.slots.len().min(self.client.most_streams())
    }

    /// Gives a free slot a request.
    pub(super) fn assign(&mut self, request: usize, due: u64, now: u64) {
        let Some(place) = self.free.pop() else { return };
        self.slots[place] = Slot {
            request,
            due,
            is_busy: true,
            ..Slot::default()
        };
        self.get_ready(place, now);
    }

    fn get_ready(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        self.uploading -= usize::from(slot.is_uploading);
        *slot = Slot {
            request: slot.request,
            due: slot.due,
            tries: slot.tries,
            is_busy: true,
            sent: now,
            since: now,
            ..Slot::default()
        };
        self.ids[place] = 0;
        self.ready.push_back(place);
    }

    /// Sends what is ready, as far as the server takes streams.
    pub(super) fn send_ready(&mut self, requests: &[Outgoing], now: u64) {
        while self.client.has_room() {
            let Some(place) = self.ready.pop_front() else { break };
            let slot = &mut self.slots[place];
            let request = &requests[slot.request];
            let ask = Ask {
                is_head: request.is_head,
                end: request.bytes.is_empty(),
            };
            let lines = request
                .fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let Some(id) = self.client.open(ask, lines) else { break };
            (slot.sent, slot.since) = (now, now);
            slot.is_uploading = !ask.end;
            self.uploading += usize::from(slot.is_uploading);
            self.ids[place] = id;
        }
        self.upload(requests);
    }

    /// Goes on with bodies of requests, as far as the windows let them.
    fn upload(&mut self, requests: &[Outgoing]) {
        if self.uploading == 0 {
            return;
        }
        for (slot, id) in self.slots.iter_mut().zip(&self.ids) {
            if !slot.is_uploading || *id == 0 {
                continue;
            }
            let body = &requests[slot.request].bytes;
            let sent = self.client.send_data(*id, &body[slot.uploaded..], true);
            slot.uploaded += sent.unwrap_or_default();
            if slot.uploaded == body.len() {
                slot.is_uploading = false;
                self.uploading -= 1;
            }
        }
    }

    /// The connection stands: what was sent before went out now.
    pub(super) fn established(&mut self, now: u64, connect_time: u64) {
        for (slot, id) in self.slots.iter_mut().zip(&self.ids) {
            if slot.is_busy && *id != 0 {
                (slot.sent, slot.since, slot.connect_time) = (now, now, connect_time);
            }
        }
    }

    /// The slot of a stream.
    pub(super) fn place_of(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|found| *found == id)
    }

    pub(super) fn slot(&mut self, place: usize) -> &mut Slot {
        &mut self.slots[place]
    }

    /// Takes a piece of a body in.
    pub(super) fn take_body(&mut self, place: usize, piece: &[u8], expected: &Expected, now: u64) {
        let slot = &mut self.slots[place];
        if let Some(expected) = expected.body.as_ref().filter(|_| !slot.is_coded) {
            let at = usize::try_from(slot.body).unwrap_or(usize::MAX).min(expected.len());
            slot.differs |= !expected[at..].starts_with(piece);
        }
        slot.body += piece.len() as u64;
        slot.since = now;
    }

    /// The request is over: its slot is free.
    pub(super) fn release(&mut self, place: usize) -> Slot {
        let slot = std::mem::take(&mut self.slots[place]);
        self.uploading -= usize::from(slot.is_uploading);
        self.ids[place] = 0;
        self.free.push(place);
        slot
    }

    /// Lets the request of a slot be sent again, unless that was tried often enough; false then.
    pub(super) fn try_again(&mut self, place: usize, now: u64) -> bool {
        self.slots[place].tries += u8::from(!self.has_answered);
        let may = self.slots[place].tries <= MOST_TRIES;
        if may {
            self.get_ready(place, now);
        }
        may
    }

    /// Slots with a request, answered in part or not at all.
    pub(super) fn places(&self) -> Vec<usize> {
        (0..self.slots.len())
            .filter(|place| self.slots[*place].is_busy)
            .collect()
    }

    /// When each of the requests was due that are on their way.
    pub(super) fn dues(&self) -> Vec<u64> {
        let busy = self.slots.iter().filter(|slot| slot.is_busy);
        busy.map(|slot| slot.due).collect()
    }

    /// A slot whose request has not moved for longer than `patience`, ns; whoever takes it ends the stream.
    pub(super) fn stalled(&mut self, now: u64, patience: u128) -> Option<usize> {
        let is_stalled = |slot: &Slot| slot.is_busy && u128::from(now.saturating_sub(slot.since)) > patience;
        let place = self.slots.iter().position(is_stalled)?;
        match self.ids[place] {
            0 => self.ready.retain(|ready| *ready != place),
            id => self.client.cancel(id),
        }
        Some(place)
    }
}

impl Slot {
    pub(super) fn complete(&self, keeps_alive: bool) -> Complete {
        Complete {
            status: self.status,
            body: self.body,
            keeps_alive,
            differs: self.differs,
        }
    }

    /// Whether nothing of the answer has come.
    pub(super) fn is_untouched(&self) -> bool {
        self.first_byte == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Outgoing> {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = vec![
            line(":method", "GET"),
            line(":scheme", "http"),
            line(":authority", "a"),
            line(":path", "/"),
        ];
        vec![Outgoing {
            bytes: Vec::new(),
            fields,
            is_head: false,
        }]
    }

    #[test]
    fn slots_are_taken_sent_and_given_back() {
        let (mut streams, requests) = (Streams::new(2), requests());
        assert!(streams.takes_more());
        streams.assign(0, 5, 7);
        streams.assign(0, 6, 7);
        assert!(!streams.takes_more() && streams.busy() == 2);
        streams.send_ready(&requests, 9);
        let (first, second) = (streams.place_of(1).expect("sent"), streams.place_of(3).expect("sent"));
        assert_eq!((streams.slot(first).due, streams.slot(first).sent), (5, 9));
        assert_eq!(streams.dues(), [5, 6]);
        streams.established(20, 11);
        let slot = streams.release(second);
        assert_eq!(streams.dues(), [5]);
        assert_eq!((slot.sent, slot.connect_time), (20, 11));
        assert_eq!((streams.busy(), streams.place_of(3)), (1, None));
        assert!(streams.takes_more());
    }

    #[test]
    fn a_request_begins_again_on_a_new_connection_but_not_for_ever() {
        let (mut streams, requests) = (Streams::new(1), requests());
        streams.assign(0, 1, 1);
        streams.send_ready(&requests, 1);
        let place = streams.place_of(1).expect("sent");
        for _ in 0..MOST_TRIES {
            assert!(streams.try_again(place, 2));
            streams.rewind(2);
            streams.send_ready(&requests, 2);
            assert_eq!(streams.place_of(1), Some(place), "the first stream of a new connection");
            assert_eq!(streams.slot(place).due, 1, "it was due when it was");
        }
        assert!(!streams.try_again(place, 3));
    }

    #[test]
    fn a_server_that_answers_some_and_refuses_the_others_may_do_so_for_long() {
        let (mut streams, requests) = (Streams::new(1), requests());
        streams.assign(0, 1, 1);
        let place = streams.places()[0];
        for _ in 0..100 {
            streams.rewind(2);
            streams.send_ready(&requests, 2);
            streams.has_answered = true;
            assert!(streams.try_again(place, 2));
        }
    }

    #[test]
    fn what_has_not_moved_for_too_long_is_found_once() {
        let (mut streams, requests) = (Streams::new(2), requests());
        streams.assign(0, 0, 0);
        streams.send_ready(&requests, 0);
        streams.assign(0, 90, 90);
        assert_eq!(streams.stalled(100, 100), None);
        let place = streams.stalled(101, 100).expect("the first one");
        streams.release(place);
        assert_eq!(streams.stalled(101, 100), None);
        assert_eq!((streams.busy(), streams.client.open_streams()), (1, 0));
    }

    #[test]
    fn a_body_is_compared_where_it_travels_as_it_is() {
        let mut streams = Streams::new(1);
        let expected = Expected {
            body: Some(b"hello".to_vec()),
            ..Expected::default()
        };
        streams.assign(0, 0, 0);
        let place = streams.places()[0];
        streams.take_body(place, b"hel", &expected, 1);
        streams.take_body(place, b"lo", &expected, 2);
        let complete = streams.slot(place).complete(true);
        assert_eq!((complete.body, complete.differs), (5, false));
        streams.take_body(place, b"!", &expected, 3);
        assert!(streams.slot(place).differs);
    }
}
