//! The site's `rewrites`: another path answers, unseen by the client.

use haulier_proto::path;

use super::Site;
use crate::pattern::target;

/// The target of a rewrite.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// Decoded and normalised.
    pub(crate) path: Vec<u8>,
    /// The query of the rule, then the client's.
    pub(crate) query: Option<Vec<u8>>,
}

/// Applies the first matching rule. The result is not rewritten again.
pub(crate) fn find(site: &Site, path: &[u8], query: Option<&[u8]>) -> Option<Rewritten> {
    site.settings.rewrites.iter().find_map(|rule| {
        let stars = rule.from.stars(path)?;
        let target = target::with_query(rule.to.filled(&stars), query);
        let (raw_path, query) = target::split_query(&target);
        // A capture that is no valid path, such as one with `..`, does not match.
        let path = path::normalize(raw_path).ok()?;
        Some(Rewritten {
            path: path.into_owned(),
            query: query.map(<[u8]>::to_vec),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use crate::pattern::glob::Glob;
    use crate::pattern::target::Target;
    use crate::site::RewriteRule;

    #[test]
    fn the_star_goes_into_path_or_query_and_the_clients_query_stays() {
        let rows = [
            (
                "/wiki/*",
                "/index.php/*",
                "/wiki/A B",
                None,
                Some(("/index.php/A B", None)),
            ),
            (
                "/wiki/*",
                "/index.php?title=*",
                "/wiki/A&B=c+d/e",
                Some("x=1"),
                Some(("/index.php", Some("title=A%26B=c%2Bd/e&x=1"))),
            ),
            (
                "/blog/*",
                "/news/*",
                "/blog/2026/1.html",
                Some("p=2"),
                Some(("/news/2026/1.html", Some("p=2"))),
            ),
            ("/old", "/new", "/old", None, Some(("/new", None))),
            ("/old", "/new", "/older", None, None),
            ("/v/*/x", "/*", "/v/a?b/x", None, Some(("/a?b", None))),
            (
                "/*/wp-*",
                "/wp-$2",
                "/blog/wp-login.php",
                Some("x=1"),
                Some(("/wp-login.php", Some("x=1"))),
            ),
            (
                "/*-s*.xml",
                "/i.php?a=*&b=*",
                "/post-s2.xml",
                None,
                Some(("/i.php", Some("a=post&b=2"))),
            ),
        ];
        for (from, to, path, query, expected) in rows {
            let from_path = Glob::new(from).expect("a pattern");
            let rule = RewriteRule {
                to: Target::new(&from_path, to).expect("a target"),
                from: from_path,
            };
            let site = fixture::Root::new()
                .with(|settings| settings.rewrites.push(rule))
                .site();
            let expected = expected.map(|(path, query): (&str, Option<&str>)| Rewritten {
                path: path.into(),
                query: query.map(Into::into),
            });
            assert_eq!(
                find(&site, path.as_bytes(), query.map(str::as_bytes)),
                expected,
                "{from} → {to} on {path}"
            );
        }
    }
}
