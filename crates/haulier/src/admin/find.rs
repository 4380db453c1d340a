//! The haulier that a command is for.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use haulier_settings::Diagnostic;

use super::control::{AskError, Client};
use super::place::find_running;

/// The haulier that listens on `socket`; without `socket`, the only one that runs here. `command` appears in messages.
///
/// # Errors
/// None runs here, several do, or it belongs to another account.
pub(crate) fn find(socket: Option<&Path>, command: &'static str) -> Result<Client, Diagnostic> {
    match socket {
        Some(path) => Client::connect(path).map_err(|error| cannot_ask(&error, command)),
        None => the_only_one(command),
    }
}

/// Socket files of dead processes do not count.
fn the_only_one(command: &'static str) -> Result<Client, Diagnostic> {
    let mut forbidden = None;
    let mut running: Vec<(PathBuf, Client)> = Vec::new();
    for path in find_running() {
        match Client::connect(&path) {
            Ok(client) => running.push((path, client)),
            Err(AskError::Connect { path, source }) if source.kind() == ErrorKind::PermissionDenied => {
                forbidden = Some(path);
            }
            Err(_) => {}
        }
    }
    match (running.len(), forbidden) {
        (1, _) => Ok(running.remove(0).1),
        (0, Some(path)) => Err(Diagnostic::error(
            command,
            format!("the haulier at {} is another user's", path.display()),
        )
        .help(format!("ask as that user: sudo haulier {command}"))),
        (0, None) => Err(Diagnostic::error(command, "no haulier is running here")
            .help("if its `[server]` sets `control`, name that path: --socket PATH")),
        _ => Err(several(running.iter().map(|(path, _)| path.as_path()), command)),
    }
}

fn several<'p>(paths: impl Iterator<Item = &'p Path>, command: &'static str) -> Diagnostic {
    let diagnostic = Diagnostic::error(command, "more than one haulier is running here");
    paths.fold(diagnostic, |diagnostic, path| {
        diagnostic.help(format!("haulier {command} --socket {}", path.display()))
    })
}

/// The diagnostic for a server that does not answer, with advice.
pub(crate) fn cannot_ask(error: &AskError, command: &'static str) -> Diagnostic {
    let diagnostic = |source: &io::Error| Diagnostic::error(command, format!("{error}: {source}"));
    match error {
        AskError::Connect { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                diagnostic(source).help("no haulier listens there: is it running, is this its `control`?")
            }
            ErrorKind::PermissionDenied => diagnostic(source).help("ask as the user it runs as, or with sudo"),
            _ => diagnostic(source),
        },
        AskError::Lost { source, .. } => diagnostic(source),
        AskError::Refused { .. } => Diagnostic::error(command, error.to_string())
            .help("is it another version? `haulier --version` prints that of this program"),
    }
}
