#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| haulier_fuzz::dictionary::check(data));
