//! Fuzzes the decoder of the initial copy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flow_source::fuzzing::check_copy(bytes));
