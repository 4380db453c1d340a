//! Errors of the service.

use std::sync::Arc;

use haulier_image::{Excess, ImageError};
use haulier_store::StoreError;
use haulier_store::cache::Weigh;

/// An error of the service. Callers that wait for the same computation share one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// The original does not exist.
    #[error("there is no such image")]
    Missing,
    /// The stored bytes do not match the id.
    #[error("the stored image is damaged")]
    Damaged,
    /// An upload has the same id as a different image.
    #[error("another image with this id is there already")]
    Conflict,
    /// The image cannot be read or rendered.
    #[error(transparent)]
    Image(Arc<ImageError>),
    /// The store failed.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// The computation panicked, or its thread ended.
    #[error("the image could not be {0}")]
    Aborted(&'static str),
}

impl ServiceError {
    /// True if the same request will fail again because of the image itself, so the error can be cached.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Image(error) if error.is_of_image())
    }

    /// True if rendering exceeded the deadline.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Image(error) if matches!(**error, ImageError::Deadline { .. }))
    }

    /// True if the original does not allow this variant, but may allow one in another format.
    #[must_use]
    pub fn allows_fallback(&self) -> bool {
        let Self::Image(error) = self else { return false };
        matches!(
            **error,
            ImageError::Animated { .. }
                | ImageError::TooLarge {
                    what: Excess::Output | Excess::Memory | Excess::AvifPixels | Excess::Enlarged,
                    ..
                }
        )
    }
}

impl From<ImageError> for ServiceError {
    fn from(error: ImageError) -> Self {
        Self::Image(Arc::new(error))
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl Weigh for ServiceError {
    fn weight(&self) -> u64 {
        64 + self.to_string().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haulier_image::Format;

    use super::*;

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
            assert_eq!(ServiceError::from(error).allows_fallback(), expected, "{what}");
        }
        let format = Format::Avif;
        assert!(ServiceError::from(ImageError::Animated { format }).allows_fallback());
        assert!(!ServiceError::Missing.allows_fallback());
    }

    #[test]
    fn a_deadline_is_told_from_what_never_works() {
        let limit = Duration::from_secs(5);
        let late = ServiceError::from(ImageError::Deadline { limit });
        assert!(late.is_late() && late.is_lasting());
        let broken = ServiceError::from(ImageError::Malformed("x".into()));
        assert!(!broken.is_late() && broken.is_lasting());
        let killed = ServiceError::from(ImageError::Killed("signal 9".into()));
        assert!(!killed.is_lasting());
    }
}
