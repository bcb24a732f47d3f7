//! The lake as its callers and as other programs see it.

mod column_types;
mod commits;
mod existing;
mod fixture;
mod foreign;
mod history;
mod speed;
mod tables;
