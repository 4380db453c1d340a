//! The dashboard: one HTML page that loads nothing else. Its sections have the order of the questions during an outage.
//!
//! It is complete without JavaScript; with it, `live.js` asks for the page again each second and puts the sections that
//! have changed in the place of the old ones. The browser is told to run and load nothing else: the two hashes of
//! [`policy`] are those of the style sheet and the script in the page.

mod content;
mod downloads;
mod facts;
mod label;
mod php;
mod requests;
mod sites;
mod table;
mod time;
mod traffic;

use std::fmt::Write;
use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::history::Range;
use super::view::View;

use haulier_proto::text::Escaped;

static STYLE: LazyLock<String> = LazyLock::new(|| format!("{}{}", haulier_charts::STYLE, include_str!("style.css")));
const SCRIPT: &str = include_str!("live.js");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    let (style, script) = (hash(&STYLE), hash(SCRIPT));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The value of the page's Content-Security-Policy field.
pub(super) fn policy() -> &'static str {
    &POLICY
}

/// The whole page.
pub(super) fn render(view: &View) -> String {
    let mut page = String::with_capacity(48 * 1024);
    let judgement = facts::judge(view);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"referrer\" content=\"no-referrer\"><title>{} · haulier</title>\
         <link rel=\"icon\" href=\"data:image/svg+xml,{ICON}\"><style>{}</style></head><body>",
        Escaped(judgement.headline()),
        &*STYLE,
    );
    page.push_str(&facts::section(view, &judgement));
    let _ = write!(
        page,
        "<nav aria-label=\"Time range of the charts\">{}</nav><main>",
        ranges(view.range)
    );
    for section in [
        php::section,
        traffic::section,
        downloads::section,
        requests::section,
        content::section,
        sites::section,
    ] {
        page.push_str(&section(view));
    }
    let _ = write!(
        page,
        "</main><footer><p id=\"live\" role=\"status\">Reload for newer figures.</p>\
         <p>For programs: <a href=\"/metrics\">/metrics</a> <a href=\"/api/state.json\">/api/state.json</a> \
         <a href=\"/healthz\">/healthz</a></p></footer><script>{SCRIPT}</script></body></html>"
    );
    page
}

/// The icon of the browser tab: a lorry's wheel.
const ICON: &str = "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='6' \
                    fill='none' stroke='%232f6fb7' stroke-width='3'/%3E%3Ccircle cx='8' cy='8' r='2' \
                    fill='%232f6fb7'/%3E%3C/svg%3E";

fn ranges(current: Range) -> String {
    let link = |range: Range, target: &str, name: &str| {
        let here = if range == current { " aria-current=\"true\"" } else { "" };
        format!("<a href=\"{target}\"{here}>{name}</a>")
    };
    let quarter = link(Range::QuarterHour, "/", "15 minutes");
    format!("{quarter}{}", link(Range::Day, "/?range=day", "24 hours"))
}

#[cfg(test)]
mod tests;
