//! The upload page: it shows a picture in every mode, with the address of each.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haulier_http::{Handler, Response};
use sha2::{Digest, Sha256};

use crate::images::ImageSite;

/// One document without external resources.
const PAGE: &str = include_str!("page.html");

/// Allows the page's own script and style by their hashes, and nothing else (CSP 3 §2.3.1).
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |begin: &str, end: &str| {
        let content = between(PAGE, begin, end);
        format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)))
    };
    format!(
        "default-src 'none'; connect-src 'self'; img-src 'self' blob: data:; style-src {}; script-src {}; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        hash("<style>", "</style>"),
        hash("<script>", "</script>"),
    )
});

fn between<'t>(text: &'t str, begin: &str, end: &str) -> &'t str {
    let behind = text.split_once(begin).map_or("", |(_, behind)| behind);
    behind.split_once(end).map_or("", |(content, _)| content)
}

/// The page, with the presets and limits of the site.
pub(super) fn respond(images: &ImageSite) -> Response {
    let settings = &images.settings;
    let presets: Vec<&str> = settings.presets.iter().map(|(name, _)| name.as_str()).collect();
    let offer = serde_json::json!({
        "presets": presets,
        "onlyPresets": settings.only_presets,
        "signed": !settings.sign.is_empty(),
        "most": settings.limits.file,
        "avif": haulier_image::Format::Avif.is_written(),
    });
    // `<` could end the script element.
    let offer = offer.to_string().replace('<', "\\u003c");
    Response::new(200, Handler::Image)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("Content-Security-Policy", POLICY.as_str())
        .with("X-Content-Type-Options", "nosniff")
        .with("Cache-Control", "no-cache")
        .body(PAGE.replace("{{offer}}", &offer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else_and_its_policy_knows_its_parts() {
        assert!(!PAGE.contains("http://") && !PAGE.contains("https://"));
        assert_eq!(PAGE.matches("<style>").count(), 1);
        assert_eq!(PAGE.matches("<script>").count(), 1);
        assert!(
            !between(PAGE, "<script>", "</script>").contains("{{"),
            "the hash is that of what is sent"
        );
        assert_eq!(PAGE.matches("{{offer}}").count(), 1);
        assert!(POLICY.matches("'sha256-").count() == 2 && !POLICY.contains("unsafe"));
    }
}
