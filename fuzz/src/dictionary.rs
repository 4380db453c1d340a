//! Available-Dictionary fields, and patterns for Use-As-Dictionary.

use haulier_proto::dictionary;

/// A hash is read from one spelling only, padding aside, and what is announced cannot end its own quotes.
pub fn check(data: &[u8]) {
    if let Some(hash) = dictionary::available(data) {
        let inner = data.trim_ascii().strip_prefix(b":").expect("it begins so");
        let end = inner.iter().position(|&byte| byte == b':').expect("it ends so");
        assert!((43..=44).contains(&end), "{end} characters for {} bytes", hash.len());
    }
    if let Ok(pattern) = std::str::from_utf8(data)
        && let Some(value) = dictionary::use_as(pattern, true)
    {
        assert_eq!(value.matches('"').count(), 4, "{value}");
        assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{value}");
    }
}
