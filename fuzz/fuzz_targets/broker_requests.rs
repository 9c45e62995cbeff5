#![no_main]

#[path = "../../crates/underpass-broker/tests/wire/requests/promise.rs"]
mod promise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| promise::requests(data));
