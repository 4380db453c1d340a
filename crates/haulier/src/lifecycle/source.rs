//! The source of the configuration, read at the start and at every reload.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use haulier_settings::{Diagnostic, Report};
use serde_json::Value;

use crate::config::Settings;
use crate::config::effective::Effective;

/// Reads the settings; diagnostics go to the report.
type ReadSettings = dyn Fn(&mut Report) -> Result<Settings, Diagnostic> + Send + Sync;

/// A way to read the configuration.
pub(crate) struct ConfigurationSource {
    /// The file, for messages.
    name: PathBuf,
    read: Box<ReadSettings>,
}

impl fmt::Debug for ConfigurationSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationSource")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A configuration without errors.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    /// Every setting with its value, for comparison with the next configuration.
    pub(super) effective: Value,
    /// The files it was read from.
    pub(super) files: Vec<PathBuf>,
}

impl ConfigurationSource {
    /// A source that `read` reads; `name` is its file.
    pub(crate) fn new(
        name: &Path,
        read: impl Fn(&mut Report) -> Result<Settings, Diagnostic> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            read: Box::new(read),
        }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Reads the configuration. Diagnostics go to `report`, warnings too.
    ///
    /// # Errors
    /// There are errors in the report.
    pub(crate) fn read(&self, report: &mut Report) -> Result<Configuration, Mistaken> {
        let settings = match (self.read)(report) {
            Ok(settings) => settings,
            Err(diagnostic) => {
                report.push(diagnostic);
                return Err(Mistaken);
            }
        };
        if report.errors() > 0 {
            return Err(Mistaken);
        }
        Ok(Configuration {
            effective: Effective::of(report, &settings).to_json(),
            files: self.files(report),
            settings,
        })
    }

    /// The files that were read, and the main one even if it does not exist.
    pub(super) fn files(&self, report: &Report) -> Vec<PathBuf> {
        let mut files = vec![self.name.clone()];
        files.extend(report.sources.iter().map(|source| source.path.clone()));
        files.dedup();
        files
    }
}

/// The configuration has errors, which are in the report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mistaken;

/// The state of files, which changes with every write.
pub(super) fn state_of(files: &[PathBuf]) -> Vec<Option<(SystemTime, u64)>> {
    let state = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(state).collect()
}
