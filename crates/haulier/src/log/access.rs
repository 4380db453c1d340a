//! Opens the access logs: one writer for each file, however many sites write to it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use haulier_php::User;
use haulier_server::access_log::{AccessLog, LogFormat, LoggedRequests};

use super::file::{LogFile, Reopen};
use super::line::LineFormat;
use super::settings::{Access, Format, LogSettings, SiteLog};

/// A log file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the log file {}", path.display())]
pub(crate) struct LogFileError {
    path: PathBuf,
    source: io::Error,
}

/// The access logs of one server.
#[derive(Debug)]
pub(crate) struct AccessLogs {
    /// The format of lines on standard error.
    line_format: LineFormat,
    /// True if nothing is written to standard error.
    quiet: bool,
    reopen: Reopen,
    owner: Option<User>,
    standard_error: Option<AccessLog>,
    files: HashMap<PathBuf, AccessLog>,
}

impl AccessLogs {
    /// Access logs whose files belong to `owner`, and are opened anew when `reopen` asks for it.
    pub(crate) fn new(line_format: LineFormat, quiet: bool, reopen: Reopen, owner: Option<User>) -> Self {
        Self {
            line_format,
            quiet,
            reopen,
            owner,
            standard_error: None,
            files: HashMap::new(),
        }
    }

    /// The log of the server.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn of_server(&mut self, settings: &LogSettings) -> Result<AccessLog, LogFileError> {
        self.open(settings.access, settings.format, settings.file.as_deref())
    }

    /// The log of a site with settings of its own; the server's apply where it has none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn of_site(&mut self, server: &LogSettings, site: &SiteLog) -> Result<Option<AccessLog>, LogFileError> {
        if site.is_empty() {
            return Ok(None);
        }
        let access = site.access.unwrap_or(server.access);
        let format = site.format.unwrap_or(server.format);
        let file = site.file.as_deref().or(server.file.as_deref());
        self.open(access, format, file).map(Some)
    }

    fn open(&mut self, access: Access, format: Format, file: Option<&Path>) -> Result<AccessLog, LogFileError> {
        let which = match access {
            Access::On => LoggedRequests::All,
            Access::Errors => LoggedRequests::Errors,
            Access::Off => return Ok(AccessLog::off()),
        };
        match file {
            Some(path) => {
                let failed = |source| LogFileError {
                    path: path.to_owned(),
                    source,
                };
                let form = form(format, LineFormat::Json);
                Ok(self.writer_of(path).map_err(failed)?.with(form, which))
            }
            None if self.quiet => Ok(AccessLog::off()),
            None => {
                let form = form(format, self.line_format);
                let failed = |source| LogFileError {
                    path: "/dev/stderr".into(),
                    source,
                };
                Ok(self.writer_of_standard_error().map_err(failed)?.with(form, which))
            }
        }
    }

    fn writer_of(&mut self, path: &Path) -> io::Result<&AccessLog> {
        if !self.files.contains_key(path) {
            let file = LogFile::open(path, self.reopen.clone(), self.owner.as_ref())?;
            let log = AccessLog::new(LogFormat::Json, LoggedRequests::All, Box::new(file))?;
            self.files.insert(path.to_owned(), log);
        }
        Ok(&self.files[path])
    }

    fn writer_of_standard_error(&mut self) -> io::Result<&AccessLog> {
        let log = match self.standard_error.take() {
            Some(log) => log,
            None => AccessLog::new(LogFormat::Json, LoggedRequests::All, Box::new(io::stderr()))?,
        };
        Ok(self.standard_error.insert(log))
    }
}

/// The format; `auto` depends on the destination.
fn form(format: Format, of_place: LineFormat) -> LogFormat {
    let color = matches!(of_place, LineFormat::Text { color: true });
    match (format, of_place) {
        (Format::Text, _) | (Format::Auto, LineFormat::Text { .. }) => LogFormat::Text { color },
        (Format::Json, _) | (Format::Auto, LineFormat::Json) => LogFormat::Json,
        (Format::Combined, _) => LogFormat::Combined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_with_one_file_have_one_writer() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut logs = AccessLogs::new(LineFormat::Json, false, Reopen::default(), None);
        let server = LogSettings::default();
        let site = |name: &str, format| SiteLog {
            format,
            access: None,
            file: Some(folder.path().join(name)),
        };
        logs.of_site(&server, &site("a", None)).expect("the folder is ours");
        logs.of_site(&server, &site("a", Some(Format::Combined)))
            .expect("the folder is ours");
        logs.of_site(&server, &site("b", None)).expect("the folder is ours");
        assert_eq!(logs.files.len(), 2);
        let silent = logs.of_site(&server, &SiteLog::default()).expect("nothing to open");
        assert!(silent.is_none());
        let missing = site("no/such/folder", None);
        assert!(logs.of_site(&server, &missing).is_err());
    }

    #[test]
    fn auto_is_json_wherever_no_terminal_is() {
        let terminal = LineFormat::Text { color: true };
        assert_eq!(form(Format::Auto, terminal), LogFormat::Text { color: true });
        assert_eq!(form(Format::Auto, LineFormat::Json), LogFormat::Json);
        assert_eq!(form(Format::Text, LineFormat::Json), LogFormat::Text { color: false });
        assert_eq!(form(Format::Combined, terminal), LogFormat::Combined);
    }
}
