//! The requests of an HTTP/2 connection: its state machine, and a slot for each stream.
//!
//! A slot has one request with its times, like a whole connection of HTTP/1.

use std::collections::VecDeque;

use haulier_proto::field::Fields;
use haulier_proto::h2::client::{Client, ClientLimits, StreamOptions};

use super::answer::Complete;
use super::connection::Timing;
use super::job::{Expected, Outgoing};

/// Most tries of a request that the server has not processed, over connections without any answer.
const MOST_TRIES: u8 = 3;

/// One request and its answer. Times are nanoseconds since the start of the thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamSlot {
    /// Index into the requests of the job.
    pub(super) request: usize,
    pub(super) timing: Timing,
    /// Time of its last progress.
    pub(super) since: u64,
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
pub(super) struct StreamSlots {
    pub(super) client: Client,
    slots: Vec<StreamSlot>,
    /// The stream of each slot; 0 for none.
    ids: Vec<u32>,
    free: Vec<usize>,
    /// Slots with a request to be sent.
    ready: VecDeque<usize>,
    /// Number of slots that send a body.
    uploading: usize,
    /// The server has begun an answer on this connection, so that requests it refused may be tried again.
    pub(super) has_answered: bool,
    /// The beginning of a frame that is not complete.
    pub(super) input: Vec<u8>,
    pub(super) storage: Fields,
}

impl StreamSlots {
    pub(super) fn new(count: u32) -> Self {
        let count = count.max(1) as usize;
        Self {
            client: Client::new(ClientLimits::default()),
            slots: vec![StreamSlot::default(); count],
            ids: vec![0; count],
            free: (0..count).rev().collect(),
            ready: VecDeque::with_capacity(count),
            uploading: 0,
            has_answered: false,
            input: Vec::new(),
            storage: Fields::new(),
        }
    }

    /// Begins all requests again, on a new connection.
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

    /// True if it has room for another request.
    pub(super) fn takes_more(&self) -> bool {
        self.busy() < self.slots.len().min(self.client.most_streams())
    }

    /// Gives a free slot a request.
    pub(super) fn assign(&mut self, request: usize, due: u64, now: u64) {
        let Some(place) = self.free.pop() else { return };
        self.slots[place] = StreamSlot {
            request,
            timing: Timing {
                due,
                ..Timing::default()
            },
            is_busy: true,
            ..StreamSlot::default()
        };
        self.get_ready(place, now);
    }

    fn get_ready(&mut self, place: usize, now: u64) {
        let slot = &mut self.slots[place];
        self.uploading -= usize::from(slot.is_uploading);
        *slot = StreamSlot {
            request: slot.request,
            timing: Timing {
                due: slot.timing.due,
                sent: now,
                ..Timing::default()
            },
            tries: slot.tries,
            is_busy: true,
            since: now,
            ..StreamSlot::default()
        };
        self.ids[place] = 0;
        self.ready.push_back(place);
    }

    /// Sends requests that are ready, as far as the server takes streams.
    pub(super) fn send_ready(&mut self, requests: &[Outgoing], now: u64) {
        while self.client.has_room() {
            let Some(place) = self.ready.pop_front() else { break };
            let slot = &mut self.slots[place];
            let request = &requests[slot.request];
            let ask = StreamOptions {
                is_head: request.is_head,
                end: request.bytes.is_empty(),
            };
            let lines = request
                .fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let Some(id) = self.client.open(ask, lines) else { break };
            (slot.timing.sent, slot.since) = (now, now);
            slot.is_uploading = !ask.end;
            self.uploading += usize::from(slot.is_uploading);
            self.ids[place] = id;
        }
        self.upload(requests);
    }

    /// Sends bodies of requests, as far as the windows allow.
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

    /// Takes the time at which the connection was established: earlier output was sent then.
    pub(super) fn established(&mut self, now: u64, connect_time: u64) {
        for (slot, id) in self.slots.iter_mut().zip(&self.ids) {
            if slot.is_busy && *id != 0 {
                (slot.timing.sent, slot.since, slot.timing.connect_time) = (now, now, connect_time);
            }
        }
    }

    /// The slot of a stream.
    pub(super) fn place_of(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|found| *found == id)
    }

    pub(super) fn slot(&mut self, place: usize) -> &mut StreamSlot {
        &mut self.slots[place]
    }

    /// Takes a piece of a body.
    pub(super) fn take_body(&mut self, place: usize, piece: &[u8], expected: &Expected, now: u64) {
        let slot = &mut self.slots[place];
        slot.differs |= !slot.is_coded && expected.differs(slot.body, piece);
        slot.body += piece.len() as u64;
        slot.since = now;
    }

    /// Ends the request of a slot, which is free then.
    pub(super) fn release(&mut self, place: usize) -> StreamSlot {
        let slot = std::mem::take(&mut self.slots[place]);
        self.uploading -= usize::from(slot.is_uploading);
        self.ids[place] = 0;
        self.free.push(place);
        slot
    }

    /// Sends the request of a slot again; false after too many tries.
    pub(super) fn try_again(&mut self, place: usize, now: u64) -> bool {
        self.slots[place].tries += u8::from(!self.has_answered);
        let may = self.slots[place].tries <= MOST_TRIES;
        if may {
            self.get_ready(place, now);
        }
        may
    }

    /// Slots with a request.
    pub(super) fn places(&self) -> Vec<usize> {
        (0..self.slots.len())
            .filter(|place| self.slots[*place].is_busy)
            .collect()
    }

    /// Due times of all requests.
    pub(super) fn dues(&self) -> Vec<u64> {
        let busy = self.slots.iter().filter(|slot| slot.is_busy);
        busy.map(|slot| slot.timing.due).collect()
    }

    /// A slot whose request made no progress for longer than `timeout`, ns. Its stream is cancelled.
    pub(super) fn stalled(&mut self, now: u64, timeout: u128) -> Option<usize> {
        let is_stalled = |slot: &StreamSlot| slot.is_busy && u128::from(now.saturating_sub(slot.since)) > timeout;
        let place = self.slots.iter().position(is_stalled)?;
        match self.ids[place] {
            0 => self.ready.retain(|ready| *ready != place),
            id => self.client.cancel(id),
        }
        Some(place)
    }
}

impl StreamSlot {
    pub(super) fn complete(&self, keeps_alive: bool) -> Complete {
        Complete {
            status: self.status,
            body: self.body,
            keeps_alive,
            differs: self.differs,
        }
    }

    /// True if no byte of the answer has come.
    pub(super) fn is_untouched(&self) -> bool {
        self.timing.first_byte == 0
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
        let (mut streams, requests) = (StreamSlots::new(2), requests());
        assert!(streams.takes_more());
        streams.assign(0, 5, 7);
        streams.assign(0, 6, 7);
        assert!(!streams.takes_more() && streams.busy() == 2);
        streams.send_ready(&requests, 9);
        let (first, second) = (streams.place_of(1).expect("sent"), streams.place_of(3).expect("sent"));
        let timing = streams.slot(first).timing;
        assert_eq!((timing.due, timing.sent), (5, 9));
        assert_eq!(streams.dues(), [5, 6]);
        streams.established(20, 11);
        let slot = streams.release(second);
        assert_eq!(streams.dues(), [5]);
        assert_eq!((slot.timing.sent, slot.timing.connect_time), (20, 11));
        assert_eq!((streams.busy(), streams.place_of(3)), (1, None));
        assert!(streams.takes_more());
    }

    #[test]
    fn a_request_begins_again_on_a_new_connection_but_not_for_ever() {
        let (mut streams, requests) = (StreamSlots::new(1), requests());
        streams.assign(0, 1, 1);
        streams.send_ready(&requests, 1);
        let place = streams.place_of(1).expect("sent");
        for _ in 0..MOST_TRIES {
            assert!(streams.try_again(place, 2));
            streams.rewind(2);
            streams.send_ready(&requests, 2);
            assert_eq!(streams.place_of(1), Some(place), "the first stream of a new connection");
            assert_eq!(streams.slot(place).timing.due, 1, "its due time stays");
        }
        assert!(!streams.try_again(place, 3));
    }

    #[test]
    fn a_server_that_answers_some_and_refuses_the_others_may_do_so_for_long() {
        let (mut streams, requests) = (StreamSlots::new(1), requests());
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
    fn a_stalled_request_is_found_once() {
        let (mut streams, requests) = (StreamSlots::new(2), requests());
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
        let mut streams = StreamSlots::new(1);
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
