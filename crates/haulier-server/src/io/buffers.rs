//! Buffers that the connections of a thread share.

use std::cell::RefCell;

use haulier_proto::field::Fields;

/// Memory that a connection borrows while it works on a request.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    bytes: RefCell<Vec<Vec<u8>>>,
    fields: RefCell<Vec<Fields>>,
    /// Heads of HTTP/2 requests, which own their bytes.
    heads: RefCell<Vec<Fields>>,
    /// For the frames of one read, and for the responses to them.
    large: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Fits a usual request head, and a response head.
    const CAPACITY: usize = 4096;
    /// Larger buffers are freed.
    const KEEP_CAPACITY: usize = 64 * 1024;
    /// Most buffers kept: as many as a thread works on at once, except in bursts.
    const KEEP: usize = 64;
    /// Least capacity of a large buffer.
    pub(crate) const LARGE: usize = 64 * 1024;
    /// Larger ones are freed.
    const KEEP_LARGE_CAPACITY: usize = 512 * 1024;
    /// An active connection has two.
    const KEEP_LARGE: usize = 4;

    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.bytes
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::CAPACITY))
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.bytes.borrow_mut();
        if kept.len() < Self::KEEP && (1..=Self::KEEP_CAPACITY).contains(&buffer.capacity()) {
            buffer.clear();
            kept.push(buffer);
        }
    }

    pub(crate) fn take_fields(&self) -> Fields {
        self.fields.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back the memory of a request head.
    pub(crate) fn give_fields(&self, mut fields: Fields) {
        self.give(fields.take_buffer());
        let mut kept = self.fields.borrow_mut();
        if kept.len() < Self::KEEP {
            kept.push(fields);
        }
    }

    pub(crate) fn take_head(&self) -> Fields {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back the memory of an HTTP/2 request head.
    pub(crate) fn give_head(&self, mut fields: Fields) {
        let mut kept = self.heads.borrow_mut();
        if kept.len() < Self::KEEP {
            fields.clear();
            kept.push(fields);
        }
    }

    /// An empty buffer of at least [`Buffers::LARGE`].
    pub(crate) fn take_large(&self) -> Vec<u8> {
        self.large
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::LARGE))
    }

    /// Takes back a buffer, whatever its capacity is by now.
    pub(crate) fn give_large(&self, mut buffer: Vec<u8>) {
        let mut kept = self.large.borrow_mut();
        if kept.len() < Self::KEEP_LARGE && (Self::LARGE..=Self::KEEP_LARGE_CAPACITY).contains(&buffer.capacity()) {
            buffer.clear();
            kept.push(buffer);
        } else {
            drop(kept);
            self.give(buffer);
        }
    }
}
