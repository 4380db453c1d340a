//! Lists that proxies write: never a panic, and every element is a part of the input.

use haulier_proto::forwarded::{address, from_the_right, parameter, plain_from_the_right};

/// Elements and parameters lie within the input, and addresses are what they say.
pub fn check(data: &[u8]) {
    let within = |part: &[u8]| data.as_ptr_range().contains(&part.as_ptr()) || part.is_empty();
    for element in plain_from_the_right(data) {
        assert!(within(element) && !element.contains(&b','));
    }
    for element in from_the_right(data) {
        assert!(within(element) && !element.is_empty());
        for name in ["for", "proto", "host"] {
            if let Some(value) = parameter(element, name) {
                assert!(within(value) && value.len() < element.len());
                assert!(!value.contains(&b'"'));
            }
        }
        if let Some(ip) = address(element) {
            assert_eq!(address(ip.to_string().as_bytes()), Some(ip));
        }
    }
}
