//! Validators, which distinguish the states of a file: entity tag and date (RFC 9110 §8.8).

use haulier_proto::response_head::ResponseHead;
use haulier_proto::{date, etag};
use serde::{Deserialize, Serialize};

/// The validators of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// As written, with its quotes; strong or weak.
    pub etag: Option<String>,
    /// As written.
    pub last_modified: Option<String>,
    /// The date is older than the response, so it is a strong validator (RFC 9110 §8.8.2.2).
    #[serde(default)]
    pub date_is_strong: bool,
}

impl Validators {
    #[must_use]
    pub fn of(head: &ResponseHead) -> Self {
        let text = |name: &str| {
            let value = head.fields().get(name)?;
            std::str::from_utf8(value).ok().map(str::to_owned)
        };
        let seconds = |name: &str| head.fields().get(name).and_then(date::parse);
        let date_is_strong =
            matches!((seconds("last-modified"), seconds("date")), (Some(changed), Some(sent)) if changed < sent);
        Self {
            etag: text("etag").filter(|tag| etag::parse(tag.as_bytes()).is_some()),
            last_modified: text("last-modified").filter(|date| date::parse(date.as_bytes()).is_some()),
            date_is_strong,
        }
    }

    /// The validator for If-Range; `None`: the file cannot be continued.
    #[must_use]
    pub fn if_range(&self) -> Option<&str> {
        let tag = self.etag.as_deref().filter(|tag| !tag.starts_with("W/"));
        tag.or_else(|| self.last_modified.as_deref().filter(|_| self.date_is_strong))
    }

    /// Seconds since 1970 of the last change.
    #[must_use]
    pub fn modified_at(&self) -> Option<u64> {
        self.last_modified
            .as_deref()
            .and_then(|text| date::parse(text.as_bytes()))
    }

    /// True if a 206 that was bound to these is of the same state. It must repeat the entity tag (RFC 9110
    /// §15.3.7); it may leave the date out, but not contradict it.
    #[must_use]
    pub fn agree_with(&self, other: &Self) -> bool {
        let tags_agree = match &self.etag {
            Some(tag) if !tag.starts_with("W/") => other.etag.as_ref() == Some(tag),
            _ => true,
        };
        let dates_agree = match (&self.last_modified, &other.last_modified) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        tags_agree && dates_agree
    }
}

#[cfg(test)]
mod tests {
    use haulier_proto::response_head::ResponseLimits;

    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn validators(lines: &str) -> Validators {
        let mut text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n").into_bytes();
        let head = ResponseHead::parse(&mut text, &ResponseLimits::default());
        Validators::of(&head.expect("good").expect("complete"))
    }

    #[test]
    fn only_a_strong_validator_binds_a_range() {
        assert_eq!(validators("ETag: \"a\"\r\n").if_range(), Some("\"a\""));
        assert_eq!(validators("ETag: W/\"a\"\r\n").if_range(), None);
        assert_eq!(validators("ETag: a\r\n").if_range(), None);
        let dated = |sent: &str| validators(&format!("Last-Modified: {OLD}\r\nDate: {sent}\r\n"));
        assert_eq!(dated(NEW).if_range(), Some(OLD));
        assert_eq!(dated(OLD).if_range(), None);
        assert_eq!(validators(&format!("Last-Modified: {OLD}\r\n")).if_range(), None);
    }

    #[test]
    fn a_part_of_another_state_is_found_out() {
        let first = validators(&format!("ETag: \"a\"\r\nLast-Modified: {OLD}\r\n"));
        assert!(first.agree_with(&validators("ETag: \"a\"\r\n")));
        assert!(!first.agree_with(&validators("ETag: \"b\"\r\n")));
        assert!(!first.agree_with(&validators("ETag: W/\"a\"\r\n")));
        assert!(!first.agree_with(&validators("")));
        assert!(!first.agree_with(&validators(&format!("ETag: \"a\"\r\nLast-Modified: {NEW}\r\n"))));
        let dated = validators(&format!("Last-Modified: {OLD}\r\n"));
        assert!(dated.agree_with(&validators("")));
    }
}
