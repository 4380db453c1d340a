//! The rules of a site, from text to what the server takes: hosts, headers, redirects, cache, deny.

use haulier_server::route::glob::Glob;
use haulier_server::settings::Redirect;

use super::diagnostic::{Diagnostic, Report};
use super::file::Pairs;
use super::source::Placed;
use super::value;

/// Fields that belong to the framing of a message: the server writes them.
const FRAMING: [&str; 5] = [
    "connection",
    "content-length",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
];

/// A host name, lower case; `None` after an error was noted.
pub(super) fn host(written: &Placed<String>, report: &mut Report) -> Option<String> {
    let host = written.value.to_ascii_lowercase();
    let label = wrong_with_host(&host);
    if let Some(label) = label {
        let title = format!("not a host name: \"{}\"", written.value);
        report.push(
            Diagnostic::error("config::host", title)
                .at(written.place.as_ref(), label)
                .help("hosts are names such as \"example.com\", \"*.example.com\", or \"*\" for all"),
        );
        return None;
    }
    Some(host)
}

fn wrong_with_host(host: &str) -> Option<&'static str> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match () {
        () if host == "*" => None,
        () if host.contains("://") => Some("without the scheme"),
        () if host.contains('/') => Some("without a path"),
        () if host.starts_with('[') && host.ends_with(']') => None,
        () if host.contains(':') => Some("without a port: `http` in `[server]` says where to listen"),
        () if !host.is_ascii() => Some("write it in its ASCII form, `xn--…`"),
        () if name.contains('*') => Some("a `*` stands only alone or in front, as in \"*.example.com\""),
        () if name.is_empty() || name.starts_with('.') || name.ends_with('.') || name.contains("..") => {
            Some("a part of the name is empty")
        }
        () if !name.bytes().all(fits) => Some("letters, digits, `-` and `.` only"),
        () => None,
    }
}

/// Field lines for every response.
pub(super) fn headers(written: &Pairs, report: &mut Report) -> Vec<(String, String)> {
    written
        .iter()
        .filter_map(|(name, value)| header(name, value, report))
        .collect()
}

fn header(name: &Placed<String>, value: &Placed<String>, report: &mut Report) -> Option<(String, String)> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.value.is_empty() || !name.value.bytes().all(token) {
        let title = format!("not the name of a header: \"{}\"", name.value);
        report.push(Diagnostic::error("config::header", title).at(name.place.as_ref(), "letters, digits and `-`"));
        return None;
    }
    if FRAMING.contains(&name.value.to_ascii_lowercase().as_str()) {
        let title = format!("`{}` is not yours to set", name.value);
        report.push(
            Diagnostic::error("config::header", title).at(name.place.as_ref(), "the server writes it for each message"),
        );
        return None;
    }
    if value
        .value
        .bytes()
        .any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
    {
        let title = format!("the value of `{}` holds a control character", name.value);
        report.push(Diagnostic::error("config::header", title).at(value.place.as_ref(), "one line of plain text"));
        return None;
    }
    Some((name.value.clone(), value.value.trim().to_owned()))
}

/// Pattern → Cache-Control, the most specific pattern first: the order in the file does not matter.
pub(super) fn cache(written: &Pairs, report: &mut Report) -> Vec<(Glob, String)> {
    let mut rules = Vec::new();
    for (pattern, keep) in written {
        let Some(control) = value::cache_control(&keep.value) else {
            report.push(
                Diagnostic::error("config::value", format!("not a cache rule: \"{}\"", keep.value))
                    .at(
                        keep.place.as_ref(),
                        "expected a time, such as \"10m\" or \"1y immutable\"",
                    )
                    .help("also known: no-store, no-cache, must-revalidate, private"),
            );
            continue;
        };
        if let Some(glob) = glob(pattern, report) {
            rules.push((weight(&pattern.value), (glob, control)));
        }
    }
    heaviest_first(rules)
}

/// Where clients are sent instead, the most specific path first.
pub(super) fn redirects(written: &Pairs, report: &mut Report) -> Vec<Redirect> {
    let mut rules = Vec::new();
    for (from, to) in written {
        if let Some(redirect) = redirect(from, to, report) {
            rules.push((weight(&from.value), redirect));
        }
    }
    heaviest_first(rules)
}

fn redirect(from: &Placed<String>, to: &Placed<String>, report: &mut Report) -> Option<Redirect> {
    if !from.value.starts_with('/') {
        let title = format!("a redirect begins with a path, not \"{}\"", from.value);
        report.push(
            Diagnostic::error("config::redirect", title).at(from.place.as_ref(), "write it with its leading `/`"),
        );
        return None;
    }
    let (status, target) = match to.value.split_once(' ') {
        Some((status, target)) => (status.parse().ok(), target.trim()),
        None => (Some(308), to.value.trim()),
    };
    let status = status.filter(|status| matches!(status, 301 | 302 | 303 | 307 | 308));
    let is_url = target.starts_with("http://") || target.starts_with("https://");
    let is_path = target.starts_with('/') && !target.starts_with("//");
    let printable = target.bytes().all(|byte| byte.is_ascii_graphic());
    let (Some(status), true, true) = (status, is_url || is_path, printable) else {
        report.push(
            Diagnostic::error(
                "config::redirect",
                format!("not the target of a redirect: \"{}\"", to.value),
            )
            .at(
                to.place.as_ref(),
                "expected a path or URL, such as \"/new\" or \"302 https://example.com/\"",
            )
            .help("status codes: 301, 302, 303, 307, 308 (the default)"),
        );
        return None;
    };
    if target.contains('*') && !from.value.contains('*') {
        report.push(
            Diagnostic::error("config::redirect", "the target has a `*`, the path has none")
                .at(to.place.as_ref(), "takes what a `*` in the path matched")
                .beside(from.place.as_ref(), "add one here"),
        );
        return None;
    }
    Some(Redirect {
        from: glob(from, report)?,
        to: target.to_owned(),
        status,
    })
}

/// Patterns of paths.
pub(super) fn globs(written: &[Placed<String>], report: &mut Report) -> Vec<Glob> {
    written.iter().filter_map(|pattern| glob(pattern, report)).collect()
}

fn glob(pattern: &Placed<String>, report: &mut Report) -> Option<Glob> {
    if pattern.value.is_empty() {
        report.push(Diagnostic::error("config::pattern", "an empty pattern").at(
            pattern.place.as_ref(),
            "expected a path, such as \"/private/*\" or \"*.log\"",
        ));
        return None;
    }
    match Glob::new(&pattern.value) {
        Ok(glob) => Some(glob),
        Err(error) => {
            report.push(
                Diagnostic::error("config::pattern", format!("not a pattern: \"{}\"", pattern.value))
                    .at(pattern.place.as_ref(), error.to_string())
                    .help("`*` is any characters, `?` is one, `{a,b}` is either; with a leading `/` from the root on"),
            );
            None
        }
    }
}

/// How much of a pattern is said literally.
fn weight(pattern: &str) -> usize {
    pattern.bytes().filter(|byte| !b"*?{},".contains(byte)).count()
}

fn heaviest_first<T>(mut rules: Vec<(usize, T)>) -> Vec<T> {
    rules.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    rules.into_iter().map(|(_, rule)| rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(written: &[(&str, &str)]) -> Pairs {
        let placed = |text: &str| Placed::unplaced(text.to_owned());
        written
            .iter()
            .map(|(name, value)| (placed(name), placed(value)))
            .collect()
    }

    #[test]
    fn hosts_are_names_without_scheme_port_or_path() {
        for good in [
            "example.com",
            "*.example.com",
            "*",
            "localhost",
            "xn--bcher-kva.example",
            "192.0.2.1",
            "[::1]",
        ] {
            assert_eq!(wrong_with_host(good), None, "{good}");
        }
        for bad in [
            "http://a",
            "a/b",
            "a:80",
            "bücher.example",
            "a.*.com",
            "",
            ".a",
            "a..b",
            "a b",
            "*.",
        ] {
            assert!(wrong_with_host(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn redirects_default_to_308_and_longer_paths_win() {
        let mut report = Report::default();
        let rules = redirects(
            &pairs(&[("/*", "/all"), ("/old/page", "302 https://example.com/")]),
            &mut report,
        );
        assert_eq!(report.errors(), 0);
        let shown: Vec<(u16, &str)> = rules.iter().map(|rule| (rule.status, rule.to.as_str())).collect();
        assert_eq!(shown, [(302, "https://example.com/"), (308, "/all")]);
    }

    #[test]
    fn redirects_to_nowhere_are_refused() {
        for target in ["//evil.example", "new", "200 /new", "ftp://a/", "/a\nb", "/b/*"] {
            let mut report = Report::default();
            assert!(
                redirects(&pairs(&[("/a", target)]), &mut report).is_empty(),
                "{target:?}"
            );
            assert_eq!(report.errors(), 1, "{target:?}");
        }
    }

    #[test]
    fn headers_that_frame_or_split_a_message_are_refused() {
        let mut report = Report::default();
        let written = [
            ("X-Frame-Options", "DENY"),
            ("Content-Length", "5"),
            ("X Y", "a"),
            ("X-A", "a\r\nB: c"),
        ];
        let kept = headers(&pairs(&written), &mut report);
        assert_eq!(kept, [("X-Frame-Options".to_owned(), "DENY".to_owned())]);
        assert_eq!(report.errors(), 3);
    }
}
