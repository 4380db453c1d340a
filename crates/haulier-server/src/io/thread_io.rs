//! The I/O state that the connections of one thread share.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::buffers::Buffers;
use super::deadline::Deadlines;
use super::gate::Gate;
use super::session::Scratch;
use crate::clock::Clock;

/// Clock, buffers and deadlines of a thread, and the gate.
#[derive(Debug)]
pub(crate) struct Io {
    number: usize,
    pub(crate) clock: Clock,
    pub(crate) buffers: Buffers,
    /// Memory of TLS connections.
    pub(crate) scratch: Rc<Scratch>,
    pub(crate) deadlines: Deadlines,
    pub(crate) gate: Arc<Gate>,
    /// Connections end after their next response.
    pub(crate) draining: Cell<bool>,
    /// Active requests have been cut off.
    cut: Cell<bool>,
}

impl Io {
    pub(crate) fn new(gate: Arc<Gate>, number: usize) -> Self {
        Self {
            number,
            clock: Clock::new(),
            buffers: Buffers::default(),
            scratch: Rc::default(),
            deadlines: Deadlines::default(),
            gate,
            draining: Cell::new(false),
            cut: Cell::new(false),
        }
    }

    /// Closes connections that have been idle longest. If this thread has none, other threads are asked. Returns the
    /// number closed here.
    pub(crate) fn make_room(&self) -> usize {
        let closed = self.make_own_room();
        if closed == 0 {
            self.gate.ask_others(self.number);
        }
        closed
    }

    /// Closes the connections of this thread that have been idle longest; returns their number.
    pub(crate) fn make_own_room(&self) -> usize {
        self.deadlines.make_room(self.clock.coarse())
    }

    /// Closes the connections of one address that have been idle longest; returns their number.
    pub(crate) fn make_room_of(&self, address: IpAddr) -> usize {
        self.deadlines.make_room_of(address, self.clock.coarse())
    }

    /// Waits until another thread needs room.
    pub(crate) async fn asked_for_room(&self) {
        self.gate.asked(self.number).await;
    }

    /// Starts or continues draining: connections idle for `idle` are closed.
    pub(crate) fn drain(&self, idle: Duration) {
        self.draining.set(true);
        let now = self.clock.coarse();
        self.deadlines.drain(now.checked_sub(idle).unwrap_or(now));
    }

    /// Cuts active requests off, so that they are logged; called repeatedly until no connection is left.
    pub(crate) fn cut(&self) {
        self.cut.set(true);
        self.deadlines.cut();
    }

    /// True if active requests have been cut off.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }
}
