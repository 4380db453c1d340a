//! Accept: the best format for an answer with `f=auto` (RFC 9110 §12.5.1).
//!
//! A format that not all browsers know is sent only to clients that name it: `*/*` and `image/*`, which every client
//! sends, do not include WebP and AVIF. The caller must add `Vary: Accept` to the response.

use crate::format::Format;

/// The first format of `offered` that the client accepts; JPEG if there is none. AVIF and WebP must be named with a
/// weight above 0.
#[must_use]
pub fn choose(accept: Option<&str>, offered: &[Format]) -> Format {
    choose_with(accept, offered, &[]).0
}

/// As [`choose`], but without the formats of `slow`; also returns the slow formats that would be better, best first.
#[must_use]
pub fn choose_with(accept: Option<&str>, offered: &[Format], slow: &[Format]) -> (Format, Vec<Format>) {
    let mut better = Vec::new();
    for format in taken(accept, offered) {
        if !slow.contains(&format) {
            return (format, better);
        }
        better.push(format);
    }
    (Format::Jpeg, better)
}

/// The accepted formats that hold an animation, best first.
#[must_use]
pub fn choose_animated(accept: Option<&str>, offered: &[Format]) -> Vec<Format> {
    taken(accept, offered).filter(|format| format.is_animated()).collect()
}

/// The offered formats that the client accepts.
fn taken(accept: Option<&str>, offered: &[Format]) -> impl Iterator<Item = Format> {
    let accept = accept.unwrap_or("");
    offered.iter().copied().filter(move |format| match format {
        Format::Avif | Format::WebP => format.is_written() && names(accept, format.media_type()),
        _ => true,
    })
}

fn names(accept: &str, media_type: &str) -> bool {
    accept.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media_type));
        named && !parts.any(is_refusal)
    })
}

/// True for `q=0`, `q=0.000`.
fn is_refusal(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .is_some_and(|(_, weight)| weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_format_goes_only_to_who_names_it() {
        let offered = [Format::WebP, Format::Jpeg];
        for (accept, expected) in [
            (None, Format::Jpeg),
            (Some(""), Format::Jpeg),
            (Some("*/*"), Format::Jpeg),
            (Some("image/*,*/*;q=0.8"), Format::Jpeg),
            (Some("image/webp,*/*"), Format::WebP),
            (Some("image/avif, IMAGE/WEBP ;q=0.9"), Format::WebP),
            (Some("image/webp;q=0, image/jpeg"), Format::Jpeg),
            (Some("image/webp; q=0.000"), Format::Jpeg),
            (Some("image/webpx"), Format::Jpeg),
        ] {
            assert_eq!(choose(accept, &offered), expected, "{accept:?}");
        }
    }

    #[test]
    fn avif_is_chosen_where_it_can_be_written() {
        let chosen = choose(
            Some("image/avif,image/webp"),
            &[Format::Avif, Format::WebP, Format::Jpeg],
        );
        let expected = if cfg!(feature = "avif") {
            Format::Avif
        } else {
            Format::WebP
        };
        assert_eq!(chosen, expected);
    }

    #[test]
    fn what_takes_long_is_named_beside_what_is_sent_now() {
        let offered = [Format::WebP, Format::Png, Format::Jpeg];
        let chosen = |accept, slow: &[Format]| choose_with(Some(accept), &offered, slow);
        assert_eq!(chosen("image/webp", &[]), (Format::WebP, vec![]));
        assert_eq!(chosen("image/webp", &[Format::WebP]), (Format::Png, vec![Format::WebP]));
        assert_eq!(chosen("*/*", &[Format::WebP]), (Format::Png, vec![]));
        let all = [Format::WebP, Format::Png];
        assert_eq!(
            chosen("image/webp", &all),
            (Format::Jpeg, vec![Format::WebP, Format::Png])
        );
        assert_eq!(
            choose_with(None, &[Format::Png], &[Format::Png]),
            (Format::Jpeg, vec![Format::Png])
        );
    }

    #[test]
    fn an_animation_has_formats_of_its_own() {
        let offered = [Format::Png, Format::Gif, Format::WebP, Format::Jpeg];
        let chosen = |accept| choose_animated(Some(accept), &offered);
        assert_eq!(chosen("image/webp"), [Format::Gif, Format::WebP]);
        assert_eq!(chosen("image/*"), [Format::Gif]);
        assert_eq!(choose_animated(None, &[Format::WebP, Format::Jpeg]), []);
    }

    #[test]
    fn the_order_of_the_offer_decides() {
        assert_eq!(choose(Some("image/webp"), &[Format::Png, Format::WebP]), Format::Png);
        assert_eq!(choose(Some("image/webp"), &[]), Format::Jpeg);
    }
}
