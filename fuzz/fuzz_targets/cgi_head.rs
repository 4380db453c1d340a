#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haulier_fuzz::cgi_head::check(data));
