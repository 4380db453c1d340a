//! Response heads and their framing.

use haulier_proto::content_range::{ContentRange, parse};
use haulier_proto::head::Method;
use haulier_proto::response_head::{ResponseHead, ResponseLimits};

const LIMITS: ResponseLimits = ResponseLimits { head: 2048, fields: 16 };

/// The same head whether it comes at once or in pieces; the body begins right behind it.
pub fn check(data: &[u8]) {
    let whole = read([data]);
    for pieces in super::cuts(data) {
        assert_eq!(read(pieces), whole);
    }
    if let Some(ContentRange::Part { range, total }) = parse(data) {
        assert!(range.start <= range.end && total.is_none_or(|total| range.end < total));
    }
}

/// Status, number of field lines, framing and what followed; or the refusal.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<(u16, usize, String, Vec<u8>)> {
    let (mut buffer, mut found) = (Vec::new(), None::<ResponseHead>);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if found.is_none() {
            found = ResponseHead::parse(&mut buffer, &LIMITS).ok()?;
        }
    }
    let head = found?;
    assert!((100..1000).contains(&head.status()));
    assert!(head.fields().len() <= LIMITS.fields);
    let framing = format!("{:?}", head.body_length(Method::Get));
    Some((head.status(), head.fields().len(), framing, buffer))
}
