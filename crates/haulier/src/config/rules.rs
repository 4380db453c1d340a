//! Parses the rules of a site: hosts, headers, redirects, cache, deny.

use std::path::Path;

use haulier_http::Network;
use haulier_server::pattern::glob::Glob;
use haulier_server::pattern::target::{Target, TargetError};
use haulier_server::{Canonical, RedirectRule, RewriteRule};
use haulier_settings::{Diagnostic, Pairs, Placed, Report};

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
            rules.push((glob.weight(), (glob, control)));
        }
    }
    heaviest_first(rules)
}

/// The redirects, the most specific path first.
pub(super) fn redirects(written: &Pairs, report: &mut Report) -> Vec<RedirectRule> {
    let mut rules = Vec::new();
    for (from, to) in written {
        if let Some(redirect) = redirect(from, to, report) {
            rules.push((redirect.from.weight(), redirect));
        }
    }
    heaviest_first(rules)
}

fn redirect(from: &Placed<String>, to: &Placed<String>, report: &mut Report) -> Option<RedirectRule> {
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
    let (from, to) = fitting("config::redirect", from, &to.with(target.to_owned()), report)?;
    Some(RedirectRule { from, to, status })
}

/// Path and target of a rule, if each `*` of the target has one in the path.
fn fitting(
    code: &'static str,
    from: &Placed<String>,
    to: &Placed<String>,
    report: &mut Report,
) -> Option<(Glob, Target)> {
    let path = glob(from, report)?;
    match Target::new(&path, &to.value) {
        Ok(target) => Some((path, target)),
        Err(error) => {
            report.push(unfitting(code, error, from, to));
            None
        }
    }
}

fn unfitting(code: &'static str, error: TargetError, from: &Placed<String>, to: &Placed<String>) -> Diagnostic {
    let said = Diagnostic::error(code, error.to_string());
    let numbered = |number: usize| to.value.replacen('*', &format!("${number}"), 1);
    match error {
        TargetError::NoStar | TargetError::Beyond { path: 0, .. } => said
            .at(to.place.as_ref(), "takes what a `*` in the path matched")
            .beside(from.place.as_ref(), "add one here"),
        TargetError::Count { path, target: 1 } if path > 1 => said
            .at(to.place.as_ref(), "which one of the path is meant?")
            .beside(from.place.as_ref(), format!("`$1` to `${path}`, from the left"))
            .help(format!(
                "say it by number: \"{}\" takes the last one, \"{}\" the first",
                numbered(path),
                numbered(1)
            )),
        TargetError::Count { path, .. } => said
            .at(to.place.as_ref(), "each takes the one of its place in the path")
            .beside(from.place.as_ref(), format!("{path} here"))
            .help("as many in the target as in the path, or numbers: `$1` is the first `*` of the path"),
        TargetError::Beyond { path, .. } => said
            .at(to.place.as_ref(), "`$1` is the first `*` of the path, and so on")
            .beside(from.place.as_ref(), format!("{path} here")),
        TargetError::Mixed => said
            .at(to.place.as_ref(), "one manner or the other")
            .help("`*` takes the stars of the path in their order, `$2` the second one"),
    }
}

/// The rewrites, the most specific path first.
pub(super) fn rewrites(written: &Pairs, report: &mut Report) -> Vec<RewriteRule> {
    let mut rules = Vec::new();
    for (from, to) in written {
        if let Some(rewrite) = rewrite(from, to, report) {
            rules.push((rewrite.from.weight(), rewrite));
        }
    }
    heaviest_first(rules)
}

fn rewrite(from: &Placed<String>, to: &Placed<String>, report: &mut Report) -> Option<RewriteRule> {
    let is_path = to.value.starts_with('/') && !to.value.starts_with("//") && !to.value.contains('#');
    if !from.value.starts_with('/') || !is_path || !to.value.bytes().all(|byte| byte.is_ascii_graphic()) {
        let wrong = if from.value.starts_with('/') { to } else { from };
        report.push(
            Diagnostic::error("config::rewrite", format!("not a path to rewrite: \"{}\"", wrong.value))
                .at(wrong.place.as_ref(), "expected a path, such as \"/index.php?title=*\"")
                .help("a rewrite stays on the site; `redirects` send the client elsewhere"),
        );
        return None;
    }
    let (from, to) = fitting("config::rewrite", from, to, report)?;
    Some(RewriteRule { from, to })
}

/// Status → page of the site, a path in its document root.
pub(super) fn error_pages(written: &Pairs, root: &Path, report: &mut Report) -> Vec<(u16, String)> {
    let mut pages = Vec::new();
    for (status, page) in written {
        let Some(number) = status.value.parse().ok().filter(|status| (400..600).contains(status)) else {
            let title = format!("not the status of an error: \"{}\"", status.value);
            report.push(Diagnostic::error("config::errors", title).at(status.place.as_ref(), "from 400 to 599"));
            continue;
        };
        if let Some(page) = self::page(page, root, report) {
            pages.push((number, page));
        }
    }
    pages
}

/// A page of the site, which must exist.
pub(super) fn page(written: &Placed<String>, root: &Path, report: &mut Report) -> Option<String> {
    let path = written.value.trim_start_matches('/');
    let climbs = path.split('/').any(|part| part == "..");
    if path.is_empty() || climbs || !root.join(path).is_file() {
        let title = format!("page {} is not in {}", written.value, root.display());
        report.push(Diagnostic::error("site::page", title).at(
            written.place.as_ref(),
            "expected a file or script in the document root, such as \"/404.html\"",
        ));
        return None;
    }
    Some(format!("/{path}"))
}

/// Addresses and networks.
pub(super) fn networks(written: &[Placed<String>], report: &mut Report) -> Vec<Network> {
    let mut networks = Vec::new();
    for one in written {
        match one.value.parse() {
            Ok(network) => networks.push(network),
            Err(_) => report.push(
                Diagnostic::error("config::network", format!("not a network: \"{}\"", one.value)).at(
                    one.place.as_ref(),
                    "expected an address or a network, such as \"10.0.0.0/8\"",
                ),
            ),
        }
    }
    networks
}

/// The canonical name of a site: one of its hosts.
pub(super) fn canonical(written: &Placed<String>, hosts: &[String], report: &mut Report) -> Option<Canonical> {
    let (origin, authority) = match written.value.split_once("://") {
        Some(("http" | "https", authority)) => (
            Some(written.value.trim_end_matches('/')),
            authority.trim_end_matches('/'),
        ),
        _ => (None, written.value.as_str()),
    };
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if origin.is_some() && port.parse::<u16>().is_ok() => name,
        _ => authority,
    };
    let host = host(&written.with(name.to_owned()), report)?;
    let covers = |known: &String| match known.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => *known == host,
    };
    if host.contains('*') || !hosts.iter().any(covers) {
        let title = format!("`{host}` is none of the site's hosts");
        report.push(
            Diagnostic::error("config::host", title)
                .at(written.place.as_ref(), "clients would be sent to nowhere")
                .help("add it to `hosts`"),
        );
        return None;
    }
    Some(Canonical {
        origin: origin.map(str::to_ascii_lowercase),
        host,
    })
}

/// Patterns of paths.
pub(super) fn globs(written: &[Placed<String>], report: &mut Report) -> Vec<Glob> {
    written.iter().filter_map(|pattern| glob(pattern, report)).collect()
}

pub(super) fn glob(pattern: &Placed<String>, report: &mut Report) -> Option<Glob> {
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
