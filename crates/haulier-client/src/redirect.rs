//! Redirects: the next request, and the credentials it may carry (RFC 9110 §15.4).

use haulier_proto::head::Method;
use haulier_proto::response_head::ResponseHead;

use crate::error::ClientError;
use crate::url::{Scheme, Url};

/// Redirects followed for one request.
pub const MOST_REDIRECTS: usize = 20;

/// The request that a redirect asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct RedirectedRequest {
    pub url: Url,
    /// It is a GET without a body; else it repeats method and body of the first request.
    pub becomes_get: bool,
    /// The next request may carry the credentials of this one: it goes to the same origin.
    pub keeps_credentials: bool,
}

/// The redirect that a response head asks for, if it does.
///
/// # Errors
/// [`ClientError::BadRedirect`] for a Location that cannot be requested, [`ClientError::InsecureRedirect`] for one that
/// leaves https.
pub fn of(head: &ResponseHead, url: &Url, method: Method) -> Result<Option<RedirectedRequest>, ClientError> {
    let status = head.status();
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = head.fields().get("location") else {
        return Ok(None);
    };
    let target = url
        .join(&String::from_utf8_lossy(location))
        .map_err(ClientError::BadRedirect)?;
    if url.origin().scheme == Scheme::Https && target.origin().scheme != Scheme::Https {
        return Err(ClientError::InsecureRedirect);
    }
    Ok(Some(RedirectedRequest {
        keeps_credentials: target.origin() == url.origin(),
        url: target,
        // 303 asks for it; for 301 and 302 every browser turns POST into GET.
        becomes_get: status == 303 && method != Method::Head || status < 303 && method == Method::Post,
    }))
}

#[cfg(test)]
mod tests {
    use haulier_proto::response_head::ResponseLimits;

    use super::*;

    fn follow(
        status: u16,
        location: &str,
        from: &str,
        method: Method,
    ) -> Result<Option<RedirectedRequest>, ClientError> {
        let mut text = format!("HTTP/1.1 {status} x\r\nLocation: {location}\r\n\r\n").into_bytes();
        let head = ResponseHead::parse(&mut text, &ResponseLimits::default())
            .expect("a good head")
            .expect("a complete head");
        of(&head, &Url::parse(from).expect(from), method)
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        let keeps = |location: &str| {
            follow(302, location, "http://a/b", Method::Get)
                .expect("a good redirect")
                .expect("a redirect")
                .keeps_credentials
        };
        assert!(keeps("/c"));
        assert!(keeps("http://a:80/c"));
        assert!(!keeps("http://b/c"));
        assert!(!keeps("http://a:8080/c"));
        assert!(!keeps("https://a/c"));
    }

    #[test]
    fn the_method_changes_only_where_browsers_change_it() {
        let becomes_get = |status, method| {
            follow(status, "/c", "http://a/b", method)
                .expect("good")
                .expect("a redirect")
                .becomes_get
        };
        assert!(becomes_get(302, Method::Post));
        assert!(becomes_get(303, Method::Put));
        assert!(!becomes_get(303, Method::Head));
        assert!(!becomes_get(302, Method::Put));
        assert!(!becomes_get(307, Method::Post));
        assert!(!becomes_get(308, Method::Put));
    }

    #[test]
    fn https_is_never_left_and_other_schemes_are_never_followed() {
        assert!(matches!(
            follow(301, "http://a/", "https://a/", Method::Get),
            Err(ClientError::InsecureRedirect)
        ));
        assert!(matches!(
            follow(301, "file:///etc/passwd", "http://a/", Method::Get),
            Err(ClientError::BadRedirect(_))
        ));
    }

    #[test]
    fn other_responses_are_no_redirects() {
        assert_eq!(follow(200, "/c", "http://a/", Method::Get).expect("good"), None);
        assert_eq!(follow(304, "/c", "http://a/", Method::Get).expect("good"), None);
    }
}
