//! Redirects: `redirects` of a site, and the missing slash of a directory.
//!
//! A generated Location never begins with `//`, which would name another host (RFC 3986 §4.2), and contains no line
//! break. `pattern::target` ensures the same.

use haulier_http::{Handler, Response};
use haulier_proto::path;

use crate::pattern::target::{append_checked, with_query};
use crate::site::Site;

/// The redirect of the first rule that matches this path. The query is kept.
pub(crate) fn find(site: &Site, path: &[u8], query: Option<&[u8]>) -> Option<Response> {
    site.settings.redirects.iter().find_map(|rule| {
        let stars = rule.from.stars(path)?;
        Some(to(rule.status, with_query(rule.to.filled(&stars), query)))
    })
}

/// A redirect to the same path with a trailing slash. 308 keeps method and body (RFC 9110 §15.4.9).
pub(crate) fn add_slash(path: &[u8], query: Option<&[u8]>) -> Response {
    let mut location = Vec::with_capacity(path.len() + 16);
    path::encode(path, &mut location);
    location.push(b'/');
    to(308, with_query(location, query))
}

/// A redirect to the same path on another host; `origin` is scheme, name and port. 308 keeps method and body.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use crate::pattern::glob::Glob;
    use crate::pattern::target::Target;
    use crate::site::RedirectRule;

    fn site(from: &str, to: &str) -> Site {
        let from = Glob::new(from).expect("a pattern");
        let rule = RedirectRule {
            to: Target::new(&from, to).expect("a target"),
            from,
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
            let rules = [site("/x*", "/*"), site("/x*", "/*/x"), site("*x*", "/*/*")];
            let redirects = rules.iter().filter_map(|rule| find(rule, &path, Some(&query)));
            for response in redirects.chain([add_slash(&path, Some(&query))]) {
                let location = location(&response);
                proptest::prop_assert!(location.starts_with('/') && !location.starts_with("//"), "{location}");
                proptest::prop_assert!(location.bytes().all(|byte| matches!(byte, 0x21..=0x7e)), "{location}");
            }
        }
    }
}
