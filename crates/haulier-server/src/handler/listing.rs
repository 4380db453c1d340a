//! Directory listings for development, with `serve` only.

use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;

use haulier_http::{Handler, Response};
use haulier_proto::head::{Method, RequestHead};
use haulier_proto::{date, path};
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use crate::answer::{error_page, page};
use crate::files;
use crate::site::Site;

/// Most names shown: a directory of a million must not block the thread.
const MOST: usize = 10_000;

/// Lists a directory of the site; `path` ends with `/`. Names that the site would not serve are left out.
pub(crate) fn respond(site: &Site, path: &[u8], head: &RequestHead) -> Response {
    if !matches!(head.method(), Method::Get | Method::Head) {
        return Response::new(405, Handler::Static).with("Allow", "GET, HEAD");
    }
    list(site, path).unwrap_or_else(|error| {
        let (status, reason) = error_page::of_file(&error);
        let mut response = Response::new(status, Handler::Error);
        response.trace.reason = reason;
        response
    })
}

fn list(site: &Site, path: &[u8]) -> io::Result<Response> {
    let directory = files::open_directory(site.files.document_root(), path)?.ok_or(Errno::NOENT)?;
    let (mut names, complete) = read(site, path, &directory)?;
    // Directories first, then by name.
    names.sort_by(|one, other| {
        other
            .is_directory
            .cmp(&one.is_directory)
            .then_with(|| one.name.cmp(&other.name))
    });
    let response = Response::new(200, Handler::Static).with("Content-Type", "text/html; charset=utf-8");
    Ok(response
        .with("Cache-Control", "no-cache")
        .body(page(path, &names, complete)))
}

/// One row of the page.
#[derive(Debug)]
struct EntryName {
    name: Vec<u8>,
    is_directory: bool,
    /// Bytes.
    size: u64,
    /// Seconds since 1970.
    modified: u64,
}

/// The names; true if they are complete.
fn read(site: &Site, path: &[u8], directory: &OwnedFd) -> io::Result<(Vec<EntryName>, bool)> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let full = [path, name].concat();
        if files::is_hidden(&full) || files::is_denied(&site.files, &full) {
            continue;
        }
        if names.len() == MOST {
            return Ok((names, false));
        }
        // Links are shown as links; resolving each would cost too much.
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        names.extend(EntryName::of(name, &stat));
    }
    Ok((names, true))
}

impl EntryName {
    fn of(name: &[u8], stat: &Stat) -> Option<Self> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink).then(|| Self {
            name: name.to_vec(),
            is_directory: kind == FileType::Directory,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
        })
    }
}

fn page(path: &[u8], names: &[EntryName], complete: bool) -> String {
    let title = String::from_utf8_lossy(path);
    let mut page = page::begin(&title);
    page::element(&mut page, "h1", &title);
    page.push_str("<table>\n");
    if path != b"/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for name in names {
        row(&mut page, path, name);
    }
    page.push_str("</table>\n");
    if !complete {
        page::element(
            &mut page,
            "p",
            &format!("These are the first {MOST} names; there are more."),
        );
    }
    page::end(&mut page);
    page
}

fn row(page: &mut String, path: &[u8], name: &EntryName) {
    let slash = if name.is_directory { "/" } else { "" };
    let mut link = Vec::new();
    path::encode(&[path, &name.name].concat(), &mut link);
    page.push_str("<tr><td><a href=\"");
    page::escape(page, &String::from_utf8_lossy(&link));
    let _ = write!(page, "{slash}\">");
    page::escape(page, &String::from_utf8_lossy(&name.name));
    let _ = write!(page, "{slash}</a></td><td>");
    if !name.is_directory {
        page.push_str(&readable(name.size));
    }
    let date = date::format(name.modified);
    // `Sun, 06 Nov 1994 08:49:37 GMT` without the day's name.
    let _ = writeln!(page, "</td><td>{}</td></tr>", String::from_utf8_lossy(&date[5..]));
}

/// A size for people: `812 B`, `4.4 KiB`.
fn readable(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10) as usize;
    let value = bytes as f64 / 1024_f64.powi(power as i32);
    format!("{value:.1} {}", units[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture;
    use crate::pattern::glob::Glob;
    use haulier_http::Body;

    fn text(response: &Response) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("a page is text"),
            body => panic!("a page is bytes, not {body:?}"),
        }
    }

    #[test]
    fn names_are_links_and_text_directories_first() {
        let root = fixture::Root::new()
            .file("d/b.txt", "12345")
            .file("d/a&b <i>.txt", "")
            .file("d/sub/x", "");
        let page = text(&list(&root.site(), b"/d/").expect("a page"));
        assert!(
            page.contains("<a href=\"/d/b.txt\">b.txt</a></td><td>5 B</td>"),
            "{page}"
        );
        assert!(
            page.contains("<a href=\"/d/a&amp;b%20%3Ci%3E.txt\">a&amp;b &lt;i&gt;.txt</a>"),
            "{page}"
        );
        let places: Vec<_> = ["../", "/d/sub/", "/d/a&amp;", "/d/b.txt"]
            .iter()
            .map(|text| page.find(text))
            .collect();
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} in {page}");
    }

    #[test]
    fn what_is_not_handed_out_is_not_shown() {
        let root = fixture::Root::new()
            .file(".env", "")
            .file("a.php~", "")
            .file("secret.txt", "")
            .file("open.txt", "");
        let root = root.with(|settings| settings.files.deny.push(Glob::new("secret.*").expect("a pattern")));
        let page = text(&list(&root.site(), b"/").expect("a page"));
        assert!(page.contains("open.txt"), "{page}");
        for hidden in [".env", "a.php~", "secret.txt", "../"] {
            assert!(!page.contains(hidden), "{hidden} in {page}");
        }
    }

    #[test]
    fn a_directory_of_very_many_names_is_shown_in_part() {
        let root = fixture::Root::new();
        for number in 0..=MOST {
            std::fs::write(root.path().join(format!("{number}")), "").expect("a file");
        }
        let page = text(&list(&root.site(), b"/").expect("a page"));
        assert_eq!(page.matches("<tr>").count(), MOST);
        assert!(page.contains("there are more"));
    }

    #[test]
    fn a_directory_that_is_gone_is_not_found() {
        let head = fixture::head("GET", "/gone/", "");
        assert_eq!(respond(&fixture::Root::new().site(), b"/gone/", &head).status, 404);
    }

    #[test]
    fn sizes_are_for_people() {
        let rows = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (4506, "4.4 KiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(readable(bytes), expected);
        }
    }
}
