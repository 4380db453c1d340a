//! Requests about an image: its properties, and its deletion.

use std::sync::Arc;

use haulier_http::{Handler, Request, Response};
use haulier_proto::head::Method;
use haulier_store::Key;

use super::api;
use super::compat::{self, AdminOutcome, ZimgError};
use super::failure::{ImageFailure, as_json, refuse};
use super::{ImageWork, Started, wait_for};
use crate::context::RequestContext;
use crate::images::ImageSite;
use crate::site::Site;

/// Starts `/info?md5=…`.
pub(super) fn start_info(context: &RequestContext<'_>, images: &ImageSite) -> Started {
    let compat = images.settings.compat;
    if compat.is_zimg() && context.request.head.method() != Method::Get {
        return Started::Response(compat::error(200, ZimgError::Method));
    }
    match api::parameter(context.query, "md5").and_then(api::key) {
        Some(id) => wait_for(ImageWork::Info(id)),
        None if compat.is_zimg() => Started::Response(compat::error(200, ZimgError::Url)),
        None => Started::Response(compat::error_in_words(
            400,
            ZimgError::Url,
            "`md5` is missing or not an id",
        )),
    }
}

/// Starts `DELETE /<md5>`.
pub(super) fn start_delete(context: &RequestContext<'_>, images: &ImageSite, id: Key) -> Started {
    let Some(token) = &images.settings.token else {
        let failure = ImageFailure::new(403, "deleting is off: the site has no token");
        return Started::Response(refuse(context.site, context.request, &failure));
    };
    if bearer(context.request).is_some_and(|shown| is_same(shown, token.as_bytes())) {
        return wait_for(ImageWork::Delete(id));
    }
    let failure = ImageFailure::new(401, "deleting requires the token of the site");
    let response = refuse(context.site, context.request, &failure);
    Started::Response(response.with("WWW-Authenticate", "Bearer"))
}

/// The token of `Authorization: Bearer …` (RFC 6750 §2.1).
fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.head.fields().get("Authorization")?;
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Compares in constant time.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differences = shown.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == token.len() && differences == 0
}

/// Starts `/admin`. Deleting by GET is limited to listed addresses, so that a link in a mail cannot do it.
pub(super) fn start_admin(context: &RequestContext<'_>, images: &ImageSite) -> Started {
    if !context.comes_from(&images.settings.admin) {
        return Started::Response(match images.settings.compat.is_zimg() {
            true => compat::forbidden(),
            false => refuse(
                context.site,
                context.request,
                &ImageFailure::new(403, "not allowed from this address"),
            ),
        });
    }
    let Some(query) = context.query.filter(|query| !query.is_empty()) else {
        return Started::Response(compat::admin_page());
    };
    let Some(id) = api::parameter(Some(query), "md5").and_then(api::key) else {
        return Started::Response(refuse(context.site, context.request, &ImageFailure::missing()));
    };
    let command = api::parameter(Some(query), "t").and_then(|text| std::str::from_utf8(text).ok());
    let command = command.and_then(|text| text.parse().ok()).unwrap_or(0);
    wait_for(ImageWork::Command(id, command))
}

/// The properties of an image.
pub(super) async fn info(site: &Arc<Site>, images: &ImageSite, id: Key) -> Response {
    let error = match images.service.info(id).await {
        Ok(info) => return compat::properties(&info),
        Err(error) => ImageFailure::from(&error),
    };
    match images.settings.compat.is_zimg() && error.reason.is_none() {
        true => compat::error(200, ZimgError::of(&error)),
        false => as_json(site, &error),
    }
}

/// Deletes an image.
pub(super) async fn delete(site: &Arc<Site>, images: &ImageSite, request: &Request, id: Key) -> Response {
    match images.service.delete(id).await {
        Ok(true) => Response::new(204, Handler::Image),
        Ok(false) => refuse(site, request, &ImageFailure::missing()),
        Err(error) => refuse(site, request, &ImageFailure::from(&error)),
    }
}

/// Executes a command of zimg's `/admin` page: 1 deletes, the others only check for the image.
pub(super) async fn command(images: &ImageSite, id: Key, number: i64) -> Response {
    let name = id.to_string();
    let outcome = match number {
        1 => images.service.delete(id).await,
        _ => images.service.exists(id).await,
    };
    let admin = match (number, outcome) {
        (1, Ok(true)) => AdminOutcome::Done,
        (_, Ok(false)) => AdminOutcome::Missing,
        _ => AdminOutcome::Failed,
    };
    compat::admin_result(&name, number, admin)
}
