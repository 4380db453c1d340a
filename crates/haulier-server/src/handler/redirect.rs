//! Sending the client elsewhere: `redirects` of a site, and the slash a directory wants.
//!
//! A Location we make never begins with `//`, which would name another host (RFC 3986 §4.2), and holds nothing that
//! could end its line.

use haulier_proto::path;

use crate::response::{Handler, Response};
use crate::route::Site;

/// The redirect of the first rule that names this path. The query goes along.
pub(crate) fn find(site: &Site, path: &[u8], query: Option<&[u8]>) -> Option<Response> {
    site.settings.redirects.iter().find_map(|rule| {
        let captured = rule.from.first_star(path)?;
        Some(to(rule.status, with_query(target(&rule.to, captured), query)))
    })
}

/// The same path with a slash behind it. 308 keeps method and body (RFC 9110 §15.4.9).
pub(crate) fn add_slash(path: &[u8], query: Option<&[u8]>) -> Response {
    let mut location = Vec::with_capacity(path.len() + 16);
    path::encode(path, &mut location);
    location.push(b'/');
    to(308, with_query(location, query))
}

/// The same path on another host; `origin` is its scheme, name and port. 308 keeps method and body.
pub(crate) fn to_origin(mut origin: Vec<u8>, raw_path: &[u8], query: Option<&[u8]>) -> Response {
    if !raw_path.starts_with(b"/") {
        origin.push(b'/');
    }
    append_checked(&mut origin, raw_path);
    to(308, with_query(origin, query))
}

fn to(status: u16, location: Vec<u8>) -> Response {
    Response::new(status, Handler::Redirect).with("Location", location)
}

/// Where a rule leads, with `captured` in place of its `*`.
pub(crate) fn target(to: &str, captured: &[u8]) -> Vec<u8> {
    let mut location = Vec::with_capacity(to.len() + captured.len());
    let Some((before, after)) = to.split_once('*') else {
        append_checked(&mut location, to.as_bytes());
        return location;
    };
    append_checked(&mut location, before.as_bytes());
    if ends_in_authority(before) && captured.first() != Some(&b'/') {
        // `https://example.com*` must not become `https://example.com.evil.example`.
        location.push(b'/');
    }
    let mut rest = captured;
    while location.ends_with(b"/") && rest.first() == Some(&b'/') {
        rest = &rest[1..];
    }
    let start = location.len();
    path::encode(rest, &mut location);
    if before.contains('?') {
        keep_in_one_parameter(&mut location, start);
    }
    append_checked(&mut location, after.as_bytes());
    location
}

/// What may stand in a path may still end a parameter of a query.
fn keep_in_one_parameter(location: &mut Vec<u8>, start: usize) {
    let captured = location.split_off(start);
    for byte in captured {
        match byte {
            b'&' => location.extend(b"%26"),
            b'+' => location.extend(b"%2B"),
            byte => location.push(byte),
        }
    }
}

/// Whether what comes next would still belong to the scheme or host: no `/` yet that begins a path.
fn ends_in_authority(before: &str) -> bool {
    let behind_scheme = before.split_once("://").map_or(before, |(_, behind)| behind);
    !behind_scheme.contains('/')
}

/// Puts the client's query behind the target's own one, before a fragment.
pub(crate) fn with_query(mut location: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return location;
    };
    let fragment = location.iter().position(|&byte| byte == b'#').unwrap_or(location.len());
    let fragment = location.split_off(fragment);
    location.push(if location.contains(&b'?') { b'&' } else { b'?' });
    append_checked(&mut location, query);
    location.extend(fragment);
    location
}

/// Path and query of a target.
pub(crate) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|&byte| byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Appends what is encoded already; a byte that may not stand in a field or a URL is encoded after all.
fn append_checked(location: &mut Vec<u8>, encoded: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in encoded {
        if matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'<' | b'>' | b'\\') {
            location.push(byte);
        } else {
            location.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::static_files::fixture;
    use crate::route::glob::Glob;
    use crate::settings::Redirect;

    fn site(from: &str, to: &str) -> Site {
        let from = Glob::new(from).expect("a pattern");
        let rule = Redirect {
            from,
            to: to.to_owned(),
            status: 301,
        };
        fixture::Root::new()
            .with(|settings| settings.redirects.push(rule))
            .site()
    }

    fn location(response: &Response) -> String {
        let location = response.head.fields().get("Location").expect("a Location");
        String::from_utf8(location.to_vec()).expect("ASCII")
    }

    #[test]
    fn rules_lead_where_they_say_and_keep_the_query() {
        let rows = [
            ("/old", "/new", "/old", None, Some("/new")),
            ("/old", "/new", "/older", None, None),
            ("/old", "/new", "/old", Some("a=1&b"), Some("/new?a=1&b")),
            ("/old", "/new?x=1#top", "/old", Some("a=1"), Some("/new?x=1&a=1#top")),
            ("/old", "/new", "/old", Some(""), Some("/new")),
            (
                "/blog/*",
                "https://blog.example/*",
                "/blog/2026/x y",
                Some("p=2"),
                Some("https://blog.example/2026/x%20y?p=2"),
            ),
            ("/blog/*", "/", "/blog/x", None, Some("/")),
            ("/a/*", "/b/*.html", "/a/c", None, Some("/b/c.html")),
            ("*.htm", "/*.html", "/docs/x.htm", None, Some("/docs/x.html")),
            ("/s/*", "/suche?q=*", "/s/a&b", None, Some("/suche?q=a%26b")),
        ];
        for (from, to, path, query, expected) in rows {
            let found = find(&site(from, to), path.as_bytes(), query.map(str::as_bytes));
            assert_eq!(
                found.as_ref().map(location).as_deref(),
                expected,
                "{from} → {to} on {path}"
            );
        }
    }

    #[test]
    fn no_path_leads_to_another_host() {
        let rows = [
            ("/old*", "/*", "/old/evil.example", "/evil.example"),
            ("/old*", "*", "/old/evil.example", "/evil.example"),
            ("/old*", "*", "/oldjavascript:alert(1)", "/javascript:alert(1)"),
            (
                "/old*",
                "https://example.com*",
                "/old.evil.example/",
                "https://example.com/.evil.example/",
            ),
            (
                "/old*",
                "https://example.com*",
                "/old@evil.example/",
                "https://example.com/@evil.example/",
            ),
            ("/old*", "/*", "/old\\evil.example", "/%5Cevil.example"),
        ];
        for (from, to, path, expected) in rows {
            let found = find(&site(from, to), path.as_bytes(), None).expect("a redirect");
            assert_eq!(location(&found), expected, "{from} → {to} on {path}");
        }
    }

    #[test]
    fn a_directory_gets_its_slash_and_nothing_else() {
        let rows = [
            (&b"/docs"[..], None, "/docs/"),
            (b"/docs", Some(&b"a=b&c"[..]), "/docs/?a=b&c"),
            (b"//evil.example", None, "/evil.example/"),
            (b"/\xc3\xa4 <b>", Some(b"\xff\""), "/%C3%A4%20%3Cb%3E/?%FF%22"),
        ];
        for (path, query, expected) in rows {
            let response = add_slash(path, query);
            assert_eq!(response.status, 308);
            assert_eq!(location(&response), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_location_is_one_line_on_this_host(path in proptest::collection::vec(1_u8.., 0..40), query in proptest::collection::vec(1_u8.., 0..40)) {
            let path = [b"/x".as_slice(), &path].concat();
            let rule = site("/x*", "/*");
            for response in [add_slash(&path, Some(&query)), find(&rule, &path, Some(&query)).expect("a redirect")] {
                let location = location(&response);
                proptest::prop_assert!(location.starts_with('/') && !location.starts_with("//"), "{location}");
                proptest::prop_assert!(location.bytes().all(|byte| matches!(byte, 0x21..=0x7e)), "{location}");
            }
        }
    }
}
