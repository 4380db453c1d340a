//! HTTP/1.1 on the wire: raw bytes over real sockets against a whole server.
//!
//! The files are in the order of RFC 9112, then RFC 9110. "Row" in a test's doc line is a row of the table of attacks
//! in `docs/limits.md`. After each request to be refused the tests send one for `/smuggled.txt`; neither a response to
//! it nor a line in the access log may appear.

mod client;
mod site;

mod answers; // §6.3: responses of applications
mod body_length; // §6
mod chunked; // §7
mod collected; // §6 and §7 again, for an application that needs the body
mod connection; // §9.3, §9.6
mod deadlines;
mod fields; // §5
mod limits;
mod message_format; // RFC 9112 §2
mod pipelining; // §9.3.2
mod request_line; // §3

mod conditional; // §13
mod expect; // §10.1.1
mod host; // RFC 9110 §7.2
mod methods; // §9
mod range; // §14
