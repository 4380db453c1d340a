//! The certificates of one site.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::expiry::days;

/// The certificates of one site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateState {
    pub(crate) site: String,
    /// Until the first of them ends, negative afterwards; `None` while there is none.
    pub(crate) left_s: Option<f64>,
}

impl CertificateState {
    /// `ends in 61 days`
    pub(crate) fn in_words(&self) -> String {
        match self.left_s {
            None => "none yet: see the log".to_owned(),
            Some(left) if left < 0.0 => {
                format!("ended {} ago: clients refuse it", days(Duration::from_secs_f64(-left)))
            }
            Some(left) => format!("ends in {}", days(Duration::from_secs_f64(left))),
        }
    }

    /// The certificates of a site, the first of which ends then.
    pub(crate) fn of((site, not_after): (String, Option<SystemTime>)) -> Self {
        let now = SystemTime::now();
        let left = |end: SystemTime| match end.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(over) => -over.duration().as_secs_f64(),
        };
        Self {
            site,
            left_s: not_after.map(left),
        }
    }
}
