#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| underpass_serve::fuzz::upload_fields(data));
