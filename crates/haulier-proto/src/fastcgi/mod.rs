//! FastCGI 1.0 as a web server speaks it: records, PARAMS, and the CGI response head inside STDOUT.
//!
//! Bytes in, bytes out; sockets and workers are `haulier-php`'s. One request a connection at a time, so every record
//! carries [`REQUEST_ID`]: PHP answers FCGI_MPXS_CONNS with 0.

pub mod params;
pub mod record;
pub mod response;

pub use params::{EncodedPairs, PairTooLong, Pairs, PairsError, ParamsWriter};
pub use record::{EndRequest, Header, Record, RecordError, RecordReader, RecordType};
pub use response::{CgiHead, HeadError, HeadParser, Redirect};

/// The only request id in use.
pub const REQUEST_ID: u16 = 1;
