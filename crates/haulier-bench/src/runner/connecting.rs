//! Connecting: TCP or a local socket, the tunnel through a proxy, TLS.

use std::io;

use super::Runner;
use super::ending::class_of;
use crate::connection::{ConnectionPhase, Interest};
use crate::job::Protocol;
use crate::transport;

impl Runner<'_> {
    pub(super) fn connect(&mut self, id: usize) {
        let now = self.clock.now;
        let connection = &mut self.connections[id];
        connection.close();
        connection.rewind(now, self.job.protocol);
        connection.opened_at = now;
        connection.used = 0;
        connection.tunnel_head.clear();
        match transport::open(self.job, self.first_connection + id as u32) {
            Ok(transport) => {
                connection.transport = Some(transport);
                connection.phase = ConnectionPhase::Connecting;
                if self.tls.is_some() || self.job.tunnel.is_some() {
                    self.watch(id, Interest::ReadWrite);
                } else {
                    // A local connection is established at once: trying to send saves a system call.
                    self.push(id);
                }
            }
            // The queue of a local socket is full, and no event tells when it has room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.retry_later(id),
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
            connection.phase = ConnectionPhase::Tunnel;
            self.push_tunnel(id);
        } else if self.tls.is_some() {
            self.start_tls(id);
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
        let sent = &mut connection.current.sent_bytes;
        while *sent < tunnel.len() {
            match transport.send(&tunnel.as_bytes()[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
        self.watch(id, Interest::Read);
    }

    /// Reads the answer of the proxy. No byte of the server can follow it before the TLS handshake.
    pub(super) fn read_tunnel(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        let mut piece = [0; 1024];
        match transport.recv(&mut piece) {
            Ok(0) => return self.fail(id, |failures| &mut failures.refused),
            Ok(count) => connection.tunnel_head.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.broken(id, &error),
        }
        let head = &connection.tunnel_head;
        if !head.ends_with(b"\r\n\r\n") {
            return;
        }
        // `HTTP/1.1 200`
        if head.starts_with(b"HTTP/1.") && head.get(9) == Some(&b'2') {
            connection.current.sent_bytes = 0;
            self.start_tls(id);
        } else {
            self.fail(id, |failures| &mut failures.refused);
        }
    }

    fn start_tls(&mut self, id: usize) {
        let Some((config, name)) = &self.tls else {
            return self.push(id);
        };
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        connection.phase = ConnectionPhase::Handshake;
        match transport.secure(config, name) {
            Ok(()) => self.shake_hands(id),
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    pub(super) fn shake_hands(&mut self, id: usize) {
        let Some(transport) = &mut self.connections[id].transport else {
            return;
        };
        match transport.handshake() {
            Ok(true) if self.job.protocol == Protocol::Http2 && !transport.has_agreed_on_http2() => {
                self.fail(id, |failures| &mut failures.protocol);
            }
            Ok(true) => {
                self.measured.note_tls(id, || transport.tls_words());
                self.push(id);
            }
            Ok(false) => self.watch(id, self.connections[id].interest_after_sending()),
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    /// The connection is established, and the first bytes of its request are sent.
    pub(super) fn established(&mut self, id: usize) {
        self.clock.update();
        let now = self.clock.now;
        let connection = &mut self.connections[id];
        let connect_time = now.saturating_sub(connection.opened_at).max(1);
        connection.current.timing.connect_time = connect_time;
        connection.current.timing.sent = now;
        self.measured.tally.connections_opened += 1;
        self.measured.tally.connect.record(connect_time);
    }
}
