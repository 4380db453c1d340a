//! Where the configuration is read: at the start, and again at every reload.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use haulier_settings::{Diagnostic, Report};
use serde_json::Value;

use crate::config::Settings;
use crate::config::effective::Effective;

/// Reads the settings anew; findings go to the report.
type Read = dyn Fn(&mut Report) -> Result<Settings, Diagnostic> + Send + Sync;

/// A way to read the configuration.
pub(crate) struct Source {
    /// The file, as messages call it.
    name: PathBuf,
    read: Box<Read>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A configuration without mistakes.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: Settings,
    /// Every setting with its value, to be compared with those of another time.
    pub(super) effective: Value,
    /// The files it stands in.
    pub(super) files: Vec<PathBuf>,
}

impl Source {
    /// `read` is called whenever the configuration is wanted; `name` is its file.
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

    /// Reads it. Findings go to `report`, also those that are no errors.
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

    /// The files that were read, and the main one even if it is not there.
    pub(super) fn files(&self, report: &Report) -> Vec<PathBuf> {
        let mut files = vec![self.name.clone()];
        files.extend(report.sources.iter().map(|source| source.path.clone()));
        files.dedup();
        files
    }
}

/// The report says why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mistaken;

/// What files look like at one time: whoever writes one changes it.
pub(super) fn state_of(files: &[PathBuf]) -> Vec<Option<(SystemTime, u64)>> {
    let state = |file: &PathBuf| {
        let found = std::fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(state).collect()
}
