//! Settings of `[compress]`.

use haulier_proto::accept::Coding;

/// Compression of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressSettings {
    pub level: CompressLevel,
    /// The codings in use. Size and load decide between those a client ranks equally.
    pub algorithms: Vec<Coding>,
    /// Shorter bodies are not coded, bytes.
    pub min_size: u64,
    /// Media types to code: `text/html`, `text/*`, `application/*+json`; `None` is the built-in list.
    pub types: Option<Vec<String>>,
    /// Levels used at any load: zstd 1–19, br 0–11, gzip 1–12, in this order.
    pub explicit: [Option<u8>; 3],
    /// Leaves responses uncoded that set a cookie and repeat a value of the query, as a measure against BREACH.
    pub no_secrets: bool,
}

impl CompressSettings {
    /// Settings that code nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            level: CompressLevel::Off,
            ..Self::default()
        }
    }

    /// True if anything is coded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != CompressLevel::Off && !self.algorithms.is_empty()
    }
}

impl Default for CompressSettings {
    fn default() -> Self {
        Self {
            level: CompressLevel::Balanced,
            algorithms: Coding::PLAIN.to_vec(),
            min_size: 256,
            types: None,
            explicit: [None; 3],
            no_secrets: false,
        }
    }
}

/// The balance of time and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressLevel {
    Off,
    Fast,
    Balanced,
    Small,
}
