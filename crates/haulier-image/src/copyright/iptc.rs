//! By-line and copyright notice of IPTC-IIM 4.2, in the image resources of Photoshop.

use super::{Copyright, decoded, latin1};

/// The resource that holds IPTC.
const IPTC: u16 = 0x0404;
/// Data sets of record 2, the application record.
const BY_LINE: u8 = 80;
const NOTICE: u8 = 116;

pub(super) fn read(resources: &[u8]) -> Copyright {
    let mut found = Copyright::default();
    for records in Resources(resources) {
        let is_utf8 = DataSets(records).any(|(record, number, value)| (record, number, value) == (1, 90, b"\x1b%G"));
        for (record, number, value) in DataSets(records) {
            let text = match (record, number) {
                (2, BY_LINE) => &mut found.artist,
                (2, NOTICE) => &mut found.notice,
                _ => continue,
            };
            let value = if is_utf8 {
                String::from_utf8_lossy(value).into_owned()
            } else if value.is_ascii() {
                latin1(value)
            } else {
                decoded(value)
            };
            // There may be several by-lines; a line break separates them.
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&value);
        }
    }
    found
}

/// The IPTC records among image resources: `8BIM`, number, name padded to even length, length, content.
struct Resources<'a>(&'a [u8]);

impl<'a> Iterator for Resources<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.0.strip_prefix(b"8BIM")?;
            let number = u16::from_be_bytes(*rest.first_chunk()?);
            let name = usize::from(*rest.get(2)?) + 1;
            let rest = rest.get(2 + name.next_multiple_of(2)..)?;
            let length = usize::try_from(u32::from_be_bytes(*rest.first_chunk()?)).ok()?;
            let content = rest.get(4..length.checked_add(4)?)?;
            self.0 = rest.get(4 + length.next_multiple_of(2)..).unwrap_or_default();
            if number == IPTC {
                return Some(content);
            }
        }
    }
}

/// Record, number and value of each data set: a tag marker, both numbers, a length of two bytes.
struct DataSets<'a>(&'a [u8]);

impl<'a> Iterator for DataSets<'a> {
    type Item = (u8, u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [0x1c, record, number, high, low, rest @ ..] = self.0 else {
            return None;
        };
        // A length with the highest bit set is an extended one: such data sets are pictures, and end the search.
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let value = rest.get(..length)?;
        self.0 = &rest[length..];
        Some((*record, *number, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(record: u8, number: u8, value: &[u8]) -> Vec<u8> {
        let length = (value.len() as u16).to_be_bytes();
        [&[0x1c, record, number], &length[..], value].concat()
    }

    fn resource(number: u16, name: &[u8], content: &[u8]) -> Vec<u8> {
        let filler = |length: usize| &[0][..length % 2];
        let length = (content.len() as u32).to_be_bytes();
        [
            b"8BIM",
            &number.to_be_bytes()[..],
            &[name.len() as u8],
            name,
            filler(name.len() + 1),
            &length,
            content,
            filler(content.len()),
        ]
        .concat()
    }

    #[test]
    fn by_lines_and_notice_are_found_behind_other_resources() {
        let records = [
            set(2, 80, b"Zo\xeb"),
            set(2, 5, b"a title"),
            set(2, 116, b"me"),
            set(2, 80, b"Max"),
        ];
        let bytes = [resource(0x03ed, b"odd", b"123"), resource(IPTC, b"", &records.concat())];
        let found = read(&bytes.concat());
        assert_eq!((found.artist.as_str(), found.notice.as_str()), ("Zoë\nMax", "me"));
        let records = [set(1, 90, b"\x1b%G"), set(2, 116, "©".as_bytes())];
        assert_eq!(read(&resource(IPTC, b"", &records.concat())).notice, "©");
    }

    #[test]
    fn anything_cut_short_is_read_as_far_as_it_goes() {
        let bytes = resource(IPTC, b"", &set(2, 80, b"some body"));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Copyright::default(), "{length}");
        }
        assert_eq!(read(&bytes).artist, "some body");
    }
}
