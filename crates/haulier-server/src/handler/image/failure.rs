//! Errors of the image service as responses.

use std::sync::Arc;
use std::time::Duration;

use haulier_http::{ImageResult, Reason, Request, Response};
use haulier_image::{Excess, ImageError, OptionError};
use haulier_image_service::ServiceError;
use haulier_store::StoreError;

use super::compat::{self, ZimgError};
use crate::answer::error_page;
use crate::images::Compat;
use crate::site::Site;

/// Delay before a retry, after two workers were killed for lack of memory.
const AFTER_KILLED: Duration = Duration::from_secs(2);

/// A failed request for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageFailure {
    pub(super) status: u16,
    /// Every 5xx has one.
    pub(super) reason: Option<Reason>,
    /// A message that the client may see.
    pub(super) message: Arc<str>,
    /// Delay before a retry; `None` if a retry is pointless.
    pub(super) retry_after: Option<Duration>,
}

impl ImageFailure {
    pub(super) fn new(status: u16, message: impl Into<Arc<str>>) -> Self {
        Self {
            status,
            reason: None,
            message: message.into(),
            retry_after: None,
        }
    }

    /// An error of the server.
    pub(super) fn ours(status: u16, reason: Reason, message: impl Into<Arc<str>>) -> Self {
        Self {
            reason: Some(reason),
            ..Self::new(status, message)
        }
    }

    /// A missing image.
    pub(super) fn missing() -> Self {
        Self::new(404, "there is no such image")
    }
}

impl From<&ServiceError> for ImageFailure {
    fn from(error: &ServiceError) -> Self {
        match error {
            ServiceError::Missing => Self::missing(),
            ServiceError::Damaged => Self::ours(502, Reason::StoreDamaged, error.to_string()),
            ServiceError::Conflict => Self::new(409, error.to_string()),
            ServiceError::Image(error) => Self::from(&**error),
            ServiceError::Store(error) => Self::from(&**error),
            ServiceError::Aborted(_) => Self::ours(500, Reason::ImageWorkerFailed, error.to_string()),
        }
    }
}

impl From<&ImageError> for ImageFailure {
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
            ImageError::Worker(_) => return Self::ours(500, Reason::ImageWorkerFailed, "cannot render the image"),
        };
        Self::new(status, error.to_string())
    }
}

impl From<&StoreError> for ImageFailure {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Full(_) => Self::ours(507, Reason::StoreFull, "there is no room for more images"),
            StoreError::Io(_) => Self::ours(500, Reason::StoreFailed, "cannot read the image"),
            StoreError::Remote(_) | StoreError::NotBuilt | StoreError::Short { .. } => {
                Self::ours(502, Reason::StoreFailed, "the image store failed")
            }
        }
    }
}

impl From<&OptionError> for ImageFailure {
    fn from(error: &OptionError) -> Self {
        Self::new(400, error.to_string())
    }
}

/// The response to an upload or an info request that failed.
pub(super) fn as_json(site: &Site, failure: &ImageFailure) -> Response {
    let code = ZimgError::of(failure);
    let status = failure.status;
    let is_zimg = compat_of(site).is_zimg();
    // zimg answers 200 to every valid request; an error of the server must not look like a success.
    let response = match is_zimg && failure.reason.is_none() {
        true => compat::error(200, code),
        false => compat::error_in_words(status, code, &failure.message),
    };
    with_trace(response, failure)
}

/// The response in place of an image. zimg knows 404 only; an error of the server keeps its status.
pub(super) fn refuse(site: &Arc<Site>, request: &Request, failure: &ImageFailure) -> Response {
    if compat_of(site).is_zimg() && failure.reason.is_none() {
        return match failure.status {
            401 | 403 => compat::forbidden(),
            _ => compat::not_found(),
        };
    }
    let status = failure.status;
    let message = site.settings.development.then_some(&*failure.message);
    let response = error_page::respond(status, failure.reason, Some(site), &request.id, message);
    with_trace(response, failure)
}

fn with_trace(mut response: Response, failure: &ImageFailure) -> Response {
    response.trace.reason = failure.reason;
    response.trace.image = Some(ImageResult::Error);
    if let Some(after) = failure.retry_after {
        let seconds = after.as_secs_f64().ceil().max(1.0);
        response.head.fields_mut().set("Retry-After", format!("{seconds:.0}"));
    }
    response
}

fn compat_of(site: &Site) -> Compat {
    let images = site.settings.images.as_ref();
    images.map_or(Compat::Native, |images| images.settings.compat)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_ended_a_worker_from_outside_is_not_the_images_fault() {
        let failure = ImageFailure::from(&ImageError::Killed("signal 9".to_owned()));
        assert_eq!((failure.status, failure.reason), (503, Some(Reason::ImageWorkerFailed)));
        assert!(failure.retry_after.is_some());
        let failure = ImageFailure::from(&ImageError::Crashed("signal 11".to_owned()));
        assert_eq!(failure.status, 422);
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
            let failure = ImageFailure::from(&error);
            assert_eq!(failure.status, status, "{error}");
            assert_eq!(failure.reason.is_some(), status >= 500, "{error}");
            assert_eq!(failure.retry_after.is_some(), status == 503, "{error}");
            assert_eq!(ServiceError::from(error).is_lasting(), status < 500);
        }
        let rows = [
            (StoreError::Full(io::Error::other("x")), 507),
            (StoreError::Io(io::Error::other("x")), 500),
            (StoreError::Remote("x".into()), 502),
        ];
        for (error, status) in rows {
            let failure = ImageFailure::from(&error);
            assert_eq!((failure.status, failure.reason.is_some()), (status, true), "{error}");
            assert!(!failure.message.contains('x'), "nothing of the inside is told");
        }
    }
}
