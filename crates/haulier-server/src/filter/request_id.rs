//! `X-Request-Id` on responses of PHP: the identifier in the log, which PHP has received too.
//!
//! Error pages have the field from the start. Files, redirects and images have none: they need no debugging, and the
//! field would cost bytes on each.

use haulier_http::{RequestId, Response};

const NAME: &str = "X-Request-Id";

/// Adds the field unless the application has set it.
pub(super) fn on_response(id: &RequestId, response: &mut Response) {
    if response.trace.backend.is_none() {
        return;
    }
    let fields = response.head.fields_mut();
    if !fields.contains(NAME) {
        fields.append(NAME, id.text(&mut [0; RequestId::DIGITS]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haulier_http::{BackendTrace, Handler};

    fn named(php: bool, response: Response) -> Option<String> {
        let mut response = response;
        response.trace.backend = php.then(|| Box::new(BackendTrace::default()));
        on_response(&RequestId::Given("7f3a".into()), &mut response);
        let value = response.head.fields().get(NAME);
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_php_response_has_the_identifier_and_a_file_has_not() {
        let answer = || Response::new(200, Handler::Php);
        assert_eq!(named(true, answer()).as_deref(), Some("7f3a"));
        assert_eq!(named(true, answer().with(NAME, "own")).as_deref(), Some("own"));
        assert_eq!(named(false, Response::new(200, Handler::Static)), None);
    }
}
