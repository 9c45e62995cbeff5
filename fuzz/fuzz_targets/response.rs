#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| underpass_http::fuzz::response(data));
