//! From decoded field lines to a response head, or a refusal (RFC 9113 §8.1–§8.3).

use super::hpack::table::ENTRY_OVERHEAD;
use super::request::check_field;
use crate::field::Fields;
use crate::response_head::{ResponseHead, ResponseHeadError, ResponseLimits};

/// Collects the lines of a response's field block.
#[derive(Debug)]
pub(super) struct ResponseLines<'l> {
    limits: &'l ResponseLimits,
    fields: Fields,
    status: Option<u16>,
    /// Names, values and 32 bytes a line.
    size: usize,
    fault: Option<ResponseHeadError>,
}

impl<'l> ResponseLines<'l> {
    pub(super) fn new(limits: &'l ResponseLimits, storage: &mut Fields) -> Self {
        storage.clear();
        Self {
            limits,
            fields: std::mem::take(storage),
            status: None,
            size: 0,
            fault: None,
        }
    }

    /// Takes one line. After the first fault, nothing is stored any more.
    pub(super) fn line(&mut self, name: &[u8], value: &[u8]) {
        self.size = self.size.saturating_add(name.len() + value.len() + ENTRY_OVERHEAD);
        if self.fault.is_none() {
            self.fault = self.take(name, value).err();
        }
    }

    /// The head, once the block is complete.
    pub(super) fn finish(self) -> Result<ResponseHead, ResponseHeadError> {
        match (self.fault, self.status) {
            (Some(fault), _) => Err(fault),
            (None, None) => Err(ResponseHeadError::Malformed("no :status")),
            // RFC 9113 §8.6: HTTP/2 has no upgrade, and so no 101.
            (None, Some(101)) => Err(ResponseHeadError::Malformed("101 in HTTP/2")),
            (None, Some(status)) => Ok(ResponseHead::of_http2(status, self.fields)),
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), ResponseHeadError> {
        if self.size > self.limits.head {
            return Err(ResponseHeadError::TooLarge);
        }
        if let [b':', ..] = name {
            let status = status_of(name, value).filter(|_| self.fields.is_empty());
            let status = status.ok_or(ResponseHeadError::Malformed("bad pseudo-field"))?;
            return match self.status.replace(status) {
                None => Ok(()),
                Some(_) => Err(ResponseHeadError::Malformed(":status twice")),
            };
        }
        if self.fields.len() >= self.limits.fields {
            return Err(ResponseHeadError::TooManyFields);
        }
        check_field(name, value).map_err(|_| ResponseHeadError::Malformed("bad field"))?;
        self.fields.append_lower_case(name, value);
        Ok(())
    }
}

/// The status in a pseudo-field; `None` if that is another field, or has no valid status.
fn status_of(name: &[u8], value: &[u8]) -> Option<u16> {
    let &[hundreds @ b'1'..=b'9', tens, ones] = value else {
        return None;
    };
    let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
    let digit = |byte: u8| u16::from(byte.wrapping_sub(b'0'));
    (name == b":status" && is_number).then(|| digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&str, &str)]) -> Result<ResponseHead, ResponseHeadError> {
        let limits = ResponseLimits { head: 300, fields: 3 };
        let mut taken = ResponseLines::new(&limits, &mut Fields::new());
        for (name, value) in lines {
            taken.line(name.as_bytes(), value.as_bytes());
        }
        taken.finish()
    }

    #[test]
    fn status_and_fields_make_a_head() {
        let head = head(&[(":status", "206"), ("etag", "\"a\""), ("content-length", "7")]).expect("a good head");
        assert_eq!((head.status(), head.fields().len()), (206, 2));
        assert_eq!(head.content_length(), Ok(Some(7)));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for lines in [
            &[("etag", "x")][..],
            &[(":status", "200"), (":status", "200")],
            &[("etag", "x"), (":status", "200")],
            &[(":status", "20")],
            &[(":status", "099")],
            &[(":status", "+20")],
            &[(":status", "2000")],
            &[(":status", "101")],
            &[(":path", "/"), (":status", "200")],
            &[(":status", "200"), ("ETag", "x")],
            &[(":status", "200"), ("a", "b\nc")],
            &[(":status", "200"), ("transfer-encoding", "chunked")],
            &[(":status", "200"), ("connection", "close")],
        ] {
            assert!(matches!(head(lines), Err(ResponseHeadError::Malformed(_))), "{lines:?}");
        }
    }

    #[test]
    fn a_head_has_bounds() {
        let status = (":status", "200");
        let long = "x".repeat(300);
        assert_eq!(head(&[status, ("a", &long)]).err(), Some(ResponseHeadError::TooLarge));
        let many = [status, ("a", ""), ("b", ""), ("c", ""), ("d", "")];
        assert_eq!(head(&many).err(), Some(ResponseHeadError::TooManyFields));
        assert!(head(&many[..4]).is_ok());
    }
}
