//! Session affinity: the value of a cookie selects one of several FastCGI servers.

use haulier_proto::head::RequestHead;

use crate::site::SitePhp;

/// The value of the pool's affinity cookie; `None` if the pool has none, or the client did not send it.
pub(super) fn of<'a>(php: &SitePhp, head: &'a RequestHead) -> Option<&'a [u8]> {
    let name = php.pool.affinity_cookie()?;
    head.fields()
        .get_all("Cookie")
        .find_map(|line| cookie(line, name.as_bytes()))
}

/// The value of a cookie in a Cookie field (RFC 6265 §4.2.1), unless it is empty.
fn cookie<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split(|&byte| byte == b';')
        .filter_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
        .find(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let rows: [(&[u8], Option<&[u8]>); 6] = [
            (b"PHPSESSID=abc", Some(b"abc")),
            (b"a=1; PHPSESSID=abc; b=2", Some(b"abc")),
            (b"a=1;PHPSESSID=a=b ", Some(b"a=b")),
            (b"XPHPSESSID=abc; PHPSESSIDX=d", None),
            (b"PHPSESSID=; PHPSESSID=later", Some(b"later")),
            (b"", None),
        ];
        for (line, expected) in rows {
            assert_eq!(
                cookie(line, b"PHPSESSID"),
                expected,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }
}
