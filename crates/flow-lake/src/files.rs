//! Being filled in.
