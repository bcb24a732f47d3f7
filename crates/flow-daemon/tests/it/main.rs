//! Runs the real binary: exit codes, what is said where, and that no secret is.

mod commands;
mod folder;
mod service;
