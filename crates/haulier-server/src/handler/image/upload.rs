//! Uploads: one image as the whole body, or several in a form.
//!
//! A body is read to its end before any of it is used, so an upload that breaks off leaves nothing.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use haulier_http::{BodyError, Reason, Request, Response};
use haulier_image::Format;
use haulier_image_service::{ServiceError, Stored};
use haulier_proto::field::Known;
use haulier_proto::head::{Method, RequestHead};

use super::compat::{self, PartOutcome, ZimgError};
use super::failure::{ImageFailure, as_json, refuse};
use super::multipart;
use crate::body::request::{Collected, collect};
use crate::context::RequestContext;
use crate::images::ImageSite;
use crate::site::Site;
use crate::thread::Thread;

/// Refuses an upload by its head; the checks are in zimg's order.
pub(super) fn refusal(context: &RequestContext<'_>, images: &ImageSite) -> Option<Response> {
    let settings = &images.settings;
    let head = &context.request.head;
    if settings.compat.is_zimg() {
        return check_as_zimg(context, images)
            .err()
            .map(|code| compat::error(200, code));
    }
    if !context.comes_from(&settings.upload) {
        return Some(as_json(
            context.site,
            &ImageFailure::new(403, "uploads are not allowed from this address"),
        ));
    }
    if context
        .request
        .body_length
        .is_some_and(|length| length > settings.limits.file)
    {
        return Some(too_large(context.site));
    }
    if content_type(head).is_none() || context.request.body_length == Some(0) {
        return Some(compat::error_in_words(
            400,
            ZimgError::Body,
            "an upload needs a body and a Content-Type",
        ));
    }
    None
}

fn check_as_zimg(context: &RequestContext<'_>, images: &ImageSite) -> Result<(), ZimgError> {
    let settings = &images.settings;
    if context.request.head.method() != Method::Post {
        return Err(ZimgError::Method);
    }
    if !context.comes_from(&settings.upload) {
        return Err(ZimgError::Access);
    }
    // zimg does not accept chunked bodies.
    let length = context
        .request
        .body_length
        .filter(|length| *length > 0)
        .ok_or(ZimgError::ContentLength)?;
    if length > settings.limits.file {
        return Err(ZimgError::TooLarge);
    }
    let content_type = content_type(&context.request.head).ok_or(ZimgError::ContentType)?;
    if !multipart::is_form(content_type) && !names_an_image(content_type) {
        return Err(ZimgError::FileType);
    }
    Ok(())
}

fn content_type(head: &RequestHead) -> Option<&[u8]> {
    head.fields()
        .known(Known::ContentType)
        .filter(|value| !value.is_empty())
}

/// True for `jpeg`, zimg's form, and `image/jpeg`.
fn names_an_image(content_type: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content_type);
    let name = text.split(';').next().unwrap_or("").trim();
    let is_type = |format: &Format| name.eq_ignore_ascii_case(format.media_type());
    Format::of_name(name).is_some() || Format::ALL.iter().any(is_type) || name.eq_ignore_ascii_case("image/jpg")
}

fn too_large(site: &Site) -> Response {
    as_json(
        site,
        &ImageFailure::new(413, "the image exceeds the limit of this site"),
    )
}

/// Reads the body and stores its images.
pub(super) async fn respond(thread: &Thread, site: &Arc<Site>, images: &ImageSite, request: &Request) -> Response {
    let most = images.settings.limits.file;
    let collected = match collect(request, most, thread.serving().settings.body_storage()).await {
        Ok(collected) => collected,
        Err(error) => return broken(site, request, error),
    };
    // Held until the response is made: it limits the bodies in memory.
    let _permit = images.service.upload_permit().await;
    let body = match in_memory(images, collected).await {
        Ok(body) => body,
        Err(failure) => return as_json(site, &failure),
    };
    let content_type = content_type(&request.head).unwrap_or_default();
    match multipart::is_form(content_type) {
        true => form(site, images, request, &body, content_type).await,
        false => raw(site, images, body).await,
    }
}

fn broken(site: &Arc<Site>, request: &Request, error: BodyError) -> Response {
    let (status, reason) = match error {
        BodyError::Gone => (400, Reason::ClientGone),
        BodyError::TooSlow => (408, Reason::BodyTimeout),
        BodyError::TooLarge => return too_large(site),
        BodyError::Malformed => (400, Reason::BadBody),
        BodyError::NoRoom => (503, Reason::BodySpoolFull),
        BodyError::Spool => (507, Reason::SpoolFailed),
    };
    refuse(site, request, &ImageFailure::ours(status, reason, error.to_string()))
}

async fn in_memory(images: &ImageSite, collected: Collected) -> Result<Bytes, ImageFailure> {
    match collected {
        Collected::Empty => Ok(Bytes::new()),
        Collected::Memory(bytes) => Ok(bytes.into()),
        Collected::File { file, length, .. } => {
            let read = images.service.run_blocking(move || {
                let mut content = vec![0; usize::try_from(length).map_err(io::Error::other)?];
                file.read_exact_at(&mut content, 0)?;
                Ok(Bytes::from(content))
            });
            let read = read.await;
            read.map_err(|_| ImageFailure::ours(507, Reason::SpoolFailed, "the upload cannot be read again"))
        }
    }
}

async fn raw(site: &Arc<Site>, images: &ImageSite, body: Bytes) -> Response {
    let is_zimg = images.settings.compat.is_zimg();
    match store(images, body).await {
        Ok(stored) if is_zimg => compat::stored(&stored),
        Ok(stored) => created(&stored),
        Err(failure) => as_json(site, &failure),
    }
}

/// Stores one image. In zimg's mode, files that begin like an image are stored even if they cannot be read, as zimg
/// does.
async fn store(images: &ImageSite, content: Bytes) -> Result<Stored, ImageFailure> {
    let is_strict = !images.settings.compat.is_zimg();
    let stored = images.service.store(content, is_strict).await;
    stored.map_err(|error: ServiceError| ImageFailure::from(&error))
}

/// 201 for a new image, 200 for a known one.
fn created(stored: &Stored) -> Response {
    let status = if stored.is_new { 201 } else { 200 };
    let body = format!("{{\"ret\":true,\"info\":{}}}", described(stored));
    compat::json(status, body).with("Location", format!("/{}", stored.id))
}

fn described(stored: &Stored) -> String {
    let sides = stored.sides.map_or_else(String::new, |(width, height)| {
        format!(",\"width\":{width},\"height\":{height}")
    });
    let Stored { id, size, format, .. } = stored;
    format!("{{\"md5\":\"{id}\",\"size\":{size},\"format\":\"{format}\"{sides},\"url\":\"/{id}\"}}")
}

async fn form(site: &Arc<Site>, images: &ImageSite, request: &Request, body: &Bytes, content_type: &[u8]) -> Response {
    let is_zimg = images.settings.compat.is_zimg();
    let parts = multipart::boundary(content_type).and_then(|boundary| multipart::parts(body, &boundary).ok());
    let Some(parts) = parts else {
        return match is_zimg {
            true => compat::upload_result(&[], ""),
            false => compat::error_in_words(400, ZimgError::Body, "not a multipart/form-data body"),
        };
    };
    let mut outcomes = Vec::new();
    let mut first_failure = None;
    // A field without a file name is not a file. zimg stored those too.
    let files = parts
        .into_iter()
        .filter_map(|part| Some((part.file_name?, part.content)));
    for (name, content) in files.filter(|(_, content)| !content.is_empty()) {
        if is_zimg && !has_extension(&name) {
            outcomes.push(PartOutcome::NoImage(name));
            continue;
        }
        outcomes.push(match store(images, content).await {
            Ok(stored) => PartOutcome::Stored(stored),
            Err(failure) if is_zimg && failure.status == 415 => PartOutcome::NoImage(name),
            Err(failure) => {
                first_failure.get_or_insert(failure);
                PartOutcome::Failed
            }
        });
    }
    if is_zimg {
        let host = request.head.host().map(String::from_utf8_lossy).unwrap_or_default();
        return compat::upload_result(&outcomes, &host);
    }
    form_as_json(site, &outcomes, first_failure)
}

/// zimg decides by the extension.
fn has_extension(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, extension)| Format::of_name(extension).is_some())
}

fn form_as_json(site: &Arc<Site>, outcomes: &[PartOutcome], failure: Option<ImageFailure>) -> Response {
    let stored: Vec<&Stored> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            PartOutcome::Stored(stored) => Some(stored),
            _ => None,
        })
        .collect();
    match (&stored[..], failure) {
        ([], Some(failure)) => as_json(site, &failure),
        ([], None) => compat::error_in_words(400, ZimgError::Body, "no file in the form"),
        ([one], None) => created(one),
        (all, failure) => {
            let images: Vec<String> = all.iter().map(|stored| described(stored)).collect();
            let failed = failure.map_or_else(String::new, |failure| {
                format!(",\"failed\":{}", serde_json::Value::from(&*failure.message))
            });
            compat::json(
                200,
                format!("{{\"ret\":true,\"images\":[{}]{failed}}}", images.join(",")),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haulier_http::Handler;

    #[test]
    fn an_image_is_named_as_zimg_or_as_everybody_does() {
        for good in ["jpeg", "PNG", "image/jpeg", "image/jpg", "Image/WebP; q=1", "gif"] {
            assert!(names_an_image(good.as_bytes()), "{good}");
        }
        for bad in ["text/plain", "image/svg+xml", "application/octet-stream", "jpegx"] {
            assert!(!names_an_image(bad.as_bytes()), "{bad}");
        }
        assert!(has_extension("a.b.JPG") && !has_extension("jpg") && !has_extension("a.jpg.exe"));
    }

    #[test]
    fn a_new_image_is_told_from_a_known_one() {
        let mut stored = Stored {
            id: "5f189d8ec57f5a5a0d3dcba47fa797e2".parse().expect("a key"),
            size: 3,
            format: Format::Png,
            sides: Some((4, 5)),
            is_new: true,
        };
        let response = created(&stored);
        assert_eq!(response.status, 201);
        assert_eq!(
            response.head.fields().get("Location"),
            Some(&b"/5f189d8ec57f5a5a0d3dcba47fa797e2"[..])
        );
        stored.is_new = false;
        assert_eq!(created(&stored).status, 200);
        assert_eq!(
            described(&stored),
            r#"{"md5":"5f189d8ec57f5a5a0d3dcba47fa797e2","size":3,"format":"png","width":4,"height":5,"url":"/5f189d8ec57f5a5a0d3dcba47fa797e2"}"#
        );
        assert_eq!(response.trace.handler, Handler::Image);
    }
}
