//! Failures of a start or a reload as diagnostics with advice.

use std::io::{self, ErrorKind};
use std::path::Path;

use haulier_php::StartError;
use haulier_server::{Address, BindError};
use haulier_settings::{Diagnostic, Report};

use crate::assemble::AssembleError;
use crate::error_chain::with_sources;
use crate::port_holder;

/// The diagnostic for parts that cannot be assembled.
pub(super) fn describe(failure: &AssembleError) -> Report {
    let mut report = Report::default();
    report.push(match failure {
        AssembleError::Bind(BindError::Address { address, source }) => cannot_listen(address, source),
        AssembleError::Pool {
            source: StartError::NotAgreed { .. },
            ..
        } => Diagnostic::error("start", with_sources(failure)).help(
            "haulier prepares other accounts while it is root: restart it, or replace it with `haulier run --take-over`",
        ),
        other => Diagnostic::error("start", with_sources(other)),
    });
    report
}

/// The diagnostic for a socket file that cannot be created.
pub(super) fn cannot_bind(path: &Path, error: &io::Error) -> Diagnostic {
    let why = match error.kind() {
        ErrorKind::AddrInUse => "another process uses it".to_owned(),
        _ => error.to_string(),
    };
    Diagnostic::error("bind", format!("cannot make the socket {}: {why}", path.display()))
}

/// The diagnostic for an address that cannot be bound, with advice.
pub(crate) fn cannot_listen(address: &Address, error: &io::Error) -> Diagnostic {
    let failed = |why: &str| Diagnostic::error("bind", format!("cannot listen on {address}: {why}"));
    match error.kind() {
        ErrorKind::AddrInUse => match address.internet().and_then(port_holder::find) {
            Some(holder) => failed(&format!("{holder} listens there")).help("stop it, or choose another port"),
            None => failed("another program listens there").help("stop it, or choose another port"),
        },
        ErrorKind::PermissionDenied if address.internet().is_none() => failed("permission denied"),
        ErrorKind::PermissionDenied => failed("permission denied")
            .help("ports below 1024 need root, or: setcap cap_net_bind_service=+ep /usr/bin/haulier"),
        ErrorKind::AddrNotAvailable => {
            failed("this machine has no such address").help("`ip address` lists those it has")
        }
        ErrorKind::NotFound => {
            failed("there is no such directory").help("make it, or let the unit do it: RuntimeDirectory=")
        }
        _ => failed(&error.to_string()),
    }
}
