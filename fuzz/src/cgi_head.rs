//! CGI response heads.

use haulier_proto::fastcgi::{CgiHead, HeadError, HeadParser};
use haulier_proto::field::is_name;

const LIMIT: usize = 2048;

/// The same blocks and the same body whatever the pieces; nothing in a field ends a line of the response.
pub fn check(data: &[u8]) {
    let whole = read([data]);
    for pieces in super::cuts(data) {
        assert_eq!(read(pieces), whole);
    }
    assert_eq!(read(data.chunks(1)), whole, "byte by byte");
    let Ok((heads, body)) = whole else { return };
    assert!(data.ends_with(&body));
    for head in &heads {
        assert!((100..1000).contains(&head.status()));
        for (name, value) in head.fields() {
            assert!(is_name(name) && !name.eq_ignore_ascii_case(b"status"));
            assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        }
        head.redirect();
    }
    assert!(
        heads.iter().rev().skip(1).all(CgiHead::is_interim),
        "the final head ends it"
    );
}

/// All blocks, and what follows the final one.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<CgiHead>, Vec<u8>), HeadError> {
    let (mut parser, mut heads, mut body) = (HeadParser::new(LIMIT), Vec::<CgiHead>::new(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            if heads.last().is_some_and(|head| !head.is_interim()) {
                body.extend_from_slice(piece);
                break;
            }
            heads.extend(parser.feed(&mut piece)?);
        }
    }
    Ok((heads, body))
}
