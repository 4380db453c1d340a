//! A value for each reason.

use haulier_http::Reason;

/// One value for each reason. Arrays of this length do not implement `Default`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ByReason<T>(pub(super) [T; Reason::ALL.len()]);

impl<T: Default> Default for ByReason<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}
