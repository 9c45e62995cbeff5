#![no_main]

#[path = "../../crates/underpass-net/tests/network/proxy/promise.rs"]
mod promise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| promise::proxy(data));
