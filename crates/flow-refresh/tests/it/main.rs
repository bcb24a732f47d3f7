//! Black-box tests of dynamic tables: what is planned, what is computed, what is compared.
//!
//! Tables are batches in memory; the engine that computes over them is the real one. PostgreSQL
//! judges the results.

mod asking;
mod computing;
mod delta;
mod differing;
mod lake;
mod moments;
mod planning;
mod postgres;
mod refusing;
mod sample;
