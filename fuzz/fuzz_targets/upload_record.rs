#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| underpass_receive::fuzz::upload_record(data));
