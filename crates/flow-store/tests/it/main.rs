//! Tests of the store against a real database on a real disk.

mod delta;
mod files;
mod fixture;
mod index;
mod journal;
mod kill;
mod lifecycle;
mod operations;
mod records;
mod state;
mod support;
