//! From decoded field lines to a request head, or a refusal (RFC 9113 §8.1–§8.3).
//!
//! A name or value that HTTP/1 text or CGI variables could not carry unchanged is refused here, so that no later module
//! needs to know the protocol of a request.

use super::hpack::encode::is_connection_specific;
use super::hpack::table::ENTRY_OVERHEAD;
use super::limits::Limits;
use crate::field::{BufferRange, Fields, is_token_byte, is_value};
use crate::head::{HeadError, PseudoFields, RequestHead};

/// Collects the lines of a request's field block.
#[derive(Debug)]
pub(super) struct RequestLines<'l> {
    limits: &'l Limits,
    fields: Fields,
    pseudo: PseudoFields,
    /// The pieces of the cookie (RFC 9113 §8.2.3).
    cookie: Cookie,
    /// Lines, pieces of the cookie one by one.
    count: u32,
    /// Names, values and 32 bytes a line.
    size: usize,
    fault: Option<HeadError>,
}

#[derive(Debug)]
enum Cookie {
    None,
    /// Stored already, as for most requests.
    One(BufferRange),
    Pieces(Vec<u8>),
}

impl<'l> RequestLines<'l> {
    pub(super) fn new(limits: &'l Limits, storage: &mut Fields) -> Self {
        storage.clear();
        Self {
            limits,
            fields: std::mem::take(storage),
            pseudo: PseudoFields::default(),
            cookie: Cookie::None,
            count: 0,
            size: 0,
            fault: None,
        }
    }

    /// Takes one line. After the first fault, nothing is stored any more.
    pub(super) fn line(&mut self, name: &[u8], value: &[u8]) {
        self.count += 1;
        self.size = self.size.saturating_add(name.len() + value.len() + ENTRY_OVERHEAD);
        if self.fault.is_none()
            && let Err(fault) = self.take(name, value)
        {
            self.fault = Some(fault);
        }
    }

    /// The size of the list as RFC 9113 §6.5.2 counts it, at most the limit.
    pub(super) fn size(&self) -> u32 {
        self.size.min(self.limits.header_list as usize) as u32
    }

    /// The head, once the block is complete; to be called once.
    pub(super) fn finish(&mut self) -> Result<RequestHead, HeadError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if let Some(value) = match &self.cookie {
            Cookie::None => None,
            Cookie::One(value) => Some(*value),
            Cookie::Pieces(whole) => Some(self.fields.store(whole)),
        } {
            let name = self.fields.store(b"cookie");
            self.fields.push_stored(name, value);
        }
        RequestHead::from_pseudo(&self.pseudo, &mut self.fields)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        if self.size > self.limits.header_list as usize {
            return Err(HeadError::TooLarge);
        }
        if let [b':', ..] = name {
            return self.pseudo(name, value);
        }
        // Pseudo-fields do not count: there are few, as a repeated one is a fault.
        if self.count > self.limits.fields.saturating_add(4) {
            return Err(HeadError::TooManyFields);
        }
        check_field(name, value)?;
        if name == b"cookie" {
            self.cookie(value);
        } else {
            self.fields.append_lower_case(name, value);
        }
        Ok(())
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        if !self.fields.is_empty() || !matches!(self.cookie, Cookie::None) {
            return Err(HeadError::Malformed("pseudo-field after a field"));
        }
        if !is_value(value) {
            return Err(HeadError::Malformed("bad value of a pseudo-field"));
        }
        let place = match name {
            b":method" => &mut self.pseudo.method,
            b":scheme" => &mut self.pseudo.scheme,
            b":authority" => &mut self.pseudo.authority,
            b":path" if value.len() > self.limits.path as usize => return Err(HeadError::LineTooLong),
            b":path" => &mut self.pseudo.path,
            _ => return Err(HeadError::Malformed("unknown pseudo-field")),
        };
        if place.replace(self.fields.store(value)).is_some() {
            return Err(HeadError::Malformed("pseudo-field twice"));
        }
        Ok(())
    }

    fn cookie(&mut self, value: &[u8]) {
        match &mut self.cookie {
            Cookie::None => self.cookie = Cookie::One(self.fields.store(value)),
            Cookie::One(first) => {
                let pieces = [first.of(self.fields.buffer()), b"; ", value].concat();
                self.cookie = Cookie::Pieces(pieces);
            }
            Cookie::Pieces(pieces) => {
                pieces.extend_from_slice(b"; ");
                pieces.extend_from_slice(value);
            }
        }
    }
}

/// Checks the rules for every field in HTTP/2 (RFC 9113 §8.2.1, §8.2.2).
pub(super) fn check_field(name: &[u8], value: &[u8]) -> Result<(), HeadError> {
    if !is_lower_case_name(name) {
        return Err(HeadError::Malformed("bad field name"));
    }
    if !is_value(value) || value.first().is_some_and(is_blank) || value.last().is_some_and(is_blank) {
        return Err(HeadError::Malformed("bad field value"));
    }
    if is_connection_specific(name) || (name == b"te" && !value.eq_ignore_ascii_case(b"trailers")) {
        return Err(HeadError::Malformed("field that concerns a connection"));
    }
    Ok(())
}

/// Checks the trailers of a request, line by line. They are dropped: a trailer must not pass for a field of the head.
#[derive(Debug)]
pub(super) struct TrailerLines {
    /// The size that may still come, as RFC 9113 §6.5.2 counts it. A reference of one byte may stand for a long line,
    /// and checking that costs time: it ends with this.
    room: usize,
    fault: bool,
}

impl TrailerLines {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            room: limits.header_list as usize,
            fault: false,
        }
    }

    pub(super) fn line(&mut self, name: &[u8], value: &[u8]) {
        match self.room.checked_sub(name.len() + value.len() + ENTRY_OVERHEAD) {
            Some(room) if !self.fault => {
                self.room = room;
                self.fault = check_field(name, value).is_err();
            }
            _ => self.fault = true,
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        !self.fault
    }
}

/// Tokens of RFC 9110 §5.6.2 without the capital letters.
const LOWER_CASE_NAME: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = is_token_byte(byte as u8) && !(byte as u8).is_ascii_uppercase();
        byte += 1;
    }
    allowed
};

fn is_lower_case_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| LOWER_CASE_NAME[usize::from(byte)])
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests;
