//! HTTP/2 on one connection (RFC 9113): the driver of the state machine in `haulier_proto::h2`.
//!
//! One read, all frames in it, one write. What a handler can answer at once is answered while the frames are read;
//! every other stream is a task of its own. Bodies leave in turns of at most 64 KiB a stream. Nothing above the
//! `Exchange` seam knows which protocol carries a request.

mod answer;
mod connection;
mod head;
mod requests;
mod sending;
mod stream;
mod tasks;
mod waiting;

use haulier_proto::h2::PREFACE;

pub(crate) use connection::start;

/// Whether a connection that begins with these bytes speaks HTTP/2, as far as they say.
pub(super) fn begins(input: &[u8]) -> bool {
    let length = input.len().min(PREFACE.len());
    length > 0 && input[..length] == PREFACE[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_is_known_whole_in_part_and_with_more_behind_it() {
        assert!(begins(PREFACE) && begins(b"PRI * HTTP/2.0\r\n"));
        assert!(begins(&[&PREFACE[..], b"frames"].concat()));
        assert!(!begins(b"") && !begins(b"PRI * HTTP/1.1\r\n") && !begins(b"GET"));
    }
}
