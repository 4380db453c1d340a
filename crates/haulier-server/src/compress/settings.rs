//! What `[compress]` says.

use haulier_proto::accept::Coding;

/// How a site compresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressSettings {
    pub level: CompressLevel,
    /// The codings that are used. Which one wins among those a client takes equally follows from size and load.
    pub algorithms: Vec<Coding>,
    /// Bodies shorter than this are sent as they are, bytes.
    pub min_size: u64,
    /// Media types that are coded: `text/html`, `text/*`, `application/*+json`; `None` is the built-in list.
    pub types: Option<Vec<String>>,
    /// Levels that hold whatever the load: zstd 1–19, br 0–11, gzip 1–12, in this order.
    pub explicit: [Option<u8>; 3],
    /// Nothing is coded that sets a cookie and repeats a part of the query: less for BREACH to measure.
    pub no_secrets: bool,
}

impl CompressSettings {
    /// Off: every body is sent as it is.
    #[must_use]
    pub fn off() -> Self {
        Self {
            level: CompressLevel::Off,
            ..Self::default()
        }
    }

    /// Whether anything is coded at all.
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

/// What is dearer, time or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressLevel {
    Off,
    Fast,
    Balanced,
    Small,
}
