//! The lake as its callers and as other programs see it.

mod commits;
mod fixture;
mod foreign;
mod history;
mod speed;
mod column_types;
