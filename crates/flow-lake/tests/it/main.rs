//! The lake as its callers and as other programs see it.

mod changes;
mod column_types;
mod commits;
mod existing;
mod fixture;
mod foreign;
mod forge;
mod history;
mod serve;
mod speed;
mod tables;
