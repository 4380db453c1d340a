//! A request to PHP.

use std::fmt;

use haulier_http::Presence;
pub use haulier_http::RequestBody as Body;
use haulier_upstream::LeaseRequest;

/// One request, complete before a worker is leased.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Complete PARAMS records from `ParamsWriter`, without the empty one that ends them. CONTENT_LENGTH must be the
    /// length of `body`.
    pub params: &'a [u8],
    /// The request body.
    pub body: Body<'a>,
    /// The request may be repeated if the worker closed the connection before a byte of the response arrived.
    pub idempotent: bool,
    /// Key of requests that go to the same server; `None` goes to any.
    pub affinity: Option<&'a [u8]>,
    /// Presence of the client, checked periodically in the queue and when a worker becomes free after a wait.
    pub client: &'a dyn Fn() -> Presence,
    /// Label of the request for log lines, such as "GET /report"; called only to log.
    pub label: &'a dyn Fn() -> String,
}

impl<'a> Request<'a> {
    /// The part of the request that the queue needs.
    pub(crate) fn lease_request(&self) -> LeaseRequest<'a> {
        LeaseRequest {
            affinity: self.affinity,
            client: self.client,
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("label", &(self.label)())
            .field("params", &self.params.len())
            .field("body", &self.body)
            .field("idempotent", &self.idempotent)
            .finish()
    }
}
