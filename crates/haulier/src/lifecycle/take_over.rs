//! One haulier in the place of another, without a moment in which nobody listens.
//!
//! The new one asks the old one for copies of its sockets (SCM_RIGHTS on the control socket), starts its PHP, serves,
//! and then has the old one give way: that one accepts no more and ends after what it has begun.

use std::os::fd::OwnedFd;

use haulier_server::{Inherited, ServerHandle};
use haulier_settings::Diagnostic;

use super::systemd::Passed;
use crate::admin::{self, Admin, Answer, AskError, Client, Command, HandedOver, Reply, Role};
use crate::config::Settings;

/// Listening sockets that others have bound for us.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// Of sites.
    pub(super) http: Vec<Inherited>,
    pub(super) admin: Option<OwnedFd>,
    pub(super) probes: Option<OwnedFd>,
    pub(super) control: Option<OwnedFd>,
}

impl Sockets {
    /// Those of a service manager. A unit may call them `admin`, `probes`, `control` and `https`; all others are for
    /// sites, with TLS or without as their address says.
    pub(super) fn of_manager(passed: Vec<Passed>) -> Self {
        let mut sockets = Self::default();
        for Passed { name, socket } in passed {
            match name.as_str() {
                "admin" => sockets.admin = Some(socket),
                "probes" => sockets.probes = Some(socket),
                "control" => sockets.control = Some(socket),
                _ => match Inherited::new(vec![socket], (name == "https").then_some(true)) {
                    Ok(inherited) => sockets.http.push(inherited),
                    Err(error) => {
                        tracing::warn!(name, %error, "a descriptor that was passed to us is of no use");
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
                Role::Http | Role::Https => match Inherited::new(sockets, Some(one.role == Role::Https)) {
                    Ok(inherited) => mine.http.push(inherited),
                    Err(error) => tracing::warn!(%error, "a socket of the other haulier is of no use"),
                },
                Role::Admin => mine.admin = sockets.pop(),
                Role::Probes => mine.probes = sockets.pop(),
                Role::Control => mine.control = sockets.pop(),
            }
        }
        mine
    }

    /// Says which sockets of sites nobody asked for.
    pub(super) fn warn_of_the_rest(&self) {
        for inherited in &self.http {
            let address = inherited.address.to_string();
            tracing::warn!(
                address,
                "a socket that was passed to us is closed: neither `http` nor `https` in `[server]` names its address"
            );
        }
    }
}

/// The haulier whose place we take.
#[derive(Debug)]
pub(super) struct Predecessor {
    client: Client,
}

impl Predecessor {
    /// Finds the one that serves what `settings` ask for, and gets copies of its sockets.
    ///
    /// # Errors
    /// There is none, there are several, or it does not hand them over.
    pub(super) fn ask(settings: &Settings) -> Result<(Self, Sockets), Box<Diagnostic>> {
        let mut client = find(settings)?;
        let (list, sockets) = client.sockets().map_err(|error| Box::new(failed(&error)))?;
        Ok((Self { client }, Sockets::of_predecessor(&list, sockets)))
    }

    /// We serve: it is to end.
    ///
    /// # Errors
    /// It does not answer; then both serve.
    pub(super) fn relieve(&mut self) -> Result<String, AskError> {
        match self.client.ask(Command::GiveWay)? {
            Answer::Done(text) => Ok(text),
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
    Diagnostic::error("take-over", super::failure::with_sources(error))
        .help("without --take-over haulier starts beside nobody")
        .help("the other one must run as this user, or this one as root")
}

/// The answer to [`Command::Sockets`].
pub(super) fn hand_over(server: &ServerHandle, admin: &Admin) -> Reply {
    match copies(server, admin) {
        Ok((list, sockets)) => Reply {
            answer: Answer::Sockets(list),
            sockets,
        },
        Err(error) => Answer::Error(format!("the sockets cannot be handed over: {error}")).into(),
    }
}

fn copies(server: &ServerHandle, admin: &Admin) -> std::io::Result<(Vec<HandedOver>, Vec<OwnedFd>)> {
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for Inherited { is_secure, sockets, .. } in server.sockets()? {
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
