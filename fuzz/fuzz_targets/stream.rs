//! Fuzzes the decoder of the replication stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // An error is a good answer.
    let _ = flow_source::fuzzing::check_stream(bytes);
});
