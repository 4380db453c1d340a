//! Why a request came to nothing: the fixed list behind `reason` in logs, error pages and metrics.

/// Every reason, in alphabetical order.
pub(super) const REASONS: [&str; 41] = [
    "aborted",
    "bad_body",
    "bad_path",
    "bad_request",
    "bad_response",
    "body_spool_full",
    "body_timeout",
    "body_too_large",
    "client_gone",
    "compress_failed",
    "connect_refused",
    "file_error",
    "front_controller_missing",
    "head_timeout",
    "image_queue_full",
    "image_worker_failed",
    "maintenance",
    "no_php",
    "no_site",
    "out_of_descriptors",
    "panic",
    "params_too_long",
    "php_connection",
    "php_crashed",
    "php_error",
    "php_timeout",
    "plain_http",
    "pool_full",
    "pool_stopped",
    "proxy_header",
    "rate_limited",
    "redirect_loop",
    "request_body_lost",
    "send_timeout",
    "send_too_slow",
    "sendfile_denied",
    "server_stopped",
    "spool_failed",
    "store_damaged",
    "store_failed",
    "store_full",
];

/// One of something for each reason. Arrays of that length have no default of their own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ByReason<T>(pub(super) [T; REASONS.len()]);

impl<T: Default> Default for ByReason<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

/// Its place in the list. `None` is a reason that is missing there: a mistake that debug builds stop at.
pub(super) fn index_of(reason: &str) -> Option<usize> {
    let found = REASONS.binary_search(&reason).ok();
    debug_assert!(found.is_some(), "the reason {reason} is missing in the list of reasons");
    found
}

/// Whether a reason is the client's doing, or what the site was told to do: nothing that whoever runs it could mend.
#[must_use]
pub fn is_clients(reason: &str) -> bool {
    matches!(
        reason,
        "bad_body"
            | "bad_path"
            | "bad_request"
            | "body_timeout"
            | "client_gone"
            | "head_timeout"
            | "maintenance"
            | "no_site"
            | "rate_limited"
            | "send_timeout"
            | "send_too_slow"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place() {
        assert!(REASONS.is_sorted_by(|a, b| a < b));
        for (place, reason) in REASONS.iter().enumerate() {
            assert_eq!(index_of(reason), Some(place));
        }
    }
}
