//! Responses as zimg sends them, word for word: its clients compare them.

use haulier_http::{Handler, Response};
use haulier_image_service::{ImageInfo, Stored};

use super::failure::ImageFailure;
use crate::answer::page::escape;

/// zimg's error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZimgError {
    Internal = 0,
    FileType = 1,
    Method = 2,
    Access = 3,
    Body = 4,
    ContentLength = 5,
    ContentType = 6,
    TooLarge = 7,
    Url = 8,
    Missing = 9,
}

impl ZimgError {
    fn message(self) -> &'static str {
        match self {
            Self::Internal => "Internal error.",
            Self::FileType => "File type not support.",
            Self::Method => "Request method error.",
            Self::Access => "Access error.",
            Self::Body => "Request body parse error.",
            Self::ContentLength => "Content-Length error.",
            Self::ContentType => "Content-Type error.",
            Self::TooLarge => "File too large.",
            Self::Url => "Request url illegal.",
            Self::Missing => "Image not existed.",
        }
    }

    /// zimg's code for a failed upload or info request.
    pub(super) fn of(failure: &ImageFailure) -> Self {
        match failure.status {
            404 => Self::Missing,
            413 => Self::TooLarge,
            415 => Self::FileType,
            _ => Self::Internal,
        }
    }
}

/// An HTML page; nearly all of zimg's have status 200.
pub(super) fn html(status: u16, body: impl Into<String>) -> Response {
    Response::new(status, Handler::Image)
        .with("Content-Type", "text/html")
        .body(body.into())
}

/// `{"ret":false,…}`
pub(super) fn error(status: u16, code: ZimgError) -> Response {
    let message = code.message();
    let body = format!(
        "{{\"ret\":false,\"error\":{{\"code\":{},\"message\":\"{message}\"}}}}",
        code as u8
    );
    json(status, body)
}

/// The same with zimg's code and a message of our own.
pub(super) fn error_in_words(status: u16, code: ZimgError, message: &str) -> Response {
    let message = serde_json::Value::from(message);
    let body = format!(
        "{{\"ret\":false,\"error\":{{\"code\":{},\"message\":{message}}}}}",
        code as u8
    );
    json(status, body)
}

/// `{"ret":true,"info":…}`
fn info(info: &[u8]) -> Response {
    let mut body = b"{\"ret\":true,\"info\":".to_vec();
    body.extend_from_slice(info);
    body.push(b'}');
    json(200, body)
}

/// The response to an info request.
pub(super) fn properties(properties: &ImageInfo) -> Response {
    let &ImageInfo {
        size,
        width,
        height,
        quality,
        format,
    } = properties;
    let (quality, format) = (quality.unwrap_or(100), format.as_str().to_ascii_uppercase());
    let object = format!(
        "{{\"size\":{size},\"width\":{width},\"height\":{height},\"quality\":{quality},\"format\":\"{format}\"}}"
    );
    info(object.as_bytes())
}

/// The response to an upload as a whole body.
pub(super) fn stored(stored: &Stored) -> Response {
    info(format!("{{\"md5\":\"{}\",\"size\":{}}}", stored.id, stored.size).as_bytes())
}

pub(super) fn json(status: u16, body: impl Into<Vec<u8>>) -> Response {
    Response::new(status, Handler::Image)
        .with("Content-Type", "application/json")
        .with("X-Content-Type-Options", "nosniff")
        .body(body.into())
}

pub(super) fn not_found() -> Response {
    html(404, "<html><body><h1>404 Not Found!</h1></body></html>")
}

pub(super) fn forbidden() -> Response {
    html(403, "<html><body><h1>403 Forbidden!</h1></body></html>")
}

pub(super) fn echo() -> Response {
    html(200, "<html><body><h1>zimg works!</h1></body></html>")
}

/// The outcome of one part of a form.
#[derive(Debug)]
pub(super) enum PartOutcome {
    Stored(Stored),
    /// The file name has no image's extension.
    NoImage(String),
    Failed,
}

/// The page after an upload by form.
pub(super) fn upload_result(outcomes: &[PartOutcome], host: &str) -> Response {
    let mut page = begin("Upload Result");
    let is_any = outcomes
        .iter()
        .any(|outcome| !matches!(outcome, PartOutcome::NoImage(_)));
    if outcomes.is_empty() {
        page.push_str("<h1>Upload Failed!</h1>\n");
    }
    for outcome in outcomes {
        match outcome {
            PartOutcome::Stored(stored) => {
                let id = &stored.id;
                page.push_str(&format!(
                    "<h1>MD5: {id}</h1>\nImage upload successfully! You can get this image via this address:<br/><br/>\n\
                     <a href=\"/{id}\">http://"
                ));
                escape(&mut page, host);
                page.push_str(&format!(
                    "/{id}</a>?w=width&h=height&g=isgray&x=position_x&y=position_y&r=rotate&q=quality&f=format\n"
                ));
            }
            PartOutcome::NoImage(name) => {
                page.push_str("<h1>File: ");
                escape(&mut page, name);
                page.push_str("</h1>\n<p>File type is not supported!</p>\n");
            }
            PartOutcome::Failed => page.push_str("<h1>Failed!</h1>\n<p>File save failed!</p>\n"),
        }
    }
    let is_stored = outcomes.iter().any(|outcome| matches!(outcome, PartOutcome::Stored(_)));
    if is_any && !is_stored {
        page.push_str("<h1>Upload Failed!</h1>\n");
    }
    end(page)
}

/// The page after a command to `/admin`.
pub(super) fn admin_result(id: &str, command: i64, outcome: AdminOutcome) -> Response {
    let (title, words) = match outcome {
        AdminOutcome::Done => ("Admin Command Successful!", String::new()),
        AdminOutcome::Missing => ("Admin Command Failed!", "<p>Image Not Found.</p>\n".to_owned()),
        AdminOutcome::Failed => ("Admin Command Failed!", "<p>Command Failed.</p>\n".to_owned()),
    };
    let mut page = begin("Admin Result");
    page.push_str(&format!(
        "<h1>{title}</h1>\n{words}<p>MD5: {id}</p>\n<p>Command Type: {command}</p>\n"
    ));
    end(page)
}

/// The outcome of a command to `/admin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminOutcome {
    Done,
    Missing,
    Failed,
}

/// The page of `/admin`.
pub(super) fn admin_page() -> Response {
    let mut page = begin("Admin");
    page.push_str(
        "<h1>Admin</h1>\n<form action=\"/admin\" method=\"get\">\n\
         <label>MD5 <input name=\"md5\" size=\"34\" maxlength=\"32\"></label>\n\
         <label>Command <select name=\"t\"><option value=\"1\">delete</option></select></label>\n\
         <button>Go</button>\n</form>\n",
    );
    end(page)
}

fn begin(title: &str) -> String {
    format!("<html>\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n</head>\n<body>\n")
}

fn end(mut page: String) -> Response {
    page.push_str("</body>\n</html>\n");
    html(200, page)
}

#[cfg(test)]
mod tests {
    use haulier_image::Format;

    use super::*;
    use haulier_http::Body;

    fn text(response: &Response) -> String {
        match &response.body {
            Body::Bytes(bytes) => String::from_utf8(bytes.to_vec()).expect("text"),
            body => panic!("bytes, not {body:?}"),
        }
    }

    fn image() -> Stored {
        Stored {
            id: "5f189d8ec57f5a5a0d3dcba47fa797e2".parse().expect("a key"),
            size: 29615,
            format: Format::Jpeg,
            sides: None,
            is_new: true,
        }
    }

    #[test]
    fn bodies_are_zimgs_to_the_byte() {
        assert_eq!(text(&not_found()).len(), 49);
        assert_eq!(
            text(&error(200, ZimgError::FileType)),
            r#"{"ret":false,"error":{"code":1,"message":"File type not support."}}"#
        );
        assert_eq!(
            text(&stored(&image())),
            r#"{"ret":true,"info":{"md5":"5f189d8ec57f5a5a0d3dcba47fa797e2","size":29615}}"#
        );
        assert_eq!(text(&echo()), "<html><body><h1>zimg works!</h1></body></html>");
    }

    #[test]
    fn a_form_is_told_about_each_of_its_files() {
        let outcomes = [
            PartOutcome::Stored(image()),
            PartOutcome::NoImage("<x>.txt".into()),
            PartOutcome::Failed,
        ];
        let page = text(&upload_result(&outcomes, "h:4869"));
        assert!(
            page.contains("<h1>MD5: 5f189d8ec57f5a5a0d3dcba47fa797e2</h1>"),
            "{page}"
        );
        assert!(
            page.contains("<h1>File: &lt;x&gt;.txt</h1>\n<p>File type is not supported!</p>"),
            "{page}"
        );
        assert!(page.contains("<h1>Failed!</h1>\n<p>File save failed!</p>"), "{page}");
        assert!(!page.contains("Upload Failed"), "{page}");
        assert!(text(&upload_result(&[], "h")).contains("<h1>Upload Failed!</h1>"));
    }

    #[test]
    fn words_of_our_own_are_escaped() {
        let body = text(&error_in_words(400, ZimgError::Url, "a \"quoted\" word"));
        assert!(body.contains(r#""message":"a \"quoted\" word""#), "{body}");
    }
}
