#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| underpass_sendrecv::fuzz::code_exchange(data));
