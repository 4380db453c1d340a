//! The meaning of a response head for the file, decided without a socket (RFC 9110 §14, §15.3.7, §15.5.17).

use haulier_proto::content_range::{self, ContentRange};
use haulier_proto::response_head::ResponseHead;

use super::error::DownloadError;
use super::validators::Validators;
use crate::retry;

/// The use of a response.
#[derive(Debug, PartialEq, Eq)]
pub enum DownloadPlan {
    /// The body is the whole file.
    Whole,
    /// The body is this part, from `start` up to `end`, which is not included.
    Part { start: u64, end: u64, total: u64 },
    /// 304: the local file is the server's.
    Unchanged,
    /// 416: the file ends after the bytes that are there.
    NothingMore { total: u64 },
}

/// The properties of the request that its response is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Requested<'a> {
    /// The range; its end is exclusive, and absent if the request left it open.
    pub range: Option<(u64, Option<u64>)>,
    /// The state that the range was bound to.
    pub validators: &'a Validators,
    /// The length of the whole, if known.
    pub total: Option<u64>,
}

/// Decides the use of a response. `now` is seconds since 1970, for Retry-After.
///
/// # Errors
/// [`DownloadError::Ranges`] and [`DownloadError::Changed`] if bytes might land in the wrong place;
/// [`DownloadError::Status`] for a response that is no file.
pub fn decide(head: &ResponseHead, requested: &Requested<'_>, now: u64) -> Result<DownloadPlan, DownloadError> {
    match (head.status(), requested.range) {
        (200, _) => Ok(DownloadPlan::Whole),
        (304, None) => Ok(DownloadPlan::Unchanged),
        (206, Some((start, end))) => part(head, requested, start, end),
        (206, None) => Err(DownloadError::Ranges("a part came in place of the whole file")),
        (416, Some((start, _))) => match content_range_of(head) {
            Some(ContentRange::Unsatisfied { total }) if total == start => Ok(DownloadPlan::NothingMore { total }),
            _ => Err(DownloadError::Changed),
        },
        (status, _) => Err(DownloadError::Status {
            status,
            reason: String::from_utf8_lossy(head.reason()).into_owned(),
            retry_after: retry::retry_after(head.fields(), now),
        }),
    }
}

/// Accepts a 206 only if it fits the request in every respect.
fn part(
    head: &ResponseHead,
    requested: &Requested<'_>,
    start: u64,
    end: Option<u64>,
) -> Result<DownloadPlan, DownloadError> {
    let Some(ContentRange::Part { range, total }) = content_range_of(head) else {
        return Err(DownloadError::Ranges("a part without a valid Content-Range"));
    };
    let Some(total) = total.or(requested.total) else {
        return Err(DownloadError::Ranges("a part of a file of unknown length"));
    };
    if requested.total.is_some_and(|known| known != total) {
        return Err(DownloadError::Changed);
    }
    if !requested.validators.agree_with(&Validators::of(head)) {
        return Err(DownloadError::Changed);
    }
    let has = range.end + 1;
    if range.start != start || has > end.unwrap_or(total) || has > total {
        return Err(DownloadError::Ranges("a part that was not requested"));
    }
    if head.fields().contains("content-encoding") && !is_identity(head) {
        return Err(DownloadError::Ranges("a part in a content coding"));
    }
    Ok(DownloadPlan::Part { start, end: has, total })
}

fn is_identity(head: &ResponseHead) -> bool {
    let coding = head.fields().get("content-encoding").unwrap_or_default();
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

fn content_range_of(head: &ResponseHead) -> Option<ContentRange> {
    let mut values = head.fields().get_all("content-range");
    let value = values.next()?;
    // Two lines would be ambiguous.
    values.next().is_none().then(|| content_range::parse(value))?
}

/// True if further connections may request parts of this 200.
#[must_use]
pub fn offers_ranges(head: &ResponseHead) -> bool {
    let mut units = head
        .fields()
        .get_all("accept-ranges")
        .flat_map(haulier_proto::field::tokens);
    units.any(|unit| unit.eq_ignore_ascii_case(b"bytes")) && is_identity(head)
}

#[cfg(test)]
mod tests {
    use haulier_proto::response_head::ResponseLimits;

    use super::*;

    fn head(status: u16, lines: &[&str]) -> ResponseHead {
        let mut text = format!("HTTP/1.1 {status} x\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes();
        ResponseHead::parse(&mut text, &ResponseLimits::default())
            .expect("good")
            .expect("complete")
    }

    /// Bytes 10 to 19 of a file of 100 with the tag "a".
    fn decide_part(status: u16, lines: &[&str]) -> Result<DownloadPlan, DownloadError> {
        let validators = Validators {
            etag: Some("\"a\"".to_owned()),
            ..Validators::default()
        };
        let requested = Requested {
            range: Some((10, Some(20))),
            validators: &validators,
            total: Some(100),
        };
        decide(&head(status, lines), &requested, 0)
    }

    #[test]
    fn the_part_asked_for_is_taken_and_so_is_its_beginning() {
        for (range, end) in [("bytes 10-19/100", 20), ("bytes 10-14/100", 15), ("bytes 10-19/*", 20)] {
            let plan = decide_part(206, &["ETag: \"a\"", &format!("Content-Range: {range}")]);
            let expected = DownloadPlan::Part {
                start: 10,
                end,
                total: 100,
            };
            assert_eq!(plan.expect(range), expected);
        }
    }

    #[test]
    fn any_other_part_is_refused() {
        for range in [
            "bytes 0-9/100",
            "bytes 11-19/100",
            "bytes 10-20/100",
            "bytes 10-9/100",
            "bytes */100",
            "x",
        ] {
            let plan = decide_part(206, &["ETag: \"a\"", &format!("Content-Range: {range}")]);
            assert!(matches!(plan, Err(DownloadError::Ranges(_))), "{range}: {plan:?}");
        }
        let good = "Content-Range: bytes 10-19/100";
        assert!(decide_part(206, &["ETag: \"a\""]).is_err());
        assert!(decide_part(206, &["ETag: \"a\"", good, good]).is_err());
        assert!(decide_part(206, &["ETag: \"a\"", good, "Content-Encoding: gzip"]).is_err());
    }

    #[test]
    fn another_state_of_the_file_is_found_out() {
        for lines in [
            &["ETag: \"b\"", "Content-Range: bytes 10-19/100"][..],
            &["Content-Range: bytes 10-19/100"],
            &["ETag: \"a\"", "Content-Range: bytes 10-19/101"],
        ] {
            assert!(
                matches!(decide_part(206, lines), Err(DownloadError::Changed)),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn a_range_behind_the_end_means_complete_only_if_the_end_is_ours() {
        assert_eq!(
            decide_part(416, &["Content-Range: bytes */10"]).expect("complete"),
            DownloadPlan::NothingMore { total: 10 }
        );
        assert!(decide_part(416, &["Content-Range: bytes */9"]).is_err());
        assert!(decide_part(416, &[]).is_err());
    }

    #[test]
    fn a_status_that_is_no_file_is_reported_with_its_patience() {
        let error = decide_part(503, &["Retry-After: 7"]).expect_err("no file");
        let DownloadError::Status {
            status, retry_after, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((status, retry_after.map(|wait| wait.as_secs())), (503, Some(7)));
        assert!(matches!(decide_part(304, &[]), Err(DownloadError::Status { .. })));
    }
}
