//! All servers of an upstream, and the choice between them.

use std::ops::{Index, IndexMut};

use crate::connection::Connection;
use crate::server::{Pooled, Server, ServerPhase};

/// The servers by number.
#[derive(Debug)]
pub(crate) struct Servers<C> {
    servers: Vec<Server<C>>,
    /// Most connections to each.
    most_open: usize,
}

impl<C: Connection> Servers<C> {
    pub(crate) fn new(number: usize, phase: ServerPhase, most_open: usize) -> Self {
        Self {
            servers: (0..number).map(|_| Server::new(phase)).collect(),
            most_open,
        }
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Server<C>> {
        self.servers.iter()
    }

    /// Leases on all servers.
    pub(crate) fn busy(&self) -> usize {
        self.servers.iter().map(|server| server.busy).sum()
    }

    /// Open connections to all servers.
    pub(crate) fn open(&self) -> usize {
        self.servers.iter().map(Server::open).sum()
    }

    /// True if a server may get requests: it is up, or no server is.
    pub(crate) fn is_usable(&self, server: usize) -> bool {
        !self.servers[server].health.is_down() || self.servers.iter().all(|server| server.health.is_down())
    }

    /// True if a connection to this server can be opened: its process runs and it is usable.
    pub(crate) fn can_open(&self, server: usize) -> bool {
        self.servers[server].phase == ServerPhase::Running && self.is_usable(server)
    }

    /// Number of connections that may still be opened to this server.
    pub(crate) fn room(&self, server: usize) -> usize {
        self.most_open.saturating_sub(self.servers[server].open())
    }

    /// The least busy server that has an idle connection or, with `may_open`, room for a new one. Load by other clients
    /// counts. Only the `wanted` server is considered if one is named.
    pub(crate) fn choose(&self, excluded: &[usize], wanted: Option<usize>, may_open: bool) -> Option<usize> {
        let any_up = self.servers.iter().any(|server| !server.health.is_down());
        let candidates = self.servers.iter().enumerate().filter(|(number, server)| {
            (!server.health.is_down() || !any_up)
                && !excluded.contains(number)
                && wanted.is_none_or(|wanted| wanted == *number)
                && (!server.idle.is_empty()
                    || (may_open && server.phase == ServerPhase::Running && server.open() < self.most_open))
        });
        let least_busy = candidates.min_by_key(|(_, server)| server.busy + server.foreign_load);
        least_busy.map(|(number, _)| number)
    }

    /// Marks the first parked server as starting, for the caller to start it.
    pub(crate) fn unpark(&mut self) -> Option<usize> {
        let number = self
            .servers
            .iter()
            .position(|server| server.phase == ServerPhase::Parked)?;
        self.servers[number].phase = ServerPhase::Starting;
        Some(number)
    }

    pub(crate) fn has_parked(&self) -> bool {
        self.servers.iter().any(|server| server.phase == ServerPhase::Parked)
    }

    /// True if at least one server is known to accept connections.
    pub(crate) fn is_live(&self) -> bool {
        let is_live = |server: &Server<C>| server.phase != ServerPhase::Starting && !server.health.is_down();
        self.servers.iter().any(is_live)
    }

    /// Removes the idle connections that `select` accepts, for the caller to close.
    pub(crate) fn take_idle(&mut self, mut select: impl FnMut(&Pooled<C>) -> bool) -> Vec<Pooled<C>> {
        let mut taken = Vec::new();
        for server in &mut self.servers {
            let (out, stay) = std::mem::take(&mut server.idle).into_iter().partition(&mut select);
            server.idle = stay;
            taken.extend::<Vec<_>>(out);
        }
        taken
    }
}

impl<C> Index<usize> for Servers<C> {
    type Output = Server<C>;

    fn index(&self, server: usize) -> &Server<C> {
        &self.servers[server]
    }
}

impl<C> IndexMut<usize> for Servers<C> {
    fn index_mut(&mut self, server: usize) -> &mut Server<C> {
        &mut self.servers[server]
    }
}
