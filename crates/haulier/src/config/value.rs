//! Values of this configuration: rates, and rules for caches.

use haulier_server::RateLimiter;
use haulier_settings::Placed;
use haulier_settings::value::{Rate, duration};

/// Longest request body if PHP has no limit.
pub(super) const BODY: u64 = 8 << 20;

pub(super) fn value_or<T: Copy>(written: Option<&Placed<T>>, default: T) -> T {
    written.map_or(default, |written| written.value)
}

pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A limiter that counts by this rate.
pub(crate) fn limiter(rate: Rate) -> RateLimiter {
    RateLimiter::new(haulier_server::Rate {
        count: rate.count,
        period: rate.period,
        burst: rate.burst,
    })
}

/// Cache-Control of a rule: a duration, `immutable`, `no-store`, `no-cache`, `private`.
pub(crate) fn cache_control(text: &str) -> Option<String> {
    let mut scope = "public";
    let mut directives = Vec::new();
    for word in text.split_whitespace() {
        match word {
            "no-store" | "no-cache" => directives.push(word.to_owned()),
            "immutable" | "must-revalidate" => directives.push(word.to_owned()),
            "private" | "public" => scope = if word == "private" { "private" } else { "public" },
            age => directives.push(format!("max-age={}", duration(age)?.as_secs())),
        }
    }
    let uncached = directives.iter().any(|directive| directive.starts_with("no-"));
    match directives.is_empty() {
        true => None,
        false if uncached => Some(directives.join(", ")),
        false => Some(format!("{scope}, {}", directives.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_rules_become_cache_control() {
        assert_eq!(
            cache_control("1y immutable").as_deref(),
            Some("public, max-age=31536000, immutable")
        );
        assert_eq!(cache_control("private 10m").as_deref(), Some("private, max-age=600"));
        assert_eq!(cache_control("no-store").as_deref(), Some("no-store"));
        for wrong in ["", "forever", "10", "public"] {
            assert_eq!(cache_control(wrong), None, "{wrong:?}");
        }
    }
}
