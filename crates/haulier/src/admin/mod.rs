//! The state of a running haulier: metrics, health and dashboard on the admin address, `status` on the control socket.
//!
//! All of it runs on the main thread and reads the same counters. The admin address only reads. The control socket, which
//! only its owner can open, passes commands to the main loop.

mod connections;
mod control;
mod find;
mod fpm;
mod history;
mod http;
mod page;
mod place;
mod received;
mod reporter;
mod socket;
pub(crate) mod state;
mod totals;
mod view;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub(crate) use control::{AskError, Client, Command, ControlAnswer, HandedOver, PendingCommand, Reply, Role};
pub(crate) use find::{cannot_ask, find};
pub(crate) use place::place_for;
pub(crate) use reporter::{Identity, Reporter};
pub(crate) use socket::SocketFile;
pub(crate) use view::SiteFacts;

use self::http::Scope;
use crate::config::settings::AdminAddress;

/// Ports tried after the one named, if another one may be used.
const NEXT_PORTS: u16 = 20;

/// The admin address, bound.
#[derive(Debug)]
pub(crate) enum AdminListener {
    Tcp(StdTcpListener, SocketAddr),
    Unix(SocketFile),
}

impl AdminListener {
    /// Binds it; `None` if it is off. With `or_next`, another port is tried if this one is taken.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn bind(address: &AdminAddress, or_next: bool) -> io::Result<Option<Self>> {
        match address {
            AdminAddress::Off => Ok(None),
            AdminAddress::Unix(path) => SocketFile::bind(path).map(|socket| Some(Self::Unix(socket))),
            AdminAddress::Tcp(address) => {
                let listener = if or_next {
                    bind_from(*address)
                } else {
                    StdTcpListener::bind(address)
                }?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                Ok(Some(Self::Tcp(listener, bound)))
            }
        }
    }
}

impl AdminListener {
    /// A socket that is bound already; `None` if it is not bound to this address. Port 0 matches any.
    pub(crate) fn adopt(address: &AdminAddress, socket: OwnedFd) -> Option<Self> {
        match address {
            AdminAddress::Off => None,
            AdminAddress::Unix(path) => SocketFile::adopt(socket)
                .filter(|file| file.path() == path)
                .map(Self::Unix),
            AdminAddress::Tcp(wanted) => {
                let listener = StdTcpListener::from(socket);
                let bound = listener.local_addr().ok()?;
                let fits = bound.ip() == wanted.ip() && [0, bound.port()].contains(&wanted.port());
                listener.set_nonblocking(true).ok()?;
                fits.then_some(Self::Tcp(listener, bound))
            }
        }
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener, _) => listener.try_clone().map(OwnedFd::from),
            Self::Unix(file) => file.socket(),
        }
    }
}

impl std::fmt::Display for AdminListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(_, address) => write!(f, "{address}"),
            Self::Unix(socket) => write!(f, "unix:{}", socket.path().display()),
        }
    }
}

/// The first free port from that of `address` upwards, else any.
fn bind_from(address: SocketAddr) -> io::Result<StdTcpListener> {
    let with_port = |port| SocketAddr::new(address.ip(), port);
    let ports = (0..=NEXT_PORTS).filter_map(|further| address.port().checked_add(further));
    for port in ports {
        match StdTcpListener::bind(with_port(port)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    StdTcpListener::bind(with_port(0))
}

/// The admin listeners. Their socket files go with them.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: Option<AdminListener>,
    probes: Option<AdminListener>,
    control: Option<SocketFile>,
    accepting: Vec<AbortHandle>,
}

impl Admin {
    /// Bound listeners, which do not answer yet.
    pub(crate) fn new(
        listener: Option<AdminListener>,
        probes: Option<AdminListener>,
        control: Option<SocketFile>,
    ) -> Self {
        Self {
            listener,
            probes,
            control,
            accepting: Vec::new(),
        }
    }

    /// The address of metrics and health: `127.0.0.1:4870`.
    pub(crate) fn address(&self) -> Option<String> {
        self.listener.as_ref().map(ToString::to_string)
    }

    /// The address of probes, if it is one of its own.
    pub(crate) fn probes(&self) -> Option<String> {
        self.probes.as_ref().map(ToString::to_string)
    }

    /// The address of metrics and health, if it is one of the network.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        match &self.listener {
            Some(AdminListener::Tcp(_, address)) => Some(*address),
            _ => None,
        }
    }

    /// The path of the control socket.
    pub(crate) fn control_path(&self) -> Option<PathBuf> {
        self.control.as_ref().map(|socket| socket.path().to_owned())
    }

    /// Files of the sockets.
    pub(crate) fn socket_files(&self) -> Vec<PathBuf> {
        let of = |listener: &Option<AdminListener>| match listener {
            Some(AdminListener::Unix(socket)) => Some(socket.path().to_owned()),
            _ => None,
        };
        [of(&self.listener), of(&self.probes), self.control_path()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Answers from now on, on the current runtime; a command that changes something goes to `commands`.
    ///
    /// # Errors
    /// A listener could not be handed to the event loop.
    pub(crate) fn serve(
        &mut self,
        reporter: &Arc<Reporter>,
        commands: &mpsc::Sender<PendingCommand>,
    ) -> io::Result<()> {
        let listeners = [(&self.listener, Scope::Everything), (&self.probes, Scope::Probes)];
        for (listener, scope) in listeners {
            if let Some(listener) = listener {
                let accepting = accept_http(Acceptor::of(listener)?, scope, Arc::clone(reporter));
                self.accepting.push(tokio::spawn(accepting).abort_handle());
            }
        }
        if let Some(control) = &self.control {
            let accepting = accept_control(control.listener()?, Arc::clone(reporter), commands.clone());
            self.accepting.push(tokio::spawn(accepting).abort_handle());
        }
        tokio::spawn(Arc::clone(reporter).keep_samples());
        Ok(())
    }

    /// Copies of the sockets, for another process to answer on.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(Role, OwnedFd)>> {
        let mut sockets = Vec::new();
        if let Some(listener) = &self.listener {
            sockets.push((Role::Admin, listener.socket()?));
        }
        if let Some(probes) = &self.probes {
            sockets.push((Role::Probes, probes.socket()?));
        }
        if let Some(control) = &self.control {
            sockets.push((Role::Control, control.socket()?));
        }
        Ok(sockets)
    }

    /// The process that bound these sockets has left them to us.
    pub(crate) fn claim(&mut self) {
        for listener in [&mut self.listener, &mut self.probes] {
            if let Some(AdminListener::Unix(socket)) = listener {
                socket.claim();
            }
        }
        if let Some(control) = &mut self.control {
            control.claim();
        }
    }

    /// Leaves the sockets to another process. Connections that are open still get their answers.
    pub(crate) fn yield_sockets(&mut self) {
        self.accepting.drain(..).for_each(|accepting| accepting.abort());
        for listener in [self.listener.take(), self.probes.take()] {
            if let Some(AdminListener::Unix(socket)) = listener {
                socket.give_away();
            }
        }
        if let Some(control) = self.control.take() {
            control.give_away();
        }
    }
}

/// A listener in the event loop.
#[derive(Debug)]
enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An accepted connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Acceptor {
    fn of(listener: &AdminListener) -> io::Result<Self> {
        match listener {
            AdminListener::Tcp(listener, _) => TcpListener::from_std(listener.try_clone()?).map(Self::Tcp),
            AdminListener::Unix(socket) => socket.listener().map(Self::Unix),
        }
    }

    fn has_pending(&self) -> bool {
        match self {
            Self::Tcp(listener) => connections::has_pending(listener),
            Self::Unix(listener) => connections::has_pending(listener),
        }
    }

    /// The next connection, and which of our addresses it reached.
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let local = stream.local_addr().ok().map(|address| address.ip().to_canonical());
                Ok((Box::new(stream), local))
            }
            Self::Unix(listener) => Ok((Box::new(listener.accept().await?.0), None)),
        }
    }
}

async fn accept_http(acceptor: Acceptor, scope: Scope, reporter: Arc<Reporter>) {
    let accept = || acceptor.accept();
    let serve = |(stream, local), stage| {
        let reporter = Arc::clone(&reporter);
        async move { http::serve(stream, local, scope, &reporter, &stage).await }
    };
    connections::accept_and_serve(accept, || acceptor.has_pending(), serve).await;
}

async fn accept_control(listener: UnixListener, reporter: Arc<Reporter>, commands: mpsc::Sender<PendingCommand>) {
    let accept = || listener.accept();
    let serve = |(stream, _), stage| {
        let (reporter, commands) = (Arc::clone(&reporter), commands.clone());
        async move { control::serve(stream, &reporter, &commands, &stage).await }
    };
    connections::accept_and_serve(accept, || connections::has_pending(&listener), serve).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_leads_to_the_next_one_only_if_that_is_wanted() {
        let holder = StdTcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = holder.local_addr().expect("bound");
        let wanted = AdminAddress::Tcp(taken);
        let error = AdminListener::bind(&wanted, false).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let other = AdminListener::bind(&wanted, true)
            .expect("another port")
            .expect("not off");
        assert_ne!(other.to_string(), taken.to_string());
        assert!(
            AdminListener::bind(&AdminAddress::Off, true)
                .expect("nothing to bind")
                .is_none()
        );
    }
}
