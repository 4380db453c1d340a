//! Why there is no image, as the client is told.

use haulier_http::Reason;
use std::sync::Arc;
use std::time::Duration;

use haulier_image::{Excess, ImageError, OptionError};
use haulier_store::StoreError;
use haulier_store::cache::Weigh;

/// Until a machine that ended two workers may have memory again.
const AFTER_KILLED: Duration = Duration::from_secs(2);

/// A request for an image that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    /// Out of the list of reasons; every 5xx has one.
    pub(super) reason: Option<Reason>,
    /// For people: it may be shown to the client.
    pub(super) message: Arc<str>,
    /// When it may be worth trying again.
    pub(super) retry_after: Option<Duration>,
    /// The same request fails again: the image itself is at fault.
    pub(super) is_lasting: bool,
    /// It was not done in time.
    pub(super) is_late: bool,
    /// The original does not allow this variant, but may well allow another one of those that would do.
    pub(super) asks_too_much: bool,
}

impl Failure {
    pub(super) fn new(status: u16, message: impl Into<Arc<str>>) -> Self {
        Self {
            status,
            reason: None,
            message: message.into(),
            retry_after: None,
            is_lasting: false,
            is_late: false,
            asks_too_much: false,
        }
    }

    /// Of our own making: `reason` is from the list.
    pub(super) fn ours(status: u16, reason: Reason, message: impl Into<Arc<str>>) -> Self {
        Self {
            reason: Some(reason),
            ..Self::new(status, message)
        }
    }

    /// There is no such image.
    pub(super) fn missing() -> Self {
        Self::new(404, "there is no such image")
    }

    /// The stored image is not what its id says.
    pub(super) fn damaged() -> Self {
        Self::ours(502, Reason::StoreDamaged, "the stored image is damaged")
    }
}

impl Weigh for Failure {
    fn weight(&self) -> u64 {
        64 + self.message.len() as u64
    }
}

impl From<&ImageError> for Failure {
    fn from(error: &ImageError) -> Self {
        let status = match error {
            ImageError::Unknown | ImageError::Unsupported { .. } | ImageError::Animated { .. } => 415,
            ImageError::TooLarge {
                what: Excess::Bytes, ..
            } => 413,
            ImageError::TooLarge { .. }
            | ImageError::Malformed(_)
            | ImageError::Crashed(_)
            | ImageError::Deadline { .. } => 422,
            ImageError::Outside { .. } => 400,
            ImageError::Busy { retry_after } => {
                return Self {
                    retry_after: Some(*retry_after),
                    ..Self::ours(503, Reason::ImageQueueFull, error.to_string())
                };
            }
            ImageError::Killed(_) => {
                return Self {
                    retry_after: Some(AFTER_KILLED),
                    ..Self::ours(503, Reason::ImageWorkerFailed, error.to_string())
                };
            }
            ImageError::Worker(_) => return Self::ours(500, Reason::ImageWorkerFailed, "the image could not be made"),
        };
        Self {
            is_lasting: error.is_of_image(),
            is_late: matches!(error, ImageError::Deadline { .. }),
            asks_too_much: matches!(
                error,
                ImageError::Animated { .. }
                    | ImageError::TooLarge {
                        what: Excess::Output | Excess::Memory | Excess::AvifPixels | Excess::Enlarged,
                        ..
                    }
            ),
            ..Self::new(status, error.to_string())
        }
    }
}

impl From<&StoreError> for Failure {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Full(_) => Self::ours(507, Reason::StoreFull, "there is no room for more images"),
            StoreError::Io(_) => Self::ours(500, Reason::StoreFailed, "the image cannot be read"),
            StoreError::Remote(_) | StoreError::NotBuilt | StoreError::Short { .. } => Self::ours(
                502,
                Reason::StoreFailed,
                "the store of the images does not answer as it should",
            ),
        }
    }
}

impl From<&OptionError> for Failure {
    fn from(error: &OptionError) -> Self {
        Self::new(400, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use haulier_image::Format;

    use super::*;

    #[test]
    fn what_ended_a_worker_from_outside_is_not_the_images_fault() {
        let failure = Failure::from(&ImageError::Killed("signal 9".to_owned()));
        assert_eq!((failure.status, failure.reason), (503, Some(Reason::ImageWorkerFailed)));
        assert!(failure.retry_after.is_some() && !failure.is_lasting);
        let failure = Failure::from(&ImageError::Crashed("signal 11".to_owned()));
        assert_eq!((failure.status, failure.is_lasting), (422, true));
    }

    #[test]
    fn another_variant_helps_where_the_answer_was_too_large_or_stood_still() {
        for (what, expected) in [
            (Excess::Output, true),
            (Excess::Memory, true),
            (Excess::AvifPixels, true),
            (Excess::Enlarged, true),
            (Excess::Side, false),
            (Excess::Bytes, false),
        ] {
            let error = ImageError::TooLarge {
                what,
                found: 2,
                limit: 1,
            };
            assert_eq!(Failure::from(&error).asks_too_much, expected, "{error}");
        }
        let format = Format::Avif;
        assert!(Failure::from(&ImageError::Animated { format }).asks_too_much);
        assert!(!Failure::missing().asks_too_much);
    }

    #[test]
    fn a_deadline_is_told_from_what_never_works() {
        let limit = Duration::from_secs(5);
        let late = Failure::from(&ImageError::Deadline { limit });
        assert!(late.is_late && late.is_lasting);
        let broken = Failure::from(&ImageError::Malformed("x".into()));
        assert!(!broken.is_late && broken.is_lasting);
    }

    #[test]
    fn every_cause_has_its_status_and_every_5xx_its_reason() {
        let too_large = |what| ImageError::TooLarge {
            what,
            found: 2,
            limit: 1,
        };
        let rows = [
            (ImageError::Unknown, 415),
            (too_large(Excess::Bytes), 413),
            (too_large(Excess::Pixels), 422),
            (ImageError::Malformed("x".into()), 422),
            (ImageError::Outside { width: 1, height: 1 }, 400),
            (
                ImageError::Busy {
                    retry_after: Duration::from_secs(2),
                },
                503,
            ),
            (ImageError::Worker(io::Error::other("x")), 500),
        ];
        for (error, status) in rows {
            let failure = Failure::from(&error);
            assert_eq!(failure.status, status, "{error}");
            assert_eq!(failure.reason.is_some(), status >= 500, "{error}");
            assert_eq!(failure.retry_after.is_some(), status == 503, "{error}");
            assert_eq!(failure.is_lasting, status < 500, "{error}");
        }
        let rows = [
            (StoreError::Full(io::Error::other("x")), 507),
            (StoreError::Io(io::Error::other("x")), 500),
            (StoreError::Remote("x".into()), 502),
        ];
        for (error, status) in rows {
            let failure = Failure::from(&error);
            assert_eq!((failure.status, failure.reason.is_some()), (status, true), "{error}");
            assert!(!failure.message.contains('x'), "nothing of the inside is told");
        }
    }
}
