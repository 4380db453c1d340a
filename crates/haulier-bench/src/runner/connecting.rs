//! From a place without a connection to one that stands: TCP or a local socket, the way through a proxy, TLS.

use std::io;

use super::ending::class_of;
use super::{PAUSE, Runner};
use crate::connection::{Interest, Phase};
use crate::job::Protocol;
use crate::transport;

impl Runner<'_> {
    pub(super) fn connect(&mut self, id: usize) {
        let now = self.now;
        let connection = &mut self.connections[id];
        connection.close();
        connection.rewind(now, self.job.protocol);
        connection.began = now;
        connection.used = 0;
        connection.tunnel.clear();
        match transport::open(self.job, self.first + id as u32) {
            Ok(transport) => {
                connection.transport = Some(transport);
                connection.phase = Phase::Connecting;
                if self.tls.is_some() || self.job.tunnel.is_some() {
                    self.watch(id, Interest::ReadWrite);
                } else {
                    // On a short way the connection stands already, and one system call is saved.
                    self.push(id);
                }
            }
            // The queue of a local socket is full; nobody will tell us when it is not.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.later.push_back((now + PAUSE, id)),
            Err(error) => self.fail(id, class_of(&error)),
        }
    }

    pub(super) fn connected(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        if let Err(error) = transport.take_error() {
            self.fail(id, class_of(&error));
            return;
        }
        if self.job.tunnel.is_some() {
            connection.phase = Phase::Tunnel;
            self.push_tunnel(id);
        } else if self.tls.is_some() {
            self.greet(id);
        } else {
            self.push(id);
        }
    }

    pub(super) fn push_tunnel(&mut self, id: usize) {
        let Some(tunnel) = &self.job.tunnel else { return };
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        while connection.offset < tunnel.len() {
            match transport.send(&tunnel.as_bytes()[connection.offset..]) {
                Ok(count) => connection.offset += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
        self.watch(id, Interest::Read);
    }

    /// The answer of the proxy. Behind it the server waits for our greeting: no byte of it can be here.
    pub(super) fn read_tunnel(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        let mut piece = [0; 1024];
        match transport.recv(&mut piece) {
            Ok(0) => return self.fail(id, |failures| &mut failures.refused),
            Ok(count) => connection.tunnel.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.broken(id, &error),
        }
        if !connection.tunnel.ends_with(b"\r\n\r\n") {
            return;
        }
        let is_open = connection.tunnel.starts_with(b"HTTP/1.") && connection.tunnel.get(9) == Some(&b'2');
        if is_open {
            connection.offset = 0;
            self.greet(id);
        } else {
            self.fail(id, |failures| &mut failures.refused);
        }
    }

    pub(super) fn greet(&mut self, id: usize) {
        let Some((config, name)) = &self.tls else {
            return self.push(id);
        };
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        connection.phase = Phase::Handshake;
        match transport.secure(config, name) {
            Ok(()) => self.shake(id),
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    pub(super) fn shake(&mut self, id: usize) {
        let Some(transport) = &mut self.connections[id].transport else {
            return;
        };
        match transport.handshake() {
            Ok(true) if self.job.protocol == Protocol::Http2 && !transport.has_agreed_on_http2() => {
                self.fail(id, |failures| &mut failures.protocol);
            }
            Ok(true) => {
                if id == 0 && self.job.capture {
                    self.captured.tls = transport.tls_words();
                }
                self.push(id);
            }
            Ok(false) => {
                let interest = if transport.has_unsent() {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                self.watch(id, interest);
            }
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    /// The connection stands: its first request is on the way.
    pub(super) fn established(&mut self, id: usize) {
        self.look_at_clock();
        let connection = &mut self.connections[id];
        connection.connect_time = self.now.saturating_sub(connection.began).max(1);
        connection.sent = self.now;
        self.tally.connections_opened += 1;
        self.tally.connect.record(connection.connect_time);
    }
}
