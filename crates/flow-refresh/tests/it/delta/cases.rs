//! Named cases: each operator, and each input that broke others.
