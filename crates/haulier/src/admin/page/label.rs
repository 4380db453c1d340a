//! Requests and sites as short labels.

use haulier_proto::text::Escaped;

/// Characters shown of a request. Fifty requests are most of the page; the log has them whole, by their ids.
const LETTERS: usize = 44;
/// The name of a site, small, to follow a request or a script.
pub(super) fn site(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(" <small>{}</small>", Escaped(name)))
}

/// The beginning of a long text, or the whole of a short one.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
