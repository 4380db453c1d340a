#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haulier_fuzz::h2_client::check(data));
