//! FastCGI 1.0 as a web server speaks it: records, PARAMS, and the CGI response head inside STDOUT.
//!
//! `haulier-php` has the sockets and workers. A connection has one request at a time, so every record has
//! [`REQUEST_ID`]: PHP answers FCGI_MPXS_CONNS with 0.

pub mod params;
pub mod record;
pub mod response;

pub use params::{EncodedPairs, PairTooLong, Pairs, PairsError, ParamsWriter};
pub use record::{EndRequest, FilePart, Header, REQUEST_ID, Record, RecordError, RecordReader, RecordType};
pub use response::{CgiHead, CgiRedirect, HeadError, HeadParser};
