//! Bodies on their way in: a request's, collected; a response's, spooled.

pub(crate) mod request;
pub(crate) mod spool;
