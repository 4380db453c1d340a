//! HTTP/2 on one connection (RFC 9113): the driver of the state machine in `haulier_proto::h2`.
//!
//! One read, all frames in it, one write. Requests that need no waiting are answered while the frames are read; every
//! other stream is a task. Bodies leave in turns of at most 64 KiB for each stream. Nothing above the `Exchange` seam
//! knows the protocol of a request.

mod answer;
mod connection;
mod head;
mod requests;
mod sending;
mod stream;
mod tasks;
mod waiting;

use haulier_proto::h2::PREFACE;
use haulier_proto::head::Method;

pub(crate) use connection::start;

/// True if these bytes begin the HTTP/2 preface, as far as they reach.
pub(super) fn begins(input: &[u8]) -> bool {
    let length = input.len().min(PREFACE.len());
    length > 0 && input[..length] == PREFACE[..length]
}

/// True if the bytes look like the preface of another protocol: three words, of which the first is no method and the
/// last no version of HTTP. Only requests that appear to be HTTP get a response in HTTP/1.1 (RFC 9112 §2.2); any other
/// preface ends the connection (RFC 9113 §3.4).
pub(super) fn is_other_preface(input: &[u8]) -> bool {
    let Some(line) = input.split(|&byte| byte == b'\n').next() else {
        return false;
    };
    let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
    let (Some(first), Some(second), Some(last), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return false;
    };
    let is_word = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
    let is_method = str::from_utf8(first).is_ok_and(|name| Method::of(name) != Method::Other);
    let is_target = second.starts_with(b"/");
    let is_version = last.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"));
    [first, second, last].into_iter().all(is_word) && !is_method && !is_target && !is_version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_without_any_of_http_are_another_protocol() {
        for line in ["INVALID CONNECTION PREFACE\r\n\r\n", "HELO a b\n", "PRI * SPDY/3.1\r\n"] {
            assert!(is_other_preface(line.as_bytes()), "{line}");
        }
        for line in [
            "GET /x XTTP/1.1\r\n",
            "G\"T /x y\r\n",
            "BREW /pot HTCPCP/1.0\r\n",
            "PURGE cache http/1.1\r\n",
            "PRI * HTTP/3.0\r\n",
            "INVALID CONNECTION\r\n",
            "INVALID  PREFACE\r\n",
            "AN INVALID CONNECTION PREFACE\r\n",
            "",
        ] {
            assert!(!is_other_preface(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn a_preface_is_known_whole_in_part_and_with_more_behind_it() {
        assert!(begins(PREFACE) && begins(b"PRI * HTTP/2.0\r\n"));
        assert!(begins(&[&PREFACE[..], b"frames"].concat()));
        assert!(!begins(b"") && !begins(b"PRI * HTTP/1.1\r\n") && !begins(b"GET"));
    }
}
