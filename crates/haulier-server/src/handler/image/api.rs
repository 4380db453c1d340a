//! Routes: the meaning of a method and a path.

use haulier_proto::head::Method;
use haulier_store::Key;

use crate::images::Compat;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageRoute {
    /// The upload page for browsers.
    Page,
    /// Requested by browsers on their own.
    Favicon,
    /// A health check.
    Echo,
    /// The properties of an image.
    Info,
    /// zimg's page for deleting.
    Admin,
    /// Stores an image.
    Upload,
    /// An image.
    Image(Key),
    /// Deletes an image.
    Delete(Key),
    /// The allowed methods (OPTIONS).
    Methods,
    /// No route.
    Nothing,
    /// A route, but not for this method.
    WrongMethod(&'static str),
    /// A path with `..`.
    Climbing,
}

/// Digits of an id.
const DIGITS: usize = 32;

/// Reads a route: `path` is decoded and normalised, `sent` is the path on the wire.
pub(super) fn read(compat: Compat, method: Method, path: &[u8], sent: &[u8]) -> ImageRoute {
    let reads = matches!(method, Method::Get | Method::Head);
    if method == Method::Options {
        return ImageRoute::Methods;
    }
    if compat.is_zimg() {
        return read_as_zimg(method, reads, path, sent);
    }
    match path {
        b"/upload" if method == Method::Post => ImageRoute::Upload,
        b"/upload" => ImageRoute::WrongMethod("POST, OPTIONS"),
        b"/" if method == Method::Post => ImageRoute::Upload,
        b"/" if reads => ImageRoute::Page,
        b"/" => ImageRoute::WrongMethod("GET, HEAD, POST, OPTIONS"),
        b"/info" if reads => ImageRoute::Info,
        b"/echo" if reads => ImageRoute::Echo,
        b"/favicon.ico" if reads => ImageRoute::Favicon,
        b"/admin" if reads => ImageRoute::Admin,
        b"/info" | b"/echo" | b"/favicon.ico" | b"/admin" => ImageRoute::WrongMethod("GET, HEAD, OPTIONS"),
        _ => match (id(path), method) {
            (Some(key), Method::Get | Method::Head) => ImageRoute::Image(key),
            (Some(key), Method::Delete) => ImageRoute::Delete(key),
            (Some(_), _) => ImageRoute::WrongMethod("GET, HEAD, DELETE, OPTIONS"),
            (None, _) => ImageRoute::Nothing,
        },
    }
}

/// zimg knows GET and POST; a POST to any path is an upload. HEAD is GET without its body, as everywhere.
fn read_as_zimg(method: Method, reads: bool, path: &[u8], sent: &[u8]) -> ImageRoute {
    let contains = |text: &[u8]| sent.windows(text.len()).any(|part| part == text);
    match path {
        _ if contains(b"favicon.ico") => ImageRoute::Favicon,
        b"/upload" => ImageRoute::Upload,
        b"/echo" => ImageRoute::Echo,
        b"/info" => ImageRoute::Info,
        _ if method == Method::Post => ImageRoute::Upload,
        _ if contains(b"..") => ImageRoute::Climbing,
        b"/" if reads => ImageRoute::Page,
        b"/admin" if reads => ImageRoute::Admin,
        _ => match (id(path), method) {
            (Some(key), Method::Get | Method::Head) => ImageRoute::Image(key),
            (Some(key), Method::Delete) => ImageRoute::Delete(key),
            _ => ImageRoute::Nothing,
        },
    }
}

/// The id in `/<md5>`, in either case.
fn id(path: &[u8]) -> Option<Key> {
    key(path.strip_prefix(b"/")?)
}

/// An id: 32 hexadecimal digits in either case.
pub(super) fn key(text: &[u8]) -> Option<Key> {
    let is_id = text.len() == DIGITS && text.iter().all(u8::is_ascii_hexdigit);
    let lower = String::from_utf8(text.to_ascii_lowercase()).ok().filter(|_| is_id)?;
    lower.parse().ok()
}

/// The raw value of a query parameter; the first one counts.
pub(super) fn parameter<'q>(query: Option<&'q [u8]>, name: &str) -> Option<&'q [u8]> {
    query?.split(|&byte| byte == b'&').find_map(|pair| {
        let (found, value) = pair.split_at(pair.iter().position(|&byte| byte == b'=')?);
        found.eq_ignore_ascii_case(name.as_bytes()).then_some(&value[1..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f189d8ec57f5a5a0d3dcba47fa797e2";

    fn zimg(method: Method, path: &str) -> ImageRoute {
        read(Compat::Zimg, method, path.as_bytes(), path.as_bytes())
    }

    fn native(method: Method, path: &str) -> ImageRoute {
        read(Compat::Native, method, path.as_bytes(), path.as_bytes())
    }

    fn image() -> ImageRoute {
        ImageRoute::Image(ID.parse().expect("a key"))
    }

    #[test]
    fn paths_mean_what_they_mean_in_zimg() {
        for (method, path, ask) in [
            (Method::Get, "/", ImageRoute::Page),
            (Method::Post, "/", ImageRoute::Upload),
            (Method::Post, "/upload", ImageRoute::Upload),
            (Method::Get, "/upload", ImageRoute::Upload),
            (Method::Post, "/anything/at/all", ImageRoute::Upload),
            (Method::Post, "/admin", ImageRoute::Upload),
            (Method::Get, "/admin", ImageRoute::Admin),
            (Method::Get, "/info", ImageRoute::Info),
            (Method::Post, "/info", ImageRoute::Info),
            (Method::Put, "/echo", ImageRoute::Echo),
            (Method::Get, "/x/favicon.ico/y", ImageRoute::Favicon),
            (Method::Get, "/a/../b", ImageRoute::Climbing),
            (Method::Get, "/x", ImageRoute::Nothing),
            (Method::Put, "/x", ImageRoute::Nothing),
        ] {
            assert_eq!(zimg(method, path), ask, "{method:?} {path}");
        }
    }

    #[test]
    fn an_id_is_32_digits_in_either_case_and_nothing_else() {
        for path in [format!("/{ID}"), format!("/{}", ID.to_uppercase())] {
            assert_eq!(zimg(Method::Get, &path), image());
            assert_eq!(native(Method::Head, &path), image());
        }
        for path in [
            format!("/{ID}/x"),
            format!("/{ID}0"),
            format!("/{}", &ID[1..]),
            format!("/{}g", &ID[1..]),
        ] {
            assert_eq!(zimg(Method::Get, &path), ImageRoute::Nothing, "{path}");
            assert_eq!(native(Method::Get, &path), ImageRoute::Nothing, "{path}");
        }
    }

    #[test]
    fn the_native_mode_says_which_methods_there_are() {
        let path = format!("/{ID}");
        assert_eq!(
            native(Method::Delete, &path),
            ImageRoute::Delete(ID.parse().expect("a key"))
        );
        assert_eq!(
            native(Method::Put, &path),
            ImageRoute::WrongMethod("GET, HEAD, DELETE, OPTIONS")
        );
        assert_eq!(native(Method::Get, "/upload"), ImageRoute::WrongMethod("POST, OPTIONS"));
        assert_eq!(
            native(Method::Post, "/info"),
            ImageRoute::WrongMethod("GET, HEAD, OPTIONS")
        );
        assert_eq!(native(Method::Post, "/somewhere"), ImageRoute::Nothing);
    }

    #[test]
    fn parameters_are_found_by_name_in_any_case() {
        let query = Some(&b"md5x=1&MD5=abc&md5=def&t"[..]);
        assert_eq!(parameter(query, "md5"), Some(&b"abc"[..]));
        assert_eq!(parameter(query, "t"), None);
        assert_eq!(parameter(None, "t"), None);
    }
}
