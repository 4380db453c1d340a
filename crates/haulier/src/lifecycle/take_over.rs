//! Replacing a running haulier by another process; the port is never unbound.
//!
//! The new process asks the old one for copies of its sockets (SCM_RIGHTS on the control socket), starts its PHP, serves,
//! and then tells the old one to drain: that one accepts no more connections and ends after its last request.

use std::os::fd::OwnedFd;

use haulier_server::{InheritedSockets, ServerHandle};
use haulier_settings::Diagnostic;

use super::systemd::Passed;
use crate::admin::{self, Admin, AskError, Client, Command, ControlAnswer, HandedOver, Reply, Role};
use crate::config::Settings;
use crate::error_chain::with_sources;

/// Listening sockets that another process bound.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// The sockets of sites.
    pub(super) http: Vec<InheritedSockets>,
    pub(super) admin: Option<OwnedFd>,
    pub(super) probes: Option<OwnedFd>,
    pub(super) control: Option<OwnedFd>,
}

impl Sockets {
    /// The sockets of a service manager. A unit may name them `admin`, `probes`, `control` and `https`; the others are
    /// for sites, and the settings say by address whether they speak TLS.
    pub(super) fn of_manager(passed: Vec<Passed>) -> Self {
        let mut sockets = Self::default();
        for Passed { name, socket } in passed {
            match name.as_str() {
                "admin" => sockets.admin = Some(socket),
                "probes" => sockets.probes = Some(socket),
                "control" => sockets.control = Some(socket),
                _ => match InheritedSockets::new(vec![socket], (name == "https").then_some(true)) {
                    Ok(inherited) => sockets.http.push(inherited),
                    Err(error) => {
                        tracing::warn!(name, %error, "cannot use a descriptor that the service manager passed");
                    }
                },
            }
        }
        sockets
    }

    fn of_predecessor(list: &[HandedOver], sockets: Vec<OwnedFd>) -> Self {
        let mut all = sockets.into_iter();
        let mut mine = Self::default();
        for one in list {
            let mut sockets: Vec<OwnedFd> = all.by_ref().take(one.count).collect();
            match one.role {
                Role::Http | Role::Https => match InheritedSockets::new(sockets, Some(one.role == Role::Https)) {
                    Ok(inherited) => mine.http.push(inherited),
                    Err(error) => tracing::warn!(%error, "cannot use a socket of the previous process"),
                },
                Role::Admin => mine.admin = sockets.pop(),
                Role::Probes => mine.probes = sockets.pop(),
                Role::Control => mine.control = sockets.pop(),
            }
        }
        mine
    }

    /// Logs the sockets that no site uses.
    pub(super) fn warn_of_the_rest(&self) {
        for inherited in &self.http {
            let address = inherited.address.to_string();
            tracing::warn!(
                address,
                "an inherited socket is closed: neither `http` nor `https` in `[server]` names its address"
            );
        }
    }
}

/// The process to replace.
#[derive(Debug)]
pub(super) struct Predecessor {
    client: Client,
}

impl Predecessor {
    /// Finds the process that serves these addresses, and gets copies of its sockets.
    ///
    /// # Errors
    /// No process serves them, several do, or it does not hand its sockets over.
    pub(super) fn ask(settings: &Settings) -> Result<(Self, Sockets), Box<Diagnostic>> {
        let mut client = find(settings)?;
        let (list, sockets) = client.sockets().map_err(|error| Box::new(failed(&error)))?;
        Ok((Self { client }, Sockets::of_predecessor(&list, sockets)))
    }

    /// Tells it to drain.
    ///
    /// # Errors
    /// It does not answer. Then both processes serve.
    pub(super) fn drain(&mut self) -> Result<String, AskError> {
        match self.client.ask(Command::YieldSockets)? {
            ControlAnswer::Done(text) => Ok(text),
            other => Err(self.client.refused(other)),
        }
    }
}

fn find(settings: &Settings) -> Result<Client, Box<Diagnostic>> {
    if let Some(path) = &settings.control {
        return Client::connect(path).map_err(|error| Box::new(failed(&error)));
    }
    let secure = settings.tls.iter().flat_map(|tls| &tls.listen);
    let port = settings
        .server
        .listen
        .iter()
        .chain(secure)
        .find_map(|address| Some(address.internet()?.port()));
    let usual = port.and_then(admin::place_for).map(|path| Client::connect(&path));
    match usual {
        Some(Ok(client)) => Ok(client),
        _ => admin::find(None, "run --take-over").map_err(Box::new),
    }
}

fn failed(error: &AskError) -> Diagnostic {
    Diagnostic::error("take-over", with_sources(error))
        .help("without --take-over haulier starts as the only one")
        .help("the other process must run as this user, or this one as root")
}

/// The answer to [`Command::Sockets`].
pub(super) fn hand_over(server: &ServerHandle, admin: &Admin) -> Reply {
    match copies(server, admin) {
        Ok((list, sockets)) => Reply {
            answer: ControlAnswer::Sockets(list),
            sockets,
        },
        Err(error) => ControlAnswer::Error(format!("the sockets cannot be handed over: {error}")).into(),
    }
}

fn copies(server: &ServerHandle, admin: &Admin) -> std::io::Result<(Vec<HandedOver>, Vec<OwnedFd>)> {
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for InheritedSockets { is_secure, sockets, .. } in server.sockets()? {
        list.push(HandedOver {
            role: if is_secure == Some(true) {
                Role::Https
            } else {
                Role::Http
            },
            count: sockets.len(),
        });
        all.extend(sockets);
    }
    for (role, socket) in admin.sockets()? {
        list.push(HandedOver { role, count: 1 });
        all.push(socket);
    }
    Ok((list, all))
}
