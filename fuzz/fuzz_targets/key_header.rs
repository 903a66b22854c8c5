#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onejob_lab::fuzz::key_header(data));
